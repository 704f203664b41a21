package write_test

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// A message of very many records is settled some at a time: memory, the log and the
// refusal do not grow with their number.
func TestVeryManyBadRecordsAreRefusedInLittleMemory(t *testing.T) {
	const records = 200_000
	for _, policy := range []string{"fail", "drop", "dead-letter"} {
		h := newHouse(t, ordersFile("ndjson", policy, "fail"), plainFamilies("cf", "extra"), nil)
		data := append(bytes.Repeat([]byte("1\n"), records), `{"id":"good","status":"A"}`...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		status := h.deliver("m-1", data)
		runtime.ReadMemStats(&after)
		if (status == http.StatusNoContent) != (policy != "fail") {
			t.Errorf("%s: %d", policy, status)
		}
		if h.rows("orders")["good"]["cf:status"] != "A" {
			t.Errorf("%s: the good record behind them is not written", policy)
		}
		if n := len(h.log.String()); n > 64<<10 {
			t.Errorf("%s: a log of %d bytes: %.500s", policy, n, h.log)
		}
		if want := fmt.Sprintf(`"failed":%d`, records); !strings.Contains(h.log.String(), want) {
			t.Errorf("%s: the log does not count %s", policy, want)
		}
		if policy == "dead-letter" && len(h.letters.letters) != records {
			t.Errorf("%d letters", len(h.letters.letters))
		}
		if live := int64(after.Sys) - int64(before.Sys); policy != "dead-letter" && live > 64<<20 {
			t.Errorf("%s: memory from the system grew by %d MiB", policy, live>>20)
		}
	}
}

// More records than are settled at once, and more mutations of a row than an entry
// takes: all count under the default identity, in every delivery once.
func TestEveryRecordOfALargeMessageCountsOnce(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		file := strings.Replace(countersFile(dedupe, "int(event.delta)"), "      dedupeId: event.id\n", "", 1)
		h := newHouse(t, file, counterFamilies(), func(h *house) { h.limits.Mutations = 700 })
		var data []byte
		const records = 2500
		for i := range records {
			data = fmt.Appendf(data, `{"counter":"c%d","at":"2026-08-30T10:15:30Z","delta":1}`+"\n", i%2)
		}
		for range 2 {
			if status := h.deliver("m-1", data); status != http.StatusNoContent {
				t.Fatalf("%s: %d\n%s", dedupe, status, h.log)
			}
		}
		if got := h.sums("counters"); got["c0"] != records/2 || got["c1"] != records/2 {
			t.Errorf("%s: sums %v, want %d each", dedupe, got, records/2)
		}
	}
}

// A row that is taken apart holds back the rows of its key that come after it.
func TestTheLastRecordWinsAlsoWhereARowIsTakenApart(t *testing.T) {
	h := newHouse(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *house) {
		h.limits.Mutations, h.service.CellBytes = 2, 1000
	})
	status := h.deliver("m-1", []byte(`{"id":"k","extra":"`+strings.Repeat("x", 2000)+`"}`+"\n"+
		`{"id":"k","status":"second"}`+"\n"+`{"id":"k","status":"third","total":3}`))
	if got := h.rows("orders")["k"]["cf:status"]; status != http.StatusNoContent || got != "third" || len(h.letters.letters) != 1 {
		t.Errorf("%d, status = %q, %d letters\n%s", status, got, len(h.letters.letters), h.log)
	}
}
