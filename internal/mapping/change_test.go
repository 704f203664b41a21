package mapping

import (
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func compiledChanges(t *testing.T, options string) (*Changes, error) {
	t.Helper()
	p, err := pipeline.Parse([]byte(`
version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders: {families: {cf: {columns: {total: int64, day: date}}, sums: {aggregate: sum}}}
  plain: {families: {cf: {}}}
changes:
  feed: {appProfile: one, `+options+`}
`), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return CompileChanges(p.Changes[0])
}

// wholeRecord is a change with every kind of entry, which committed at a time.
func wholeRecord(at time.Time) *changestream.Record {
	return &changestream.Record{
		RowKey: "k\xff", Type: changestream.User, Cluster: "c1", CommitTime: at, TieBreaker: 7,
		Position: changestream.Position{Token: "secret", LowWatermark: at.Add(-time.Second)},
		Entries: []changestream.Entry{
			{Kind: changestream.DeleteFamily, Family: "cf"},
			{Kind: changestream.SetCell, Family: "cf", Qualifier: "total", Timestamp: 1_000, Value: []byte{0, 0, 0, 0, 0, 0, 0, 42}},
			{Kind: changestream.SetCell, Family: "cf", Qualifier: "total", Timestamp: -1, Value: []byte("short")},
			{Kind: changestream.SetCell, Family: "cf", Qualifier: "\x00\xff", Value: nil},
			{Kind: changestream.DeleteCells, Family: "cf", Qualifier: "day", Start: 5},
			{Kind: changestream.DeleteCells, Family: "cf", Qualifier: "day", Start: 5, End: 9},
			{Kind: changestream.AddToCell, Family: "sums", Qualifier: "n", Timestamp: 2_000_000, Number: -3, IsNumber: true},
			{Kind: changestream.MergeToCell, Family: "sums", Qualifier: "n", Value: []byte("hll")},
		},
	}
}

// Every field of a change and of each kind of entry is in its record: bytes as base64, and
// beside them the value of a declared column whose bytes are of its type.
//
// covers: CS-22, CS-23, CS-24, CSQ-03, CSQ-04, CSQ-05, CSQ-06, CSQ-02, CSQ-07, CSQ-08, CSQ-09
// stream-case: 16, 17, 18
func TestAChangeBecomesARecordWithAllThatItHolds(t *testing.T) {
	m, err := compiledChanges(t, "table: orders, to: {pubsub: {topic: out, orderBy: rowKey}}")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 8, 30, 10, 15, 31, 123_456_789, time.UTC)
	r := wholeRecord(at)
	want := `{"rowKey":{"base64":"a/8="},"rowKeyBase64":"a/8=","type":"USER","cluster":"c1","commitTime":"2026-08-30T10:15:31.123456789Z","tieBreaker":7,"lowWatermark":"2026-08-30T10:15:30.123456789Z","entries":[` + strings.Join([]string{
		`{"index":0,"kind":"DELETE_FAMILY","family":"cf"}`,
		`{"index":1,"kind":"SET_CELL","family":"cf","qualifier":"total","qualifierBase64":"dG90YWw=","timestamp":"1970-01-01T00:00:00.001Z","timestampMicros":1000,"valueType":"RAW_VALUE","valueBase64":"AAAAAAAAACo=","value":42}`,
		`{"index":2,"kind":"SET_CELL","family":"cf","qualifier":"total","qualifierBase64":"dG90YWw=","timestamp":"1969-12-31T23:59:59.999999Z","timestampMicros":-1,"valueType":"RAW_VALUE","valueBase64":"c2hvcnQ="}`,
		`{"index":3,"kind":"SET_CELL","family":"cf","qualifier":{"base64":"AP8="},"qualifierBase64":"AP8=","timestamp":"1970-01-01T00:00:00Z","timestampMicros":0,"valueType":"RAW_VALUE","valueBase64":""}`,
		`{"index":4,"kind":"DELETE_CELLS","family":"cf","qualifier":"day","qualifierBase64":"ZGF5","range":{"startBound":"CLOSED","startMicros":5,"endBound":"UNBOUNDED","endMicros":null}}`,
		`{"index":5,"kind":"DELETE_CELLS","family":"cf","qualifier":"day","qualifierBase64":"ZGF5","range":{"startBound":"CLOSED","startMicros":5,"endBound":"OPEN","endMicros":9}}`,
		`{"index":6,"kind":"ADD_TO_CELL","family":"sums","qualifier":"n","qualifierBase64":"bg==","timestamp":"1970-01-01T00:00:02Z","timestampMicros":2000000,"valueType":"INT64","value":-3}`,
		`{"index":7,"kind":"MERGE_TO_CELL","family":"sums","qualifier":"n","qualifierBase64":"bg==","timestamp":"1970-01-01T00:00:00Z","timestampMicros":0,"valueType":"RAW_VALUE","valueBase64":"aGxs"}`,
	}, ",") + `]}`
	body, filtered, err := m.Body(r)
	if err != nil || string(body) != want || filtered != 0 {
		t.Errorf("%v\n%s\nwant\n%s", err, body, want)
	}
	if got := m.OrderingKey(r); len(got) != 32 || got == m.OrderingKey(&changestream.Record{RowKey: "k"}) {
		t.Errorf("ordering key %q", got)
	}
	r.Type, r.Cluster, r.Entries = changestream.GarbageCollection, "", nil
	if body, _, err = m.Body(r); err != nil || !strings.Contains(string(body), `"type":"GARBAGE_COLLECTION","cluster":null`) || !strings.HasSuffix(string(body), `"entries":[]}`) {
		t.Errorf("%v: %s", err, body)
	}
	r.Oversize, r.Bytes = true, 12
	if body, _, err = m.Body(r); err == nil || body != nil || err.Error() != m.Check(r).Error() || !strings.Contains(err.Error(), "12 bytes") {
		t.Errorf("%v: %s", err, body)
	}
}
