package write_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
)

// counterFamilies are those of countersFile: a sum, an ordinary one and the markers.
func counterFamilies() map[string]*adminpb.ColumnFamily {
	out := plainFamilies("cf", "seen")
	out["totals"] = &adminpb.ColumnFamily{ValueType: &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: &adminpb.Type_Aggregate{
		InputType: &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{
			Encoding: &adminpb.Type_Int64_Encoding{Encoding: &adminpb.Type_Int64_Encoding_BigEndianBytes_{
				BigEndianBytes: &adminpb.Type_Int64_Encoding_BigEndianBytes{},
			}},
		}}},
		Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}},
	}}}}
	return out
}

// countersFile counts deltas: under a marker, or within the window of a token. A note is
// written beside the sum. The delta may be computed otherwise in a later deployment.
func countersFile(dedupe, delta string) string {
	marker := ""
	if dedupe == "marker" {
		marker = "\n      markerFamily: seen"
	}
	return strings.NewReplacer("DEDUPE", dedupe+marker, "DELTA", delta).Replace(`
version: 1
name: counters
bigtable: {project: my-project, instance: my-instance}
tables:
  counters:
    appProfile: default
    families:
      totals: {aggregate: sum}
      cf: {}
      seen: {gc: {maxAge: 1080h}}
write:
  format: ndjson
  onFailure: dead-letter
  mappings:
    - name: count
      table: counters
      rowKey: event.counter
      timestamp: bucket(timestamp(event.at), duration("1h"))
      dedupe: DEDUPE
      dedupeId: event.id
      mutations:
        - add: {totals: {sum: DELTA}}
        - when: has(event.note)
          set: {cf: {note: event.note}}
`)
}

// sums reads the counters back.
func (h *house) sums(table string) map[string]int64 {
	h.t.Helper()
	out := map[string]int64{}
	for key, row := range h.rows(table) {
		out[key] = int64(binary.BigEndian.Uint64([]byte(row["totals:sum"])))
	}
	return out
}

// Records of one message that count into one row under one id are one contribution. The
// service takes a token once: the parts of an entry that it refuses go under their own.
//
// covers: FAIL-10, FAIL-11
func TestANeighbourOfARefusedAddIsCountedOnce(t *testing.T) {
	h := newHouse(t, countersFile("window", "int(event.delta)"), counterFamilies(), func(h *house) { h.service.CellBytes = 1000 })
	const at = `"at":"2026-08-30T10:15:30Z","counter":"c","id":"one"`
	event := []byte(`{` + at + `,"delta":1}` + "\n" + `{` + at + `,"delta":2,"note":"` + strings.Repeat("x", 2000) + `"}` + "\n" + `{` + at + `,"delta":4}`)
	for range 3 {
		if status := h.deliver("m-1", event); status != 204 {
			t.Fatalf("%d\n%s", status, h.log)
		}
	}
	if got := h.sums("counters")["c"]; got != 5 {
		t.Errorf("the sum is %d, want 5", got)
	}
	if len(h.letters.letters) != 3 {
		t.Errorf("%d letters of three deliveries, want one each", len(h.letters.letters))
	}
}
