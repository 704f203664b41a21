package write_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// counterModel draws a pipeline file and records, and knows what the sums must come to:
// each contribution, told by mapping, row and id, once.
type counterModel struct {
	random   *rand.Rand
	dedupe   string
	policy   string
	mappings []modelMapping
	counted  map[string]int64 // a contribution's value, by its id
	rows     map[string]string
	messages int
	records  int
}

// modelMapping is one mapping of the file.
type modelMapping struct {
	explicit bool // dedupeId: event.id
	forEach  bool // over the items of a record, each into its own row or all into one
}

func drawModel(seed uint64) *counterModel {
	m := &counterModel{random: rand.New(rand.NewPCG(seed, 9)), counted: map[string]int64{}, rows: map[string]string{}}
	m.dedupe = []string{"marker", "window"}[m.random.IntN(2)]
	m.policy = []string{"dead-letter", "fail", "drop"}[m.random.IntN(3)]
	explicit := m.random.IntN(2) == 0 // of all: a message without ids cannot be replayed when Pub/Sub has moved it
	for range 1 + m.random.IntN(3) {
		m.mappings = append(m.mappings, modelMapping{explicit: explicit, forEach: m.random.IntN(3) == 0})
	}
	return m
}

// file is the pipeline file; the mended one takes what the first refuses.
func (m *counterModel) file(mended bool) string {
	var b strings.Builder
	for i, mapping := range m.mappings {
		value := "int(event.n" + fmt.Sprint(i) + ")"
		if mended {
			value = fmt.Sprintf(`event.n%d == "bad" ? 100000 : int(event.n%[1]d)`, i)
		}
		fmt.Fprintf(&b, "    - name: m%d\n", i)
		if mapping.forEach {
			b.WriteString("      forEach: event.items\n")
			value = "(" + value + ") * item.times"
		}
		row := "event.counter"
		if mapping.forEach {
			row = "item.counter"
		}
		fmt.Fprintf(&b, "      table: counters\n      rowKey: %s\n      timestamp: timestamp(\"2026-08-30T10:00:00Z\")\n      dedupe: %s\n", row, m.dedupe)
		if m.dedupe == "marker" {
			b.WriteString("      markerFamily: seen\n")
		}
		if mapping.explicit {
			b.WriteString("      dedupeId: event.id\n")
		}
		fmt.Fprintf(&b, "      mutations:\n        - add: {totals: {sum: '%s'}}\n", value)
		if !mended { // a note that is too long is the service's to refuse
			b.WriteString("        - when: has(event.note)\n          set: {cf: {note: event.note}}\n")
		}
	}
	return strings.NewReplacer("POLICY", m.policy, "MAPPINGS", b.String()).Replace(`
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
  onFailure: POLICY
  mappings:
MAPPINGS`)
}

// message draws a message and enters its contributions. Records repeat within it and over
// messages, with equal values.
func (m *counterModel) message() *pubsub.Message {
	m.messages++
	var lines []string
	for range 1 + m.random.IntN(6) {
		id := m.records
		if m.random.IntN(6) == 0 && m.records > 0 {
			id = m.random.IntN(m.records)
		} else {
			m.records++
		}
		if m.random.IntN(25) == 0 {
			lines = append(lines, `{"id":`) // a malformed element keeps its place
			if m.policy == "fail" {
				lines = lines[:len(lines)-1] // and would never be mended
			}
		}
		lines = append(lines, m.record(id, len(lines)))
	}
	return &pubsub.Message{Data: []byte(strings.Join(lines, "\n"))}
}

