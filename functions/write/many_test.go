package write_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

// A message of very many records is settled some at a time: memory, the log and the
// refusal do not grow with their number.
func TestVeryManyBadRecordsAreRefusedInLittleMemory(t *testing.T) {
	records := 200_000
	if race.Enabled {
		records /= 10
	}
	for _, policy := range []string{"fail", "drop", "dead-letter"} {
		h := newHarness(t, ordersFile("ndjson", policy, "fail"), plainFamilies("cf", "extra"), nil)
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
		if policy == "dead-letter" && len(h.letters.letters) != 1 {
			t.Errorf("%d letters", len(h.letters.letters))
		}
		// The runtime asks the system for 64 MiB at a time, and for what it needs to manage them.
		if live := int64(after.Sys) - int64(before.Sys); live > 136<<20 && !race.Enabled {
			t.Errorf("%s: memory from the system grew by %d MiB", policy, live>>20)
		}
	}
}

// More records than are settled at once, and more mutations of a row than an entry
// takes: all count under the default identity, in every delivery once.
func TestEveryRecordOfALargeMessageCountsOnce(t *testing.T) {
	for _, dedupe := range []string{"window", "marker"} {
		file := strings.Replace(countersFile(dedupe, "int(event.delta)"), "      dedupeId: event.id\n", "", 1)
		h := newHarness(t, file, counterFamilies(), func(h *harness) { h.limits.Mutations = 700 })
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
	h := newHarness(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *harness) {
		h.limits.Mutations, h.service.CellBytes = 2, 1000
	})
	status := h.deliver("m-1", []byte(`{"id":"k","extra":"`+strings.Repeat("x", 2000)+`"}`+"\n"+
		`{"id":"k","status":"second"}`+"\n"+`{"id":"k","status":"third","total":3}`))
	if got := h.rows("orders")["k"]["cf:status"]; status != http.StatusNoContent || got != "third" || len(h.letters.letters) != 1 {
		t.Errorf("%d, status = %q, %d letters\n%s", status, got, len(h.letters.letters), h.log)
	}
}

// A message of which a thousand records can never be written leaves a letter for each; one
// more, and it is one letter, from which every record is replayed at its place.
func TestTheDeadLettersOfOneMessageAreBounded(t *testing.T) {
	file := strings.Replace(ordersFile("json", "dead-letter", "skip"), "event.id", `key(event.id, string(int(event.id) / event.n))`, 1)
	many := 40_000
	if race.Enabled {
		many /= 10
	}
	for bad, want := range map[int]int{1000: 1000, 1001: 1, many: 1} {
		h := newHarness(t, file, plainFamilies("cf", "extra"), nil)
		data := append([]byte(`[`), bytes.Repeat([]byte(`{"id":"7","n":0,"status":"B"},`), bad)...)
		data = append(data, `{"type":"other"},{"id":"8","n":1,"status":"A"}]`...)
		if status := h.deliver("m-1", data); status != http.StatusNoContent || h.rows("orders")["8#8"]["cf:status"] != "A" {
			t.Fatalf("%d bad records: %d\n%.2000s", bad, status, h.log)
		}
		if len(h.letters.letters) != want || !strings.Contains(h.log.String(), fmt.Sprintf(`"deadLettered":%d`, bad)) {
			t.Fatalf("%d bad records: %d letters\n%.2000s", bad, len(h.letters.letters), h.log)
		}
		if want > 1 {
			continue
		}
		l := h.letters.letters[0]
		replayed, attributes := l.Encode()
		r := replayer(t, strings.Replace(file, "event.n)", "(event.n + 1))", 1))
		x, err := r.Read(&push.Message{ID: "new", Data: replayed, Attributes: attributes, Subscription: lettersOf("orders")}, time.Now())
		if err != nil || len(x.Refused) > 0 || x.Skipped != 1 || len(x.Rows) != 2 || len(x.Rows[0].Parts) != bad || x.Rows[1].Parts[0].Record != bad+1 {
			t.Errorf("%d bad records: replayed %v, %d rows, %d refused", bad, err, len(x.Rows), len(x.Refused))
		}
	}
}

// What refuses a message leaves no letter, and neither do letters that cannot be kept
// acknowledge it.
func TestNoLetterIsPublishedBeforeAllAreKnown(t *testing.T) {
	h := newHarness(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), nil)
	data := append(bytes.Repeat([]byte("1\n"), 2500), `{"type":"other"}`...) // which refuses it
	if status := h.deliver("m-1", data); status != http.StatusServiceUnavailable || len(h.letters.letters) != 0 {
		t.Errorf("%d, %d letters", status, len(h.letters.letters))
	}
	h.letters.err = errors.New("no topic")
	if status := h.deliver("m-2", data[:5000]); status != http.StatusServiceUnavailable {
		t.Errorf("without a topic: %d", status)
	}
}

// A record that becomes more than it may, while it is decoded or mapped, is rejected alone,
// and what says so names the option.
func TestARecordThatBecomesTooMuchIsRejectedAlone(t *testing.T) {
	file := strings.Replace(ordersFile("ndjson", "dead-letter", "fail"), "format: ndjson", "format: ndjson\n  limits: {inFlight: {maxRecordBytes: 200KiB}}", 1)
	file = strings.Replace(file, "rowKey: event.id", "forEach: event.?keys.orValue([event.id])\n      rowKey: string(item)", 1)
	h := newHarness(t, file, plainFamilies("cf", "extra"), nil)
	good := `{"id":"%s","status":"A"}` + "\n"
	values := `{"id":"values","status":"A","x":[` + strings.Repeat("{},", 10_000) + "{}]}\n"
	rows := `{"status":"A","keys":[` + strings.Repeat("0,", 500) + "0]}\n"
	data := fmt.Sprintf(good, "first") + values + fmt.Sprintf(good, "second") + rows + fmt.Sprintf(good, "third")
	if status := h.deliver("m-1", []byte(data)); status != http.StatusNoContent {
		t.Fatalf("%d\n%s", status, h.log)
	}
	got := h.rows("orders")
	if len(got) != 3 || got["first"] == nil || got["second"] == nil || got["third"] == nil {
		t.Errorf("rows %v", got)
	}
	if len(h.letters.letters) != 2 {
		t.Fatalf("%d letters", len(h.letters.letters))
	}
	for _, l := range h.letters.letters {
		if !strings.Contains(l.Error, "204800 bytes in memory (limits.inFlight.maxRecordBytes)") {
			t.Errorf("%s", l.Error)
		}
	}
}
