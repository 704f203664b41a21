package write_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/replay"
)

// twoCounters counts one record into one row through two mappings.
func twoCounters(dedupe, first, second, more string) string {
	marker := ""
	if dedupe == "marker" {
		marker = "\n      markerFamily: seen"
	}
	return strings.NewReplacer("DEDUPE", dedupe+marker, "FIRST", first, "SECOND", second, "MORE", more).Replace(`
version: 1
name: counters
bigtable: {project: my-project, instance: my-instance}
tables:
  counters:
    families:
      totals: {aggregate: sum}
      cf: {}
      seen: {gc: {maxAge: 1080h}}
write:
  format: ndjson
  onFailure: dead-letter
MORE
  mappings:
    - name: first
      table: counters
      rowKey: event.counter
      timestamp: timestamp("2026-08-30T10:00:00Z")
      dedupe: DEDUPE
      mutations:
        - add: {totals: {sum: 'FIRST'}}
        - when: has(event.note)
          set: {cf: {note: event.note}}
    - name: second
      table: counters
      rowKey: event.counter
      timestamp: timestamp("2026-08-30T10:00:00Z")
      dedupe: DEDUPE
      mutations:
        - add: {totals: {sum: 'SECOND'}}
`)
}

// replayed applies the letters so far under a file, as btf replay does.
func (h *harness) replayed(file string) {
	h.t.Helper()
	p := parse(h.t, file)
	r, err := replay.NewReader(p, mapping.ServiceLimits(), false)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, l := range h.letters.letters {
		data, attributes := l.Encode()
		x, err := r.Read(&push.Message{Data: data, Attributes: attributes, Subscription: "projects/p/subscriptions/" + p.Name + "-dead-letter"}, time.Now())
		if err == nil {
			err = x.Apply(h.t.Context(), h.writer)
		}
		if err != nil {
			h.t.Errorf("replaying: %v", err)
		}
	}
}

// What one mapping is refused is replayed once it is mended, and counts, beside what the
// other mapping of the record wrote into the same row.
//
// covers: PLAN-07, FAIL-10
func TestAContributionRefusedBesideAnotherIsCountedAfterTheFix(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		bad := twoCounters(dedupe, "int(event.n)", "int(event.typo)", "")
		good := twoCounters(dedupe, "int(event.n)", "int(event.m)", "")
		event := []byte(`{"counter":"c","n":1000,"m":234}`)
		for _, way := range []string{"replay", "redelivery"} {
			h := newHarness(t, bad, counterFamilies(), nil)
			if status := h.deliver("m-1", event); status != 204 || len(h.letters.letters) != 1 {
				t.Fatalf("%d, %d letters", status, len(h.letters.letters))
			}
			if got := h.sums("counters")["c"]; got != 1000 {
				t.Errorf("%s, before: %d", dedupe, got)
			}
			for range 2 {
				if way == "replay" {
					h.replayed(good)
				} else {
					h.serve(parse(t, good))
					if status := h.deliver("m-1", event); status != 204 {
						t.Errorf("%s: %d", dedupe, status)
					}
				}
			}
			if got := h.sums("counters")["c"]; got != 1234 {
				t.Errorf("%s, %s: the sum is %d, want 1234", dedupe, way, got)
			}
		}
	}
}

// A bad record of a message counts when it is replayed; its neighbours are not counted for
// it.
func TestABadRecordsNeighboursKeepTheirContributions(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		h := newHarness(t, twoCounters(dedupe, "int(event.n)", "0", ""), counterFamilies(), nil)
		event := []byte(`{"counter":"c","n":"1oo"}` + "\n" + `{"counter":"c","n":"1"}`)
		if status := h.deliver("m-1", event); status != 204 {
			t.Fatal(status)
		}
		h.replayed(twoCounters(dedupe, `event.n == "1oo" ? 100 : int(event.n)`, "0", ""))
		if got := h.sums("counters")["c"]; got != 101 {
			t.Errorf("%s: the sum is %d, want 101", dedupe, got)
		}
	}
}

