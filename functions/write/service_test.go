package write_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// One bad record of a thousand in an event: the others are applied, it alone is kept, and
// finding it costs few requests.
//
// covers: FAIL-02, FAIL-10, FAIL-11
// issue-row: 1, 4, 33
func TestOneBadRecordOfAThousandIsFoundAtLittleCost(t *testing.T) {
	run := func(bad int) (*harness, int64) {
		var calls atomic.Int64
		h := newHarness(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *harness) {
			h.service.CellBytes = 1000
			h.call = func(method string) {
				if method == "MutateRows" {
					calls.Add(1)
				}
			}
		})
		var lines []string
		for i := range 1000 {
			status := "ok"
			if i == bad {
				status = strings.Repeat("x", 2000)
			}
			lines = append(lines, fmt.Sprintf(`{"id":"row-%d","status":"%s"}`, i, status))
		}
		if status := h.deliver("m-1", []byte(strings.Join(lines, "\n"))); status != 204 {
			t.Fatalf("%d\n%s", status, h.log)
		}
		return h, calls.Load()
	}
	_, clean := run(-1)
	for _, bad := range []int{0, 317, 999} {
		h, calls := run(bad)
		if most := int64(2*math.Log2(1000) + 2); calls-clean > most {
			t.Errorf("record %d: %d requests beside %d of a clean event, want at most %d more", bad, calls, clean, most)
		}
		rows := h.rows("orders")
		if _, there := rows[fmt.Sprintf("row-%d", bad)]; len(rows) != 999 || there {
			t.Errorf("record %d: %d rows, its own there: %v", bad, len(rows), there)
		}
		if len(h.letters.letters) != 1 || h.letters.letters[0].Kind != deadletter.KindEntry {
			t.Errorf("record %d: letters %v", bad, h.letters.letters)
		}
	}
}

// Under onFailure: fail, the first confirmed rejection refuses the event.
//
// covers: FAIL-06, FAIL-13
func TestARejectionRefusesTheEventUnderFail(t *testing.T) {
	h := newHarness(t, ordersFile("ndjson", "fail", "fail"), plainFamilies("cf", "extra"), func(h *harness) { h.service.CellBytes = 1000 })
	if status := h.deliver("m-1", []byte(`{"id":"a","status":"x"}`+"\n"+`{"id":"b","status":"`+strings.Repeat("x", 2000)+`"}`)); status != 503 {
		t.Errorf("answered %d", status)
	}
	if !strings.Contains(h.log.String(), "mapping order") || !strings.Contains(h.log.String(), "InvalidArgument") {
		t.Errorf("the log says neither mapping nor status:\n%s", h.log)
	}
	if rows := h.rows("orders"); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
}

// repairFile is a pipeline with a literal and a computed table, created or not.
func repairFile(create string) string {
	return strings.ReplaceAll(`
version: 1
name: days
bigtable: {project: my-project, instance: my-instance}
tables:
  fixed: {create: CREATE, families: {cf: {gc: {maxVersions: 1}}, totals: {aggregate: sum}}}
  daily:
    idFrom: '"day-" + event.day'
    idMatches: ^day-\d+$
    create: CREATE
    families: {cf: {}}
write:
  format: ndjson
  onFailure: dead-letter
  repair: {initialBackoff: 5ms, maxBackoff: 10ms, maxAttempts: 3}
  mappings:
    - name: fixed
      when: has(event.id)
      table: fixed
      rowKey: event.id
      timestamp: timestamp("2026-08-30T00:00:00Z")
      mutations: [{set: {cf: {v: event.v}}}, {add: {totals: {sum: 1}}}]
    - name: daily
      when: has(event.day)
      table: daily
      rowKey: event.key
      mutations: [{set: {cf: {v: event.v}}}]
`, "CREATE", create)
}

