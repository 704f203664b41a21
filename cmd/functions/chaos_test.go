package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

const chaosFile = `
version: 1
name: chaos
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, note: string}}
      totals: {aggregate: sum}
      seen: {gc: {maxAge: 1080h}}
write:
  format: json
  onFailure: dead-letter
  mappings:
    - name: order
      when: event.type == "order"
      table: orders
      rowKey: key("order", event.id)
      timestamp: timestamp(event.at)
      mutations:
        - set: {cf: {status: event.status, note: event.?note}}
          replace: older
    - name: pay
      when: event.type == "pay"
      table: orders
      rowKey: key("account", event.id)
      timestamp: timestamp("2026-08-30T00:00:00Z")
      dedupe: marker
      markerFamily: seen
      dedupeId: event.event
      mutations: [{add: {totals: {cents: int(event.cents)}}}]
    - name: view
      when: event.type == "view"
      table: orders
      rowKey: key("page", event.id)
      timestamp: timestamp("2026-08-30T00:00:00Z")
      dedupe: window
      dedupeId: event.event
      mutations: [{add: {totals: {views: 1}}}]
`

// model is what events must come to.
type model struct {
	random *rand.Rand
	made   int
	rows   map[string]map[string]string
	newest map[string]int // time of an order's newest event
	bad    map[string]bool
}

func newModel(seed uint64) *model {
	return &model{random: rand.New(rand.NewPCG(seed, 0)), rows: map[string]map[string]string{}, newest: map[string]int{}, bad: map[string]bool{}}
}

func (m *model) add(key, column string, n uint64) {
	if m.rows[key] == nil {
		m.rows[key] = map[string]string{}
	}
	if old := m.rows[key][column]; old != "" {
		n += binary.BigEndian.Uint64([]byte(old))
	}
	m.rows[key][column] = string(binary.BigEndian.AppendUint64(nil, n))
}

// event makes one event and enters it into the model.
func (m *model) event() []byte {
	m.made++
	name, id := fmt.Sprintf("e-%d", m.made), m.random.IntN(40)
	switch kind := m.random.IntN(20); {
	case kind < 8:
		at := m.random.IntN(1 << 30)
		for m.newest[fmt.Sprint(id)] == at {
			at++
		}
		if at > m.newest[fmt.Sprint(id)] {
			m.newest[fmt.Sprint(id)] = at
			m.rows[fmt.Sprintf("order#%d", id)] = map[string]string{"cf:status": name}
		}
		return fmt.Appendf(nil, `{"type":"order","event":"%s","id":%d,"status":"%s","at":"%s"}`, name, id, name,
			time.UnixMilli(int64(1_700_000_000_000+at)).UTC().Format(time.RFC3339Nano))
	case kind < 14:
		cents := m.random.IntN(1000)
		m.add(fmt.Sprintf("account#%d", id), "totals:cents", uint64(cents))
		return fmt.Appendf(nil, `{"type":"pay","event":"%s","id":%d,"cents":%d}`, name, id, cents)
	case kind < 19:
		m.add(fmt.Sprintf("page#%d", id), "totals:views", 1)
		return fmt.Appendf(nil, `{"type":"view","event":"%s","id":%d}`, name, id)
	}
	m.bad[name] = true
	switch m.random.IntN(40) {
	case 0: // Bigtable refuses it
		return fmt.Appendf(nil, `{"type":"order","event":"%s","id":"bad-%s","status":"x","at":"2026-08-30T00:00:00Z","note":"%s"}`, name, name, strings.Repeat("x", 1100<<10))
	case 1: // no JSON
		return fmt.Appendf(nil, `{"type":"pay","event":"%s"`, name)
	}
	return fmt.Appendf(nil, `{"type":"pay","event":"%s","id":%d,"cents":"much"}`, name, id)
}

// injectFaults injects faults into about 8 % of the next calls.
func (f *deployment) injectFaults(calls int, random *rand.Rand) {
	for at := 0; at < calls; at += 1 + random.IntN(24) {
		x := emulator.Fault{Skip: at, Count: 1}
		switch random.IntN(9) {
		case 0:
			x.Code = codes.Unavailable
		case 1, 2:
			x.Code, x.After = codes.Unavailable, true
		case 3:
			x.Code, x.Entries = codes.Aborted, []int{0, 3}
		case 4:
			x.Omit = []int{0, 1, 5}
		case 5:
			x.Code, x.RetryDelay = codes.ResourceExhausted, 50*time.Millisecond
		case 6:
			x.Code, x.After, x.Message = codes.Internal, true, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"
		case 7:
			x.Code = []codes.Code{codes.PermissionDenied, codes.FailedPrecondition, codes.NotFound}[random.IntN(3)]
		case 8:
			x.Delay = 200 * time.Millisecond
			if soak() && random.IntN(8) == 0 {
				x.Delay, x.Hang = 0, true // a minute until the attempt is given up
			}
		}
		f.emulator.Inject(x)
	}
}