// What the service refuses is skipped by a later file: the redelivery counts nothing twice.
func TestASkipAfterARefusalCountsNothingTwice(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		file := twoCounters(dedupe, "int(event.n)", "0", "")
		h := newHarness(t, strings.Replace(file, "onFailure: dead-letter", "onFailure: fail", 1), counterFamilies(), func(h *harness) { h.service.CellBytes = 1000 })
		event := []byte(`{"counter":"c","n":2}` + "\n" + `{"counter":"c","n":7,"note":"` + strings.Repeat("x", 2000) + `"}` + "\n" + `{"counter":"c","n":3}`)
		if status := h.deliver("m-1", event); status == 204 {
			t.Fatal("acknowledged")
		}
		h.serve(parse(t, twoCounters(dedupe, "int(event.n)", "0", "  skip: size(event.?note.orValue(\"\")) > 1000")))
		for range 2 {
			if status := h.deliver("m-1", event); status != 204 {
				t.Fatalf("%d\n%s", status, h.log)
			}
		}
		if got := h.sums("counters")["c"]; got != 5 {
			t.Errorf("%s: the sum is %d, want 5", dedupe, got)
		}
	}
}

// A dead letter holds one contribution, with the token that it had: a letter that is
// applied while its message is delivered again counts once.
//
// covers: FAIL-09
func TestADeadLetterKeepsItsContribution(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		h := newHarness(t, twoCounters(dedupe, "int(event.n)", "0", ""), counterFamilies(), func(h *harness) { h.service.CellBytes = 1000 })
		event := []byte(`{"counter":"c","n":1}` + "\n" + `{"counter":"c","n":10,"note":"` + strings.Repeat("x", 2000) + `"}` + "\n" + `{"counter":"c","n":100}`)
		if status := h.deliver("m-1", event); status != 204 {
			t.Fatal(status)
		}
		if n := len(h.letters.letters); n != 1 {
			t.Fatalf("%s: %d letters", dedupe, n)
		}
		kind := map[string]deadletter.Kind{"window": deadletter.KindEntry, "marker": deadletter.KindCheckAndMutate}[dedupe]
		if l := h.letters.letters[0]; l.Kind != kind || l.Mapping != "first" || l.MessageID != "m-1" {
			t.Errorf("%s: %+v", dedupe, l.Kind)
		}
		if got := h.sums("counters")["c"]; got != 101 {
			t.Errorf("%s: the sum is %d, want 101", dedupe, got)
		}
	}
}

// Very many contributions to one row take few requests, also when all of them are there
// already.
//
// covers: SNK-42
func TestContributionsToOneRowShareRequests(t *testing.T) {
	records := 27_000
	if race.Enabled {
		records /= 10
	}
	for _, dedupe := range []string{"window", "marker"} {
		for _, explicit := range []bool{false, true} {
			t.Run(fmt.Sprint(dedupe, " explicit ids ", explicit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					file := countersFile(dedupe, "1")
					if !explicit {
						file = strings.Replace(file, "      dedupeId: event.id\n", "", 1)
					}
					w := newSimulation(t, 1, file, simulationOptions{families: counterFamilies(), delay: 10 * time.Millisecond})
					defer w.close()
					var data []byte
					for i := range records {
						data = fmt.Appendf(data, `{"id":"%d","counter":"c","at":"2026-08-30T10:15:30Z"}`+"\n", i)
					}
					for delivery := range 2 {
						began := time.Now()
						r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(functest.Delivery(t, "m-1", "2026-08-30T10:15:31Z", data))))
						out := httptest.NewRecorder()
						w.ServeHTTP(out, r)
						if took := time.Since(began); out.Code != http.StatusNoContent || took > 5*time.Second {
							t.Errorf("delivery %d: %d after %v", delivery, out.Code, took)
						}
					}
					if got := w.counted()["c"]; got != int64(records) {
						t.Errorf("the sum is %d, want %d", got, records)
					}
				})
			})
		}
	}
}
