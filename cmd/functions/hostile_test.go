package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

const hostileFile = `
version: 1
name: hostile
bigtable: {project: my-project, instance: my-instance}
tables:
  rows:
    families:
      cf: {columns: {v: string}}
      sums: {aggregate: sum}
write:
  format: %s
  onFailure: drop
  onUnmatched: skip
  mappings:
    - name: items
      when: has(event.items)
      forEach: event.items
      table: rows
      rowKey: '%s'
      mutations: [{set: {cf: {v: event.?v.orValue("x")}}}]
    - name: counts
      when: "!has(event.items)"
      table: rows
      rowKey: event.?id.orValue("none")
      timestamp: timestamp("2026-08-30T10:00:00Z")
      dedupe: %s
      mutations: [{add: {sums: {total: 1}}}]
`

// hostileShape makes a message of about n bytes.
type hostileShape struct {
	name   string
	format string
	key    string
	dedupe string
	quick  int // bytes outside the soak
	make   func(n int) []byte
}

// many repeats a part, separated, within a frame.
func many(before, part, between, after string) func(int) []byte {
	return func(n int) []byte {
		count := max(1, (n-len(before)-len(after))/(len(part)+len(between)))
		out := append(make([]byte, 0, n+64), before...)
		out = append(out, bytes.Repeat([]byte(part+between), count)...)
		return append(append(out, part...), after...)
	}
}

// numbered makes members or elements that all differ.
func numbered(before, format, after string) func(int) []byte {
	return func(n int) []byte {
		out := append(make([]byte, 0, n+64), before...)
		for i := 0; len(out) < n; i++ {
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, format, i)
		}
		return append(out, after...)
	}
}

var hostileShapes = []hostileShape{
	{"empty keys", "json", `"r"`, "none", 100_000, many("[", `{"":0}`, ",", "]")},
	{"empty records", "json", `"r"`, "none", 100_000, many("[", `{}`, ",", "]")},
	{"numbers for records", "json", `"r"`, "none", 100_000, many("[", `0`, ",", "]")},
	{"empty lists within one record", "json", `"r"`, "none", 1_000_000, many(`{"a":[`, `[]`, ",", "]}")},
	{"empty objects within one record", "json", `"r"`, "none", 1_000_000, many(`{"a":[`, `{}`, ",", "]}")},
	{"one-member objects within one record", "json", `"r"`, "none", 1_000_000, many(`{"a":[`, `{"":{}}`, ",", "]}")},
	{"deep", "json", `"r"`, "none", 100_000, many("[", strings.Repeat(`{"":[`, 200)+strings.Repeat(`]}`, 200), ",", "]")},
	{"deeper than is taken", "json", `"r"`, "none", 1_000_000, many("", `[`, "", "")},
	{"wide", "json", `"r"`, "none", 1_000_000, numbered("{", `"%d":0`, "}")},
	{"escapes", "json", `"r"`, "none", 1_000_000, many(`{"id":"`, `\u0041`, "", `"}`)},
	{"names of escapes", "json", `"r"`, "none", 1_000_000, numbered("{", `"\u0041%d":""`, "}")},
	{"one long text", "json", `"r"`, "none", 1_000_000, many(`{"v":"`, "x", "", `","items":[1]}`)},
	{"numbers for items", "json", `"row-" + string(item)`, "none", 1_000_000, many(`{"items":[`, "0", ",", "]}")},
	{"items of one key", "json", `"r"`, "none", 1_000_000, many(`{"items":[`, "0", ",", "]}")},
	{"items of many keys", "json", `"row-" + string(item)`, "none", 1_000_000, numbered(`{"items":[`, "%d", "]}")},
	{"a long text in each item's row", "json", `"row-" + string(item)`, "none", 1_000_000, numbered(`{"v":"`+strings.Repeat("x", 10_000)+`","items":[`, "%d", "]}")},
	{"counts of one key", "ndjson", `"r"`, "none", 100_000, many("", "{}", "\n", "")},
	{"counts under a window", "ndjson", `"r"`, "window", 100_000, many("", "{}", "\n", "")},
	{"counts of records under a window", "json", `"r"`, "window", 100_000, numbered("[", `{"id":"%d"}`, "]")},
}

// Whatever shape a message has, ten at a time of it fit the memory that is deployed, and
// end within their budget: what does not fit beside the others is refused and comes again.
func TestHostileMessagesStayWithinMemory(t *testing.T) {
	for _, s := range hostileShapes {
		t.Run(s.name, func(t *testing.T) {
			size := s.quick
			switch {
			case soak():
				size = 9_900_000
			case race.Enabled:
				size /= 20
			}
			sendHostile(t, s, 10, size)
		})
	}
}

// As many deliveries as Cloud Run lets in, all of tiny records, fit the memory that is
// deployed while Bigtable is healthy.
func TestAThousandDeliveriesOfTinyRecordsStayWithinMemory(t *testing.T) {
	size := 10_000
	if soak() {
		size = 100_000
	}
	deliveries := 1000
	if race.Enabled && !soak() {
		deliveries, size = 100, size/10
	}
	for _, s := range hostileShapes[:2] {
		sendHostile(t, s, deliveries, size)
	}
}

// sendHostile delivers a message many times at once, until each delivery is acknowledged or
// has used up its budget.
func sendHostile(t *testing.T, s hostileShape, deliveries, size int) {
	c := startFunction(t, fmt.Sprintf(hostileFile, s.format, s.key, s.dedupe))
	client := &http.Client{Timeout: 5 * time.Minute}
	defer client.CloseIdleConnections()
	body := envelope(1, s.make(size))
	var wg sync.WaitGroup
	var refused atomic.Int64
	var slowest atomic.Int64
	for range deliveries {
		wg.Go(func() {
			for {
				start := time.Now()
				status := post(client, c.url, body)
				took := int64(time.Since(start))
				for old := slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
				}
				if status == http.StatusNoContent {
					return
				}
				if status == http.StatusServiceUnavailable && soak() {
					t.Logf("refused after %v", time.Duration(took)) // its budget is over
					return
				}
				if status != http.StatusTooManyRequests && status != http.StatusRequestTimeout { // on a busy machine
					t.Errorf("answered %d", status)
					return
				}
				refused.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	peak := peakMiB(t, c.cmd.Process.Pid)
	t.Logf("peak RSS %d MiB, the slowest answer after %v, %d refusals", peak, time.Duration(slowest.Load()).Round(time.Millisecond), refused.Load())
	if peak > 256 && !race.Enabled {
		t.Errorf("peak RSS %d MiB, want at most 256", peak)
	}
	if took := time.Duration(slowest.Load()); took > 280*time.Second {
		t.Errorf("answered after %v, and the service's timeout is 290 s", took)
	}
}