// record makes the record of an id, at a place of the message at hand. What it holds is
// decided by the id alone.
func (m *counterModel) record(id, place int) string {
	r := rand.New(rand.NewPCG(uint64(id), 17))
	counter := fmt.Sprint("c", r.IntN(4))
	items, times := "", map[string]int64{}
	for range r.IntN(4) {
		c, n := fmt.Sprint("c", r.IntN(4)), int64(1+r.IntN(3))
		items += fmt.Sprintf(`,{"counter":%q,"times":%d}`, c, n)
		times[c] += n
	}
	line := fmt.Sprintf(`{"id":"%d","counter":%q,"items":[%s]`, id, counter, strings.TrimPrefix(items, ","))
	refused := m.policy != "dead-letter" && r.IntN(15) == 0 // by the service
	if refused {
		line += `,"note":"` + strings.Repeat("x", 2000) + `"`
	}
	for i, mapping := range m.mappings {
		text, value := fmt.Sprint(1+r.IntN(9)), int64(0)
		fmt.Sscan(text, &value)
		if r.IntN(12) == 0 {
			text, value = "bad", 100_000
		}
		line += fmt.Sprintf(`,"n%d":%q`, i, text)
		if m.policy == "drop" && (text == "bad" || refused) {
			continue // it is dropped, and nothing brings it back
		}
		identity := fmt.Sprintf("%d/%d", m.messages, place)
		if mapping.explicit {
			identity = fmt.Sprint("id ", id)
		}
		if !mapping.forEach {
			m.enter(i, counter, identity, value)
			continue
		}
		for c, n := range times {
			m.enter(i, c, identity, value*n)
		}
	}
	return line + "}"
}

func (m *counterModel) enter(mapping int, row, identity string, value int64) {
	key := fmt.Sprint(mapping, " ", row, " ", identity)
	m.counted[key], m.rows[key] = value, row
}

func (m *counterModel) sums() map[string]int64 {
	out := map[string]int64{}
	for key, value := range m.counted {
		out[m.rows[key]] += value
	}
	return out
}

// Whatever is bad, under every policy, with faults, kills, duplicates, a mended file and
// replays from both subscriptions: every sum is that of its contributions.
//
// covers: PLAN-07, PLAN-08, SNK-40, SNK-42, FAIL-08, FAIL-10
func TestSumsEqualTheModel(t *testing.T) {
	seeds := 3
	if soak() {
		seeds = 500
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sumsEqualTheModel(t, uint64(seed)) })
		})
	}
}

func sumsEqualTheModel(t *testing.T, seed uint64) {
	m := drawModel(seed)
	first, mended := m.file(false), m.file(true)
	moved := m.policy == "fail" && m.mappings[0].explicit && m.dedupe == "marker"
	attempts := 0
	if moved {
		attempts = 6
	}
	w := newSimulation(t, seed, first, simulationOptions{families: counterFamilies(), attempts: attempts, limits: emulator.Limits{CellBytes: 1000}})
	defer w.close()
	w.setFaults(faultRates{faults: 0.08, twice: 0.3, lost: 0.05})
	for i := range 4 {
		var messages []*pubsub.Message
		for range 30 {
			messages = append(messages, m.message())
		}
		w.publish("counters-events", messages...)
		time.Sleep(time.Duration(50+w.roll(2000)) * time.Millisecond)
		w.restart(i%2, first)
	}
	if m.policy == "fail" && !moved {
		time.Sleep(time.Minute)
		w.deploy(mended)
	}
	w.idle()
	w.setFaults(faultRates{faults: 0.08})
	for range 2 {
		w.replay(mended, false, "counters-dead-letter", "counters-undelivered") // what fails here stays where it is
	}
	w.setFaults(faultRates{})
	w.emulator.ClearFaults()
	for _, err := range w.replay(mended, false, "counters-dead-letter", "counters-undelivered") {
		if !strings.Contains(err.Error(), "JSON") { // a malformed element stays one
			t.Error(err)
		}
	}
	want := m.sums()
	for row, sum := range w.sums() {
		if sum != want[row] {
			t.Errorf("seed %d (%s, %s, %+v): %s is %d, want %d", seed, m.dedupe, m.policy, m.mappings, row, sum, want[row])
		}
		delete(want, row)
	}
	for row, sum := range want {
		if sum != 0 {
			t.Errorf("seed %d (%s, %s, %+v): %s is missing, want %d", seed, m.dedupe, m.policy, m.mappings, row, sum)
		}
	}
	if _, span := w.seen(); m.dedupe == "window" && span > tokenWindow {
		t.Logf("deliveries of one message %v apart: longer than a token holds", span)
	}
}
