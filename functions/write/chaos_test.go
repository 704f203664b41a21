package write_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

const shopFile = `
version: 1
name: shop
bigtable: {project: my-project, instance: my-instance}
tables:
  shop:
    families:
      cf: {columns: {status: string, total: int64, note: string}}
      totals: {aggregate: sum}
      seen: {gc: {maxAge: 1080h}}
  daily:
    idFrom: '"day-" + string(event.day)'
    idMatches: ^day-\d$
    create: if-needed
    families: {cf: {gc: {maxVersions: 1}, columns: {qty: int64}}}
write:
  format: ndjson
  onFailure: dead-letter
  mappings:
    - name: order
      when: event.type == "order"
      table: shop
      rowKey: key("order", event.id)
      timestamp: timestamp(event.at)
      mutations:
        - set: {cf: {status: event.status, total: int(event.total), note: event.?note}}
          replace: older
    - name: cancel
      when: event.type == "cancel"
      table: shop
      rowKey: key("order", event.id)
      timestamp: timestamp(event.at)
      mutations: [{deleteColumns: {cf: [status, total]}, tombstone: true}]
    - name: pay
      when: event.type == "pay"
      table: shop
      rowKey: key("account", event.account)
      timestamp: timestamp("2026-08-30T00:00:00Z")
      dedupe: marker
      markerFamily: seen
      dedupeId: event.event
      mutations: [{add: {totals: {cents: int(event.cents)}}}]
    - name: view
      when: event.type == "view"
      table: shop
      rowKey: key("page", event.page)
      timestamp: timestamp("2026-08-30T00:00:00Z")
      dedupe: window
      dedupeId: event.event
      mutations: [{add: {totals: {views: 1}}}]
    - name: line
      when: event.type == "lines"
      forEach: event.items
      table: daily
      rowKey: key(event.event, item.sku)
      timestamp: timestamp(event.at)
      mutations: [{set: {cf: {qty: int(item.qty)}}}]
`

// shop makes events, and the model of what they must come to.
type shop struct {
	random *rand.Rand
	made   int
	tables map[string]map[string]map[string]string // table, row, column
	newest map[string]int                          // of each order, the number of its newest event
	bad    map[string]bool                         // events that can never be written
}

func newShop(seed uint64) *shop {
	return &shop{random: rand.New(rand.NewPCG(seed, 3)), tables: map[string]map[string]map[string]string{}, newest: map[string]int{}, bad: map[string]bool{}}
}

func (s *shop) row(table, key string) map[string]string {
	if s.tables[table] == nil {
		s.tables[table] = map[string]map[string]string{}
	}
	if s.tables[table][key] == nil {
		s.tables[table][key] = map[string]string{}
	}
	return s.tables[table][key]
}

