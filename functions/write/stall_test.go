package write_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

const twoTablesFile = `
version: 1
name: pair
bigtable: {project: my-project, instance: my-instance}
tables:
  slow: {families: {cf: {}}}
  quick: {families: {cf: {}}}
write:
  format: json
  mappings:
    - name: slow
      when: event.to == "slow"
      table: slow
      rowKey: event.id
      mutations: [{set: {cf: {v: event.id}}}]
    - name: quick
      when: event.to == "quick"
      table: quick
      rowKey: event.id
      mutations: [{set: {cf: {v: event.id}}}]
`

// push delivers one event to the first instance and returns the answer.
func (w *simulation) push(id string, data []byte) int {
	body, err := json.Marshal(map[string]any{
		"message":      map[string]any{"data": data, "messageId": id, "publishTime": "2026-08-30T10:15:31.456Z"},
		"subscription": "projects/my-project/subscriptions/pair-events",
	})
	if err != nil {
		w.t.Error(err)
		return 0
	}
	r, err := http.NewRequest(http.MethodPost, "http://function.local/", nil)
	if err != nil {
		w.t.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	status, _ := w.nodes[0].serve(r, body)
	return status
}

// answers are the answers of deliveries and when they came.
type answers struct {
	mu       sync.Mutex
	wg       sync.WaitGroup
	statuses map[int]int
	first    time.Time // acknowledgement
	last     time.Time
}

func (a *answers) add(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.statuses == nil {
		a.statuses = map[int]int{}
	}
	a.statuses[status]++
	if a.last = time.Now(); a.first.IsZero() && status == http.StatusNoContent {
		a.first = a.last
	}
}

func (w *simulation) flood(a *answers, to string, n, padding int) {
	for i := range n {
		id := fmt.Sprintf("%s-%d", to, i)
		event := fmt.Appendf(nil, `{"to":%q,"id":%q,"padding":%q}`, to, id, strings.Repeat("x", padding))
		a.wg.Go(func() { a.add(w.push(id, event)) })
	}
}

// longestProbe is how late the end of an outage is seen: the longest pause between
// attempts, with its jitter, and what the calls take.
const longestProbe = 10*time.Second + 200*time.Millisecond

// One table that does not answer for a minute holds up its own events only, and these no
// longer than until it is asked again.
//
// covers: SNK-22, SNK-25, SNK-34
func TestATableThatDoesNotAnswerForAMinuteHoldsUpOnlyItself(t *testing.T) {
	for name, fault := range map[string]emulator.Fault{
		"silent":      {Method: "MutateRows", Table: instance + "/tables/slow", Hang: true},
		"unavailable": {Method: "MutateRows", Table: instance + "/tables/slow", Code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSimulation(t, 1, twoTablesFile, simulationOptions{families: plainFamilies("cf")})
				defer w.close()
				outage := w.emulator.Inject(fault)
				start := time.Now()
				var slow, quick answers
				const events = 3000 // more than one table may hold
				w.flood(&slow, "slow", events, 0)
				time.Sleep(10 * time.Second)
				w.flood(&quick, "quick", events, 0)
				quick.wg.Wait()
				if quick.statuses[http.StatusNoContent] != events || quick.last.Sub(start) > 20*time.Second {
					t.Errorf("the other table: %v, the last after %v", quick.statuses, quick.last.Sub(start))
				}
				time.Sleep(time.Minute - time.Since(start))
				w.emulator.RemoveFault(outage)
				answers := time.Now()
				slow.wg.Wait()
				if slow.statuses[http.StatusNoContent] != events {
					t.Errorf("the slow table: %v", slow.statuses)
				}
				if late := slow.first.Sub(answers); late < 0 || late > longestProbe {
					t.Errorf("first acknowledged %v after the table answers again", late)
				}
				if n := len(w.read("slow")) + len(w.read("quick")); n != 2*events {
					t.Errorf("%d rows", n)
				}
			})
		})
	}
}

// Four calls hang and are never answered, and Bigtable is back after five seconds: every
// delivery is acknowledged within ten, none is refused.
//
// covers: SNK-34
func TestCallsThatHangDoNotOutlastTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1, twoTablesFile, simulationOptions{families: plainFamilies("cf")})
		defer w.close()
		outage := w.emulator.Inject(emulator.Fault{Hang: true})
		var slow, quick answers
		const events = 1000
		for range 8 { // the first calls of each table are small
			w.flood(&slow, "slow", 1, 0)
			w.flood(&quick, "quick", 1, 0)
			synctest.Wait()
		}
		w.flood(&slow, "slow", events, 0)
		w.flood(&quick, "quick", events, 0)
		time.Sleep(5 * time.Second)
		w.emulator.RemoveFault(outage)
		back := time.Now()
		slow.wg.Wait()
		quick.wg.Wait()
		for name, a := range map[string]*answers{"slow": &slow, "quick": &quick} {
			if a.statuses[http.StatusNoContent] != events+8 || len(a.statuses) != 1 || a.last.Sub(back) > 10*time.Second {
				t.Errorf("%s: %v, the last %v after the recovery", name, a.statuses, a.last.Sub(back))
			}
			if n := len(w.read(name)); n != events {
				t.Errorf("%s: %d rows", name, n)
			}
		}
	})
}

