package write_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

// bounded adds limits to a file.
func bounded(file, limits string) string {
	return strings.Replace(file, "write:\n", "write:\n  limits: {inFlight: {"+limits+"}}\n", 1)
}

// items is an event whose forEach makes n rows.
func items(n int) []byte {
	return []byte(`{"id":"e","items":[` + list(n) + "]}")
}

// blocked delivers data and returns once its first call of the method waits, which release
// lets go on; end returns the status.
func blocked(t *testing.T, file, blocking string, data []byte) (h *harness, release func(), end func() int) {
	t.Helper()
	var calls atomic.Int32
	waits, goes := make(chan struct{}), make(chan struct{})
	h = newHarness(t, file, counterFamilies(), func(h *harness) {
		h.service.CellBytes = 50_000
		h.call = func(method string) {
			if method == blocking && calls.Add(1) == 1 {
				close(waits)
				<-goes
			}
		}
	})
	status := make(chan int, 1)
	go func() { status <- h.deliver("first", data) }()
	select {
	case <-waits:
	case s := <-status:
		t.Fatalf("it ends with %d\n%s", s, h.log)
	}
	return h, func() { close(goes) }, func() int { return <-status }
}

// What waits until everything else is applied is counted while it waits.
func TestRowsThatGoLastKeepTheirReservation(t *testing.T) {
	file := strings.NewReplacer("rowKey: event.counter", "forEach: event.items\n      rowKey: string(item)",
		`bucket(timestamp(event.at), duration("1h"))`, `timestamp("2026-08-30T10:00:00Z")`).Replace(countersFile("window", "1"))
	h, release, end := blocked(t, bounded(file, "maxRequestBytes: 5MiB"), "MutateRows", items(2000))
	if status := h.deliver("second", items(2000)); status != http.StatusTooManyRequests {
		t.Errorf("beside one that holds most of the memory: %d", status)
	}
	release()
	if status := end(); status != http.StatusNoContent {
		t.Errorf("the first: %d\n%s", status, h.log)
	}
	if status := h.deliver("second", items(2000)); status != http.StatusNoContent {
		t.Errorf("alone: %d\n%s", status, h.log)
	}
}

// What is remembered of contributions under explicit ids, for as long as the message is
// worked on, is counted.
func TestRememberedContributionsAreReserved(t *testing.T) {
	file := strings.NewReplacer("rowKey: event.counter", `when: '!has(event.last)'`+"\n      rowKey: '\"c\"'", "dedupeId: event.id", "dedupeId: event.i", "    - when: has(event.note)\n          set: {cf: {note: event.note}}\n", "",
		`bucket(timestamp(event.at), duration("1h"))`, `timestamp("2026-08-30T10:00:00Z")`).Replace(countersFile("marker", "1")) + `
    - name: last
      when: has(event.last)
      table: counters
      rowKey: '"last"'
      mutations:
        - set: {cf: {last: string(event.last)}}
`
	ids := func(from, to int) (data []byte) {
		for i := from; i < to; i++ {
			data = fmt.Appendf(data, `{"i":%d}`+"\n", i)
		}
		return data
	}
	h, release, end := blocked(t, bounded(file, "maxRequestBytes: 7MiB"), "MutateRows", append(ids(0, 40_000), `{"last":1}`...))
	if status := h.deliver("second", ids(50_000, 51_000)); status != http.StatusTooManyRequests {
		t.Errorf("beside one that remembers much: %d", status)
	}
	release()
	if status := end(); status != http.StatusNoContent {
		t.Errorf("the first: %d\n%s", status, h.log)
	}
}

// Dead letters that are not published yet are counted.
func TestDeadLettersAreReserved(t *testing.T) {
	const file = `
version: 1
name: letters
bigtable: {project: my-project, instance: my-instance}
tables:
  counters:
    families:
      cf: {}
      seen: {gc: {maxAge: 1080h}}
write:
  format: ndjson
  onFailure: dead-letter
  mappings:
    - name: items
      when: has(event.items)
      table: counters
      forEach: event.items
      rowKey: string(item)
      mutations:
        - set: {cf: {note: event.note}}
    - name: last
      when: has(event.last)
      table: counters
      rowKey: '"last"'
      dedupe: marker
      markerFamily: seen
      mutations:
        - set: {cf: {last: string(event.last)}}
`
	large := `{"items":[` + list(80) + `],"note":"` + strings.Repeat("x", 100_000) + `"}` + "\n"
	small := `{"items":[` + list(400) + `],"note":"` + strings.Repeat("x", 20_000) + `"}`
	h, release, end := blocked(t, bounded(file, "maxRequestBytes: 22MiB"), "CheckAndMutateRow", []byte(large+`{"last":1}`))
	if status := h.deliver("second", []byte(small)); status != http.StatusTooManyRequests {
		t.Errorf("beside one with many letters: %d", status)
	}
	release()
	if status := end(); status != http.StatusNoContent || len(h.letters.letters) != 80 {
		t.Errorf("the first: %d, %d letters\n%s", status, len(h.letters.letters), h.log)
	}
	if status := h.deliver("second", []byte(small)); status != http.StatusNoContent {
		t.Errorf("alone: %d", status)
	}
}

// Dead letters of one message are bounded in bytes, too: rows can be far larger than the
// records that made them.
func TestTheDeadLettersOfOneMessageAreBoundedInBytes(t *testing.T) {
	file := strings.NewReplacer("rowKey: event.id", "forEach: event.items\n      rowKey: string(item)").Replace(ordersFile("ndjson", "dead-letter", "skip"))
	h := newHarness(t, file, plainFamilies("cf", "extra"), func(h *harness) { h.service.CellBytes = 1000 })
	status := h.deliver("m-1", []byte(`{"id":"e","items":[`+list(100)+`],"extra":"`+strings.Repeat("x", 200_000)+`"}`))
	if status != http.StatusNoContent || len(h.letters.letters) != 1 {
		t.Fatalf("%d, %d letters", status, len(h.letters.letters))
	}
	if l := h.letters.letters[0]; l.Kind != deadletter.KindRecord || l.Origin == nil || !l.Origin.Whole || l.Mapping != "" {
		t.Errorf("%v", l.Kind)
	}
}

// The bound holds for all letters of a message, those of what goes last included.
func TestTheDeadLettersOfWhatGoesLastCountWithTheOthers(t *testing.T) {
	file := strings.Replace(countersFile("window", "int(event.delta)"), "write:\n", "write:\n  limits: {consecutiveRejections: 1000000}\n", 1)
	h := newHarness(t, file, counterFamilies(), func(h *harness) { h.service.CellBytes = 100 })
	var data []byte
	for i := range 501 {
		data = fmt.Appendf(data, `{"counter":"c%d","id":"bad%d","at":"2026-08-30T10:15:30Z","delta":"much"}`+"\n", i, i)
		data = fmt.Appendf(data, `{"counter":"c%d","id":"large%d","at":"2026-08-30T10:15:30Z","delta":1,"note":"%0200d"}`+"\n", i, i, i)
	}
	status := h.deliver("m-1", data)
	if got := len(h.letters.letters); status != http.StatusNoContent || got != 501+1 || !h.letters.letters[got-1].Origin.Whole {
		t.Errorf("%d, %d letters", status, got)
	}
}

// list is the numbers below n.
func list(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return strings.TrimSuffix(b.String(), ",")
}