func int64Cell(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

func (s *shop) add(key, column string, n int64) {
	row := s.row("shop", key)
	if old := row[column]; old != "" {
		n += int64(binary.BigEndian.Uint64([]byte(old)))
	}
	row[column] = int64Cell(n)
}

// event makes one event and enters it into the model.
func (s *shop) event() string {
	s.made++
	e := map[string]any{"event": fmt.Sprintf("e-%d", s.made)}
	at := time.Date(2026, 8, 30, 0, 0, 0, 0, time.UTC).Add(time.Duration(s.random.IntN(1<<30)) * time.Millisecond)
	e["at"] = at.Format(time.RFC3339Nano)
	switch kind := s.random.IntN(20); {
	case kind < 8:
		s.order(e, int(at.UnixMilli()), kind < 6)
	case kind < 12:
		account, cents := fmt.Sprint(s.random.IntN(30)), s.random.IntN(1000)
		e["type"], e["account"], e["cents"] = "pay", account, cents
		s.add("account#"+account, "totals:cents", int64(cents))
	case kind < 15:
		page := fmt.Sprint(s.random.IntN(30))
		e["type"], e["page"] = "view", page
		s.add("page#"+page, "totals:views", 1)
	case kind < 18:
		s.lines(e)
	default:
		return s.broken(e)
	}
	return text(e)
}

// order sets or cancels an order. Two events of one order have different times, of which
// the later one wins.
func (s *shop) order(e map[string]any, at int, set bool) {
	id := fmt.Sprint(s.random.IntN(300))
	for s.newest[id] == at {
		at++
	}
	e["type"], e["id"], e["at"] = "cancel", id, time.UnixMilli(int64(at)).UTC().Format(time.RFC3339Nano)
	if set {
		e["type"], e["status"], e["total"] = "order", fmt.Sprintf("status-%d", s.made), s.made
	}
	if at < s.newest[id] {
		return
	}
	s.newest[id] = at
	row := s.row("shop", "order#"+id)
	if row["cf:status"], row["cf:total"] = "null", ""; set {
		row["cf:status"], row["cf:total"] = fmt.Sprintf("status-%d", s.made), int64Cell(int64(s.made))
	}
}

func (s *shop) lines(e map[string]any) {
	var items []map[string]any
	e["type"], e["day"] = "lines", s.random.IntN(4)
	for sku := range 1 + s.random.IntN(4) {
		items = append(items, map[string]any{"sku": fmt.Sprint(sku), "qty": s.made + sku})
		s.row(fmt.Sprintf("day-%d", e["day"]), fmt.Sprintf("%s#%d", e["event"], sku))["cf:qty"] = int64Cell(int64(s.made + sku))
	}
	e["items"] = items
}

// broken makes an event that can never be written, of one of four kinds.
func (s *shop) broken(e map[string]any) string {
	name := e["event"].(string)
	s.bad[name] = true
	e["type"], e["id"], e["status"], e["total"] = "order", "bad-"+name, "x", 1
	switch s.random.IntN(4) {
	case 0: // the mapping refuses it
		e["total"] = "much"
	case 1: // Bigtable refuses it
		e["note"] = name + " " + strings.Repeat("x", 2000)
	case 2: // a computed id that may not be
		e["type"], e["day"], e["items"] = "lines", 77, []any{map[string]any{"sku": "1", "qty": 1}}
	case 3: // no JSON
		return text(e) + "}"
	}
	return text(e)
}

func text(e map[string]any) string {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// messages are n events, one to four a message.
func (s *shop) messages(n int) []*pubsub.Message {
	var out []*pubsub.Message
	for done := 0; done < n; {
		var lines []string
		for range 1 + s.random.IntN(4) {
			lines = append(lines, s.event())
			done++
		}
		out = append(out, &pubsub.Message{Data: []byte(strings.Join(lines, "\n"))})
	}
	return out
}

// Whatever fails between Pub/Sub, two instances that are killed again and again and
// Bigtable: every row is as its events say, nothing is missing, and the dead letters are
// the events that can never be written, and no others.
//
// covers: SNK-01, SNK-35, SNK-37, SNK-44, TBL-03, TBL-05, TBL-15, FAIL-01, FAIL-08, FAIL-20
func TestEveryRowIsRightAfterChaos(t *testing.T) {
	seeds, events := 1, 5000
	if soak() {
		seeds, events = 5, 50_000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, uint64(seed), events) })
		})
	}
}

func chaos(t *testing.T, seed uint64, events int) {
	s := newShop(seed)
	families := counterFamilies()
	w := newSimulation(t, seed, shopFile, simulationOptions{families: families, limits: emulator.Limits{CellBytes: 1000}})
	defer w.close()
	w.setFaults(faultRates{faults: 0.08, twice: 0.05, lost: 0.02})
	const round = 500
	kills := 0
	for range events / round {
		w.publish("shop-events", s.messages(round)...)
		for range 2 {
			time.Sleep(time.Duration(w.roll(2000)) * time.Millisecond)
			w.restart(kills%2, shopFile)
			kills++
		}
		w.idle() // a backlog of hours would be beyond what a token covers
	}
	w.setFaults(faultRates{})
	w.emulator.ClearFaults()
	s.check(w)
	injected, span := w.seen()
	if span > tokenWindow {
		t.Errorf("deliveries of one message %v apart: sums under window may be wrong", span)
	}
	t.Logf("%d faults, %d kills, %+v, %d bad events; deliveries of one message %v apart at most", injected, kills, w.events.Counts(), len(s.bad), span)
}

// check holds tables and dead letters against the model.
func (s *shop) check(w *simulation) {
	w.t.Helper()
	for table, want := range s.tables {
		got := w.read(table)
		for key, row := range want {
			found := maps.Clone(got[key])
			maps.DeleteFunc(found, func(column, _ string) bool { return strings.HasPrefix(column, "seen:") })
			if !maps.Equal(found, row) {
				w.t.Errorf("%s, row %s: %q, want %q", table, key, found, row)
			}
			delete(got, key)
		}
		for key := range got {
			w.t.Errorf("%s, row %s: nothing writes it", table, key)
		}
	}
	letters := map[string]bool{}
	for _, m := range w.cloud.Published("shop-dead-letter") {
		l, err := deadletter.Decode(m.Data, m.Attributes)
		if err != nil {
			w.t.Error(err)
			continue
		}
		name := eventOf(l)
		if letters[name] = true; !s.bad[name] {
			w.t.Errorf("a dead letter of %q, which can be written: %s", name, l.Error)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.bad)) {
		if !letters[name] {
			w.t.Errorf("no dead letter of %s", name)
		}
	}
}

// eventOf finds the event of a dead letter, of a record or an entry.
func eventOf(l deadletter.Letter) string {
	if l.Kind == deadletter.KindEntry {
		row, _, err := l.Row()
		if err != nil {
			return err.Error()
		}
		return strings.TrimPrefix(string(row.RowKey), "order#bad-")
	}
	_, rest, _ := strings.Cut(string(l.Data), `"event":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}