// What a missing table comes to: repaired, or refused with a reason; never a dead letter.
//
// covers: TBL-01, TBL-02, TBL-03, TBL-06, TBL-07, TBL-11, TBL-12, TBL-13, TBL-14, FAIL-03
func TestAMissingTableIsMadeOrRefusedAndNeverDropped(t *testing.T) {
	for _, c := range []struct {
		name, create string
		fault        emulator.Fault // of CreateTable
		says         string         // the log of a refusal; "" for none
	}{
		{name: "made", create: "if-needed"},
		{name: "made at the second attempt", create: "if-needed", fault: emulator.Fault{Code: codes.Unavailable, Count: 1}},
		{name: "made by a call whose answer is lost", create: "if-needed", fault: emulator.Fault{Code: codes.Unavailable, Count: 1, After: true}},
		{name: "never made", create: "never", says: `tables.fixed.create is \"never\"`},
		{name: "without permission", create: "if-needed", fault: emulator.Fault{Code: codes.PermissionDenied}, says: "bigtable.tables.create"},
		{name: "without an instance", create: "if-needed", fault: emulator.Fault{Code: codes.NotFound}, says: "3 attempts at repair failed"},
		{name: "beyond the budget", create: "if-needed", fault: emulator.Fault{Code: codes.ResourceExhausted}, says: "3 attempts at repair failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, repairFile(c.create), nil, func(h *harness) { h.create = false })
			if c.fault.Code != codes.OK {
				c.fault.Method = "CreateTable"
				h.emulator.Inject(c.fault)
			}
			status := h.deliver("m-1", []byte(`{"id":"a","v":"1"}`))
			if refused := status != 204; refused != (c.says != "") {
				t.Errorf("answered %d\n%s", status, h.log)
			}
			if !strings.Contains(h.log.String(), c.says) {
				t.Errorf("the log does not say %q:\n%s", c.says, h.log)
			}
			if len(h.letters.letters) > 0 {
				t.Errorf("letters of a missing table: %v", h.letters.letters)
			}
			if c.says == "" {
				row := h.rows("fixed")["a"]
				if row["cf:v"] != "1" || binary.BigEndian.Uint64([]byte(row["totals:sum"])) != 1 {
					t.Errorf("the row is %q", row)
				}
			}
		})
	}
}

// A table that lacks a declared family gets it; its other families stay as they are.
//
// covers: TBL-08
func TestADeclaredFamilyIsAddedToATableThatExists(t *testing.T) {
	h := newHarness(t, repairFile("if-needed"), plainFamilies("cf", "other"), nil)
	if status := h.deliver("m-1", []byte(`{"id":"a","v":"1"}`)); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	if row := h.rows("fixed")["a"]; row["totals:sum"] == "" {
		t.Errorf("the row is %q", row)
	}
	if s := h.writer.Stats(); s.TablesCreated != 0 || s.FamiliesAdded != 1 {
		t.Errorf("%d tables created, %d families added", s.TablesCreated, s.FamiliesAdded)
	}
}

// A computed table's id is found for each record, before its row is; one that may not be
// is the record's failure, and no table is made of it.
//
// covers: SNK-14, SNK-15, SNK-44, TBL-15
func TestTablesAreComputedForEachRecord(t *testing.T) {
	h := newHarness(t, repairFile("if-needed"), plainFamilies("cf", "totals"), nil)
	lines := []string{
		`{"day":"1","key":"a","v":"1"}`, `{"day":"2","key":"a","v":"2"}`, `{"day":"1","key":"b","v":"3"}`,
		`{"day":"x","key":"a","v":"4"}`, `{"day":1,"key":"a","v":"5"}`, `{"day":null,"key":[],"v":"6"}`,
	}
	if status := h.deliver("m-1", []byte(strings.Join(lines, "\n"))); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	if one, two := h.rows("day-1"), h.rows("day-2"); one["a"]["cf:v"] != "1" || two["a"]["cf:v"] != "2" || one["b"]["cf:v"] != "3" || len(one)+len(two) != 3 {
		t.Errorf("%v %v", one, two)
	}
	if s := h.writer.Stats(); s.TablesCreated != 2 {
		t.Errorf("%d tables created", s.TablesCreated)
	}
	if len(h.letters.letters) != 3 {
		t.Fatalf("%d letters", len(h.letters.letters))
	}
	for _, l := range h.letters.letters {
		if l.Kind != deadletter.KindRecord || l.Mapping != "daily" || !strings.Contains(l.Error, "idFrom") && !strings.Contains(l.Error, "idMatches") {
			t.Errorf("a letter of mapping %q says %q", l.Mapping, l.Error)
		}
	}
}

const vocabularyFile = `
version: 1
name: words
bigtable: {project: my-project, instance: my-instance}
tables:
  counters: {families: {cf: {columns: {a: string, b: string}}, seen: {}, totals: {aggregate: sum}}}
write:
  format: ndjson
  mappings:
    - name: m
      table: counters
      rowKey: event.id
      timestamp: millis(timestamp(event.at))
      mutations:
        - when: has(event.a)
          set: {cf: {a: event.?a, b: event.?b}}
        - when: has(event.gone)
          deleteColumns: {cf: [a]}
        - when: has(event.family)
          deleteFamilies: [cf]
        - when: has(event.row)
          deleteRow: true
        - when: has(event.n)
          add: {totals: {sum: int(event.n)}}
        - when: has(event.sum)
          merge: {totals: {sum: base64.decode(event.sum)}}
`

