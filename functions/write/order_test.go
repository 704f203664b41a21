package write_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

const orderFile = `
version: 1
name: states
bigtable: {project: my-project, instance: my-instance}
tables:
  states: {families: {cf: {columns: {status: string, total: int64}}}}
write:
  format: ndjson
  ordered: true
  mappings:
    - name: update
      when: has(event.at)
      table: states
      rowKey: event.id
      timestamp: timestamp(event.at)
      mutations:
        - when: event.?status.hasValue()
          set: {cf: {status: event.status, total: event.n}}
          replace: older
        - when: '!has(event.status)'
          deleteColumns: {cf: [status, total]}
          tombstone: true
    - name: chain
      when: '!has(event.at)'
      table: states
      rowKey: event.id
      mutations:
        - set: {cf: {status: event.status}}
          replace: older
`

// event is one state of a row: without a status the row is deleted.
type state struct {
	ID     string `json:"id"`
	At     string `json:"at,omitempty"`
	Status string `json:"status,omitempty"`
	N      int    `json:"n"`
}

func (s state) json() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// want is what a reader must see: the newest state, or the nulls of a deletion.
func (s state) want() map[string]string {
	if s.Status == "" {
		return map[string]string{"cf:status": "null", "cf:total": ""}
	}
	return map[string]string{"cf:status": s.Status, "cf:total": "\x00\x00\x00\x00\x00\x00" + string([]byte{byte(s.N >> 8), byte(s.N)})}
}

// Whatever the order of arrival, however often each arrives, alone or with others in one
// message: the newest event is what is read, also one that deletes.
//
// covers: SNK-06, SNK-07, SNK-09, SNK-10, SNK-13, SNK-43, PLAN-05
func TestTheNewestEventWinsInEveryOrder(t *testing.T) {
	h := newHarness(t, orderFile, plainFamilies("cf"), nil)
	const orders = 300
	newest := make([]state, orders)
	var wg sync.WaitGroup
	queue := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range queue {
				newest[i] = deliverShuffled(t, h, i)
			}
		})
	}
	for i := range orders {
		queue <- i
	}
	close(queue)
	wg.Wait()
	rows := h.rows("states")
	for i, s := range newest {
		if got, want := fmt.Sprintf("%q", rows[s.ID]), fmt.Sprintf("%q", s.want()); got != want {
			t.Errorf("order %d: %s, want %s", i, got, want)
		}
	}
}

// deliverShuffled delivers some states of one row and returns the newest.
func deliverShuffled(t *testing.T, h *harness, seed int) state {
	random := rand.New(rand.NewPCG(uint64(seed), 2))
	base := time.Date(2026, 8, 30, 10, 0, 0, 0, time.UTC)
	states := make([]state, 2+random.IntN(8))
	for n := range states {
		states[n] = state{ID: fmt.Sprintf("row-%d", seed), At: base.Add(time.Duration(n) * time.Millisecond).Format(time.RFC3339Nano), N: n}
		if random.IntN(3) > 0 {
			states[n].Status = fmt.Sprintf("status-%d", n)
		}
	}
	newest := states[len(states)-1]
	deliveries := append([]state{}, states...)
	for range random.IntN(5) {
		deliveries = append(deliveries, states[random.IntN(len(states))])
	}
	random.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
	for len(deliveries) > 0 {
		var lines []string
		for range 1 + random.IntN(3) {
			if len(deliveries) > 0 {
				lines = append(lines, deliveries[0].json())
				deliveries = deliveries[1:]
			}
		}
		if status := h.deliver("m", []byte(strings.Join(lines, "\n"))); status != 204 {
			t.Errorf("%d\n%s", status, h.log)
		}
	}
	return newest
}

// The records of one row in a message are applied in their order, as one entry or, where
// they do not fit into one, as several that await each other.
//
// covers: SNK-05, SNK-06, SNK-30
func TestAThousandRecordsOfOneRowEndInTheLast(t *testing.T) {
	for name, perEntry := range map[string]int{"as one entry": 99_999, "as many": 50} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, orderFile, plainFamilies("cf"), func(h *harness) { h.limits.Mutations = perEntry })
			var lines []string
			for n := range 1000 {
				lines = append(lines, fmt.Sprintf(`{"id":"row","status":"s-%d"}`, n))
			}
			if status := h.deliver("m-1", []byte(strings.Join(lines, "\n"))); status != 204 {
				t.Fatalf("%d\n%s", status, h.log)
			}
			if got := h.rows("states")["row"]["cf:status"]; got != "s-999" {
				t.Errorf("the row ends in %q", got)
			}
		})
	}
}

// Under ordered, Pub/Sub awaits each message of a key: a thousand updates, all of the same
// millisecond, end in the last, although calls fail and instances are killed.
//
// covers: SNK-09
func TestAThousandDependentUpdatesEndInTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1, orderFile, simulationOptions{families: plainFamilies("cf"), ordered: true})
		defer w.close()
		w.setFaults(faultRates{faults: 0.03})
		var messages []*pubsub.Message
		for n := range 1000 {
			for _, row := range []string{"a", "b"} {
				messages = append(messages, &pubsub.Message{OrderingKey: row, Data: fmt.Appendf(nil, `{"id":"%s","status":"s-%d"}`, row, n)})
			}
		}
		w.publish("states-events", messages...)
		for i := range 6 {
			time.Sleep(time.Duration(w.roll(20000)) * time.Millisecond)
			w.restart(i%2, orderFile)
		}
		w.idle()
		rows := w.read("states")
		if rows["a"]["cf:status"] != "s-999" || rows["b"]["cf:status"] != "s-999" {
			t.Errorf("%q after %+v", rows, w.events.Counts())
		}
	})
}