// A table that never answers ends in refusals before the function's timeout, and its
// deliveries in 429 or 503.
//
// covers: SNK-34
// issue-row: 23
func TestATableThatNeverAnswersEndsInRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1, twoTablesFile, simulationOptions{families: plainFamilies("cf")})
		defer w.close()
		w.emulator.Inject(emulator.Fault{Method: "MutateRows", Hang: true})
		start := time.Now()
		var slow answers
		w.flood(&slow, "slow", 3000, 0)
		slow.wg.Wait()
		if slow.statuses[http.StatusTooManyRequests] == 0 || slow.statuses[http.StatusServiceUnavailable] == 0 || len(slow.statuses) != 2 {
			t.Errorf("%v", slow.statuses)
		}
		if took := slow.last.Sub(start); took > 270*time.Second {
			t.Errorf("the last refusal after %v, the service's timeout is 290 s", took)
		}
	})
}

// Events as large as to fill what requests may take do not shut out those of another
// table, which come later and are small.
//
// covers: SNK-23, SNK-25
func TestLargeEventsOfASilentTableLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := strings.Replace(twoTablesFile, "format: json", "format: json\n  limits: {inFlight: {maxRequestBytes: 16MiB}}", 1)
		w := newSimulation(t, 1, file, simulationOptions{families: plainFamilies("cf")})
		defer w.close()
		outage := w.emulator.Inject(emulator.Fault{Method: "MutateRows", Table: instance + "/tables/slow", Hang: true})
		start := time.Now()
		var slow, later, quick answers
		w.flood(&slow, "slow", 100, 100<<10) // 17 fill the bound
		time.Sleep(20 * time.Second)
		w.flood(&later, "slow", 100, 100<<10)
		w.flood(&quick, "quick", 100, 0)
		quick.wg.Wait()
		if quick.statuses[http.StatusNoContent] != 100 || quick.last.Sub(start) > 31*time.Second {
			t.Errorf("the other table: %v, the last after %v", quick.statuses, quick.last.Sub(start))
		}
		later.wg.Wait()
		if later.statuses[http.StatusTooManyRequests] != 100 || later.last.Sub(start) > 31*time.Second {
			t.Errorf("more events of the silent table: %v, the last after %v", later.statuses, later.last.Sub(start))
		}
		time.Sleep(time.Minute - time.Since(start))
		w.emulator.RemoveFault(outage)
		slow.wg.Wait()
		if n := slow.statuses[http.StatusNoContent]; n == 0 || n+slow.statuses[http.StatusTooManyRequests] != 100 {
			t.Errorf("the silent table: %v", slow.statuses)
		}
		var after answers
		w.flood(&after, "slow", 10, 100<<10)
		after.wg.Wait()
		if after.statuses[http.StatusNoContent] != 10 {
			t.Errorf("once it answers: %v", after.statuses)
		}
	})
}

// A table that is merely slow, two seconds a call, does not delay the others, however many
// of its events come, small or large: half of theirs are acknowledged within two seconds.
//
// covers: SNK-22, SNK-25
func TestASlowTableDoesNotDelayTheOthers(t *testing.T) {
	paddings := []int{0, 10 << 10, 100 << 10, 200 << 10}
	if race.Enabled {
		paddings = paddings[:2]
	}
	for _, padding := range paddings {
		t.Run(fmt.Sprintf("events of %d KiB", padding>>10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSimulation(t, 1, twoTablesFile, simulationOptions{families: plainFamilies("cf")})
				defer w.close()
				w.emulator.Inject(emulator.Fault{Method: "MutateRows", Table: instance + "/tables/slow", Delay: 2 * time.Second})
				const clients, span = 700, 40 * time.Second
				var wg sync.WaitGroup
				var slow answers
				start := time.Now()
				for i := range clients {
					wg.Go(func() {
						for n := 0; time.Since(start) < span; n++ {
							id := fmt.Sprintf("slow-%d-%d", i, n)
							status := w.push(id, fmt.Appendf(nil, `{"to":"slow","id":%q,"padding":%q}`, id, strings.Repeat("x", padding)))
							if slow.add(status); status != http.StatusNoContent {
								time.Sleep(10 * time.Second) // the subscription's least backoff
							}
						}
					})
				}
				var took []time.Duration
				for n := 0; time.Since(start) < span; n++ {
					time.Sleep(50 * time.Millisecond)
					id, began := fmt.Sprintf("quick-%d", n), time.Now()
					if status := w.push(id, fmt.Appendf(nil, `{"to":"quick","id":%q}`, id)); status != http.StatusNoContent {
						t.Errorf("after %v: %d", time.Since(start), status)
					}
					took = append(took, time.Since(began))
				}
				wg.Wait()
				slices.Sort(took)
				t.Logf("the others: p50 %v, p99 %v of %d; the slow table: %v", took[len(took)/2], took[len(took)*99/100], len(took), slow.statuses)
				if took[len(took)/2] > 2*time.Second {
					t.Errorf("half of the others' events take over %v", took[len(took)/2])
				}
				if slow.statuses[http.StatusNoContent] < 100 {
					t.Errorf("the slow table: %v", slow.statuses)
				}
			})
		})
	}
}