// Two real processes, killed and started again and again in the middle of their work, and
// a Bigtable of which every twelfth call fails: every row is as its events say, sums
// included, and the dead letters are the events that can never be written.
//
// covers: SNK-01, SNK-35, SNK-37, PLAN-07, FAIL-20
func TestEveryRowIsRightAfterKillsAndFaults(t *testing.T) {
	events, within := 5000, 2*time.Minute
	switch {
	case soak():
		events, within = 50_000, 20*time.Minute
	case race.Enabled:
		events = 2000
	}
	f := newDeployment(t, chaosFile, 2)
	m := newModel(7)
	var all [][]byte
	for range events {
		all = append(all, m.event())
	}
	all = append(all, all[:events/20]...) // published twice
	f.injectFaults(events, m.random)

	done := make(chan struct{})
	kills := 0
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(100+f.roll(900)) * time.Millisecond):
				f.restart(kills % 2)
				kills++
			}
		}
	})
	for chunk := range slices.Chunk(all, 500) {
		f.publish("chaos-events", chunk...)
	}
	f.idle(within)
	close(done)
	killer.Wait()
	hits := 0
	for _, x := range f.emulator.Faults() {
		hits += x.Hits
	}
	f.emulator.ClearFaults()
	m.check(f)
	t.Logf("%d kills, %d faults, %+v, %d bad events", kills, hits, f.events.Counts(), len(m.bad))
	if kills < 2 || hits == 0 {
		t.Errorf("only %d kills and %d faults", kills, hits)
	}
}

func (f *deployment) roll(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

// check holds the table and the dead letters against the model.
func (m *model) check(f *deployment) {
	f.t.Helper()
	got := f.rows("orders")
	for key, want := range m.rows {
		row := got[key]
		maps.DeleteFunc(row, func(column, _ string) bool { return strings.HasPrefix(column, "seen:") })
		if !maps.Equal(row, want) {
			f.t.Errorf("row %s: %q, want %q", key, row, want)
		}
		delete(got, key)
	}
	for key := range got {
		f.t.Errorf("row %s: nothing writes it", key)
	}
	letters := map[string]bool{}
	for _, x := range f.cloud.Published("chaos-dead-letter") {
		l, err := deadletter.Decode(x.Data, x.Attributes)
		if err != nil {
			f.t.Error(err)
			continue
		}
		letters[eventOf(l)] = true
	}
	if !maps.Equal(letters, m.bad) {
		f.t.Errorf("dead letters of %d events, %d are bad", len(letters), len(m.bad))
	}
}

// eventOf finds the event of a dead letter.
func eventOf(l deadletter.Letter) string {
	if row, _, err := l.Row(); err == nil {
		return strings.TrimPrefix(string(row.RowKey), "order#bad-")
	}
	_, rest, _ := strings.Cut(string(l.Data), `"event":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

const raceFile = `
version: 1
name: racers
bigtable: {project: my-project, instance: my-instance}
tables:
  daily:
    idFrom: '"day-" + string(event.day)'
    idMatches: ^day-\d$
    create: if-needed
    families: {cf: {gc: {maxVersions: 1}}, more: {}, totals: {aggregate: sum}}
write:
  format: json
  mappings:
    - name: m
      table: daily
      rowKey: event.id
      timestamp: timestamp("2026-08-30T00:00:00Z")
      mutations: [{set: {cf: {v: event.id}, more: {v: event.id}}}]
`

// Eight processes that need the same tables make each of them once, and lose nothing.
//
// covers: TBL-04, TBL-05, TBL-16
// issue-row: 31, 36
func TestEightProcessesMakeEachTableOnce(t *testing.T) {
	f := newDeployment(t, raceFile, 8)
	var data [][]byte
	const events = 800
	for i := range events {
		data = append(data, fmt.Appendf(nil, `{"day":%d,"id":"row-%d"}`, i%2, i))
	}
	f.publish("racers-events", data...)
	f.idle(2 * time.Minute)
	if n := len(f.rows("day-0")) + len(f.rows("day-1")); n != events {
		t.Errorf("%d rows of %d events", n, events)
	}
	created, seen := 0, 0
	for _, c := range f.children {
		created += strings.Count(c.output(), `"tablesCreated":1`)
		if strings.Contains(c.output(), "deliveries acknowledged") {
			seen++
		}
		if strings.Contains(c.output(), `"severity":"ERROR"`) {
			t.Errorf("a process says:\n%s", c.output())
		}
	}
	if created != 2 || seen < 2 {
		t.Errorf("%d tables made by %d processes at work", created, seen)
	}
}