// Every mutation of the vocabulary reaches Bigtable as what it is.
//
// covers: SNK-04, SNK-40, SNK-41, PLAN-04
func TestTheWholeVocabularyIsWritten(t *testing.T) {
	h := newHarness(t, vocabularyFile, counterFamilies(), nil)
	step := func(event string, want map[string]string) {
		t.Helper()
		if status := h.deliver("m", []byte(`{"id":"r","at":"2026-08-30T10:15:30Z",`+event+`}`)); status != 204 {
			t.Fatalf("%s: %d\n%s", event, status, h.log)
		}
		if got := h.rows("counters")["r"]; fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, want %q", event, got, want)
		}
	}
	step(`"a":"1","b":"2"`, map[string]string{"cf:a": "1", "cf:b": "2"})
	step(`"gone":1`, map[string]string{"cf:b": "2"})
	step(`"n":5`, map[string]string{"cf:b": "2", "totals:sum": int64Cell(5)})
	step(`"family":1`, map[string]string{"totals:sum": int64Cell(5)})
	step(`"sum":"AAAAAAAAAAI="`, map[string]string{"totals:sum": int64Cell(7)})
	step(`"row":1`, nil)
}

// A row without a key is the record's failure. A record that sets nothing is none: it
// writes nothing.
//
// covers: FAIL-15
func TestARowWithoutAKeyIsARecordsFailure(t *testing.T) {
	for event, want := range map[string]int{`"id":"r"`: 204, `"id":"","a":"1"`: 503, `"id":null,"a":"1"`: 503} {
		h := newHarness(t, vocabularyFile, counterFamilies(), nil)
		if status := h.deliver("m", []byte(`{"at":"2026-08-30T10:15:30Z",`+event+`}`)); status != want {
			t.Errorf("%s: %d, want %d", event, status, want)
		}
		if rows := h.rows("counters"); len(rows) != 0 {
			t.Errorf("%s: %q", event, rows)
		}
	}
}

// Two events of one millisecond are one version of a cell, of which the one applied last
// is read; a time finer than that is refused unless the file truncates it.
//
// covers: SNK-12
// issue-row: 34, 35
func TestEventsWithinAMillisecondAreOneVersion(t *testing.T) {
	h := newHarness(t, vocabularyFile, counterFamilies(), nil)
	for _, at := range []string{"2026-08-30T10:15:30.123456Z", "2026-08-30T10:15:30.123999Z"} {
		if status := h.deliver("m", []byte(`{"id":"r","at":"`+at+`","a":"`+at+`"}`)); status != 204 {
			t.Fatalf("%d\n%s", status, h.log)
		}
	}
	if got := h.rows("counters")["r"]["cf:a"]; got != "2026-08-30T10:15:30.123999Z" {
		t.Errorf("the cell is %q", got)
	}
	if n := h.versions("counters", "r"); n != 1 {
		t.Errorf("%d versions", n)
	}
	exact := newHarness(t, strings.Replace(vocabularyFile, "millis(timestamp(event.at))", "timestamp(event.at)", 1), counterFamilies(), nil)
	if status := exact.deliver("m", []byte(`{"id":"r","at":"2026-08-30T10:15:30.123456Z","a":"1"}`)); status != 503 || !strings.Contains(exact.log.String(), "millis(") {
		t.Errorf("%d\n%s", status, exact.log)
	}
}

// A bound that no request could keep is refused where it is written.
//
// covers: SNK-27
func TestLimitsBeyondARequestAreRefused(t *testing.T) {
	for _, limits := range []string{
		"{batch: {maxEntries: 100000}}", "{batch: {maxBytes: 257MiB}}", "{batch: {maxEntries: 0}}", "{batch: {concurrency: 0}}",
	} {
		file := strings.Replace(vocabularyFile, "format: ndjson", "format: ndjson\n  limits: "+limits, 1)
		_, err := pipeline.Parse([]byte(file), pipeline.Options{File: "pipeline.yaml"})
		if err == nil || !strings.Contains(err.Error(), "write.limits.batch") {
			t.Errorf("%s: %v", limits, err)
		}
	}
}
