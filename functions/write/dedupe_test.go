package write_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
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
        - add: {totals: {sum: 'DELTA'}}
        - when: has(event.note)
          set: {cf: {note: event.note}}
`)
}

// sums reads the counters back.
func (h *harness) sums(table string) map[string]int64 {
	h.t.Helper()
	out := map[string]int64{}
	for key, row := range h.rows(table) {
		out[key] = int64(binary.BigEndian.Uint64([]byte(row["totals:sum"])))
	}
	return out
}

// Records of one message under one explicit id are one contribution: the first that can be
// written counts, once, however often the message is delivered. One that is refused leaves
// its place to the next.
//
// covers: FAIL-10, FAIL-11
func TestRecordsOfOneExplicitIDCountOnce(t *testing.T) {
	const at = `"at":"2026-08-30T10:15:30Z","counter":"c","id":"one"`
	bad := `{` + at + `,"delta":7,"note":"` + strings.Repeat("x", 2000) + `"}`
	unmapped := `{` + at + `,"delta":"much"}`
	good := `{` + at + `,"delta":7}`
	for _, dedupe := range []string{"window", "marker"} {
		for name, c := range map[string]struct {
			events  []string
			want    int64
			letters int
		}{
			"two good":         {[]string{good, good}, 7, 0},
			"a bad one first":  {[]string{bad, good, good}, 7, 1},
			"a bad one behind": {[]string{good, bad}, 7, 0},
			"unmapped first":   {[]string{unmapped, good}, 7, 1},
			"only bad ones":    {[]string{bad, bad}, 0, 2},
		} {
			h := newHarness(t, countersFile(dedupe, "int(event.delta)"), counterFamilies(), func(h *harness) { h.service.CellBytes = 1000 })
			for delivery := range 2 {
				if status := h.deliver("m-1", []byte(strings.Join(c.events, "\n"))); status != 204 {
					t.Fatalf("%s, %s: %d\n%s", dedupe, name, status, h.log)
				}
				if delivery == 0 && len(h.letters.letters) != c.letters {
					t.Errorf("%s, %s: %d letters, want %d", dedupe, name, len(h.letters.letters), c.letters)
				}
			}
			if got := h.sums("counters")["c"]; got != c.want {
				t.Errorf("%s, %s: the sum is %d, want %d", dedupe, name, got, c.want)
			}
		}
	}
}

// tally is what the counters must show: how many events count into each.
type tally map[string]int64

// counted reads the counters: an event counts 1 under the first deployment and a million
// under the second, so that both can be told apart and the sum of both is the number of
// events that counted.
func (w *simulation) counted() tally {
	out := tally{}
	for key, row := range w.read("counters") {
		sum := int64(binary.BigEndian.Uint64([]byte(row["totals:sum"])))
		out[key] = sum%1_000_000 + sum/1_000_000
	}
	return out
}

func (w *simulation) checkTally(want tally) {
	w.t.Helper()
	got := w.counted()
	for key, n := range want {
		if got[key] != n {
			w.t.Errorf("%s counts %d events, want %d", key, got[key], n)
		}
	}
	if len(got) != len(want) {
		w.t.Errorf("%d counters, want %d", len(got), len(want))
	}
}

const (
	firstDelta  = `int(event.n)`
	secondDelta = `event.n == "bad" ? 1000000 : int(event.n) * 1000000`
)

// counterEvents are n events for 20 counters, two to seven a message, some with a record
// that the first deployment's mapping refuses; want gets all of them.
func (w *simulation) counterEvents(name string, n int, want tally) []*pubsub.Message {
	var out []*pubsub.Message
	for i := 0; i < n; {
		var lines []string
		for range 2 + w.roll(6) {
			counter := fmt.Sprintf("counter-%d", w.roll(20))
			value, note := `"1"`, ""
			switch w.roll(25) {
			case 0:
				value = `"bad"`
			case 1:
				note = "small"
			}
			line := fmt.Sprintf(`{"id":"%s-%d","counter":"%s","n":%s,"at":"2026-08-30T10:15:30Z"`, name, i, counter, value)
			if note != "" {
				line += `,"note":"` + note + `"`
			}
			lines = append(lines, line+"}")
			want[counter]++
			i++
		}
		out = append(out, &pubsub.Message{Data: []byte(strings.Join(lines, "\n"))})
	}
	return out
}

// Every event counts once: applied with its answer lost, delivered twice, published
// twice, caught by a kill in mid-batch, moved to NAME-undelivered, kept as a dead letter
// and replayed twice; also when another mapping is deployed between its deliveries.
//
// covers: PLAN-07, PLAN-08, SNK-40, SNK-42, FAIL-08
func TestSumsUnderAMarkerAreExact(t *testing.T) {
	seeds, events := 1, 1500
	if soak() {
		seeds, events = 5, 10_000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sumsUnderAMarker(t, uint64(seed), events) })
		})
	}
}

func sumsUnderAMarker(t *testing.T, seed uint64, events int) {
	first, second := countersFile("marker", firstDelta), countersFile("marker", secondDelta)
	w := newSimulation(t, seed, first, simulationOptions{families: counterFamilies(), attempts: 8})
	defer w.close()
	want := tally{}

	// Faults, duplicates, lost answers, kills and a deployment while events flow.
	w.setFaults(faultRates{faults: 0.08, refusals: 0.01, twice: 0.3, lost: 0.05})
	messages := w.counterEvents("a", events-100, want)
	w.publish("counters-events", messages...)
	w.publish("counters-events", messages[:len(messages)/4]...) // by a publisher that lost an answer
	for i, file := range []string{first, first, second, second} {
		time.Sleep(time.Duration(50+w.roll(2000)) * time.Millisecond)
		w.restart(i%2, file)
	}
	w.idle()

	// An outage that applies and does not say so: messages are moved.
	w.setFaults(faultRates{twice: 0.3, lost: 0.05})
	for _, method := range []string{"MutateRows", "CheckAndMutateRow"} {
		w.emulator.Inject(emulator.Fault{Method: method, Code: codes.Unavailable, After: true})
	}
	w.publish("counters-events", w.counterEvents("b", 100, want)...)
	w.idle()
	w.emulator.ClearFaults()
	if n := w.events.Counts().Forwarded; n == 0 {
		t.Error("nothing was moved to counters-undelivered")
	}

	// What was kept is replayed, twice over, under the second deployment, which takes all.
	w.setFaults(faultRates{faults: 0.08})
	w.emulator.ClearFaults()
	w.replay(second, false, "counters-dead-letter", "counters-undelivered") // what fails here stays where it is
	w.setFaults(faultRates{})
	w.emulator.ClearFaults()
	for _, err := range w.replay(second, false, "counters-dead-letter", "counters-undelivered") {
		t.Error(err)
	}
	w.checkTally(want)
	injected, _ := w.seen()
	t.Logf("%d faults, %+v, %d dead letters, %d undelivered", injected, w.events.Counts(),
		len(w.cloud.Published("counters-dead-letter")), len(w.cloud.Published("counters-undelivered")))
}

// tokenWindow is how long a token holds.
const tokenWindow = 15 * time.Minute

// Within 15 minutes of its first application, a token does the same for adds.
//
// covers: PLAN-07, SNK-42, FAIL-08
func TestSumsWithinTheWindowAreExact(t *testing.T) {
	seeds, events := 1, 1500
	if soak() {
		seeds, events = 5, 10_000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sumsWithinTheWindow(t, uint64(seed), events) })
		})
	}
}

func sumsWithinTheWindow(t *testing.T, seed uint64, events int) {
	first, second := countersFile("window", firstDelta), countersFile("window", secondDelta)
	w := newSimulation(t, seed, first, simulationOptions{families: counterFamilies()})
	defer w.close()
	want := tally{}
	w.setFaults(faultRates{faults: 0.08, refusals: 0.02, twice: 0.3, lost: 0.03})
	messages := w.counterEvents("a", events, want)
	w.publish("counters-events", messages...)
	w.publish("counters-events", messages[:len(messages)/4]...)
	for i, file := range []string{first, first, second, second} {
		time.Sleep(time.Duration(50+w.roll(2000)) * time.Millisecond)
		w.restart(i%2, file)
	}
	w.idle()
	w.setFaults(faultRates{faults: 0.08})
	w.emulator.ClearFaults()
	w.replay(second, false, "counters-dead-letter") // what fails here stays where it is
	w.setFaults(faultRates{})
	w.emulator.ClearFaults()
	for _, err := range w.replay(second, false, "counters-dead-letter") {
		t.Error(err)
	}
	w.checkTally(want)
	injected, span := w.seen()
	if span > tokenWindow {
		t.Errorf("deliveries of one message %v apart: longer than a token holds", span)
	}
	t.Logf("%d faults, %+v, %d dead letters", injected, w.events.Counts(), len(w.cloud.Published("counters-dead-letter")))
}

// An event with two counters has two tokens, and a part of it that fails does not count
// the other again.
//
// covers: PLAN-07
func TestAnEventThatFailsHalfWayCountsOnce(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		h := newHarness(t, countersFile(dedupe, firstDelta), counterFamilies(), nil)
		const at = `"at":"2026-08-30T10:15:30Z","n":1,"id":"one"`
		event := []byte(`{` + at + `,"counter":"a"}` + "\n" + `{` + at + `,"counter":"b"}`)
		method := map[string]string{"window": "MutateRows", "marker": "CheckAndMutateRow"}[dedupe]
		h.emulator.Inject(emulator.Fault{Method: method, Count: 1, Skip: 1, Code: codes.PermissionDenied})
		h.emulator.Inject(emulator.Fault{Method: "MutateRows", Count: 1, Entries: []int{1}, Code: codes.PermissionDenied})
		if status := h.deliver("m-1", event); status == 204 {
			t.Errorf("%s: acknowledged with a part refused", dedupe)
		}
		h.emulator.ClearFaults()
		for range 2 {
			if status := h.deliver("m-1", event); status != 204 {
				t.Errorf("%s: %d\n%s", dedupe, status, h.log)
			}
		}
		if got := h.sums("counters"); got["a"] != 1 || got["b"] != 1 {
			t.Errorf("%s: %v", dedupe, got)
		}
	}
}

// sums reads the sums of the counters.
func (w *simulation) sums() map[string]int64 {
	out := map[string]int64{}
	for key, row := range w.read("counters") {
		if sum := row["totals:sum"]; sum != "" {
			out[key] = int64(binary.BigEndian.Uint64([]byte(sum)))
		}
	}
	return out
}
