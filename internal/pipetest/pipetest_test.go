package pipetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

const head = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64, price: "decimal(10,2)", day: date, clock: time, at: timestamp, ok: bool, rate: float64, doc: json}}
      totals: {aggregate: sum}
      seen: {}
  blobs: {key: bytes, families: {cf: {}}}
  daily:
    idFrom: '"orders-" + utcDate(timestamp(event.at))'
    idMatches: ^orders-\d{4}-\d{2}-\d{2}$
    families: {cf: {columns: {total: int64}}}
write:
  skip: event.?type.orValue("") == "heartbeat"
  onUnmatched: dead-letter
  onFailure: dead-letter
  mappings:
    - name: order
      when: event.?type.orValue("") == "order"
      table: orders
      rowKey: key("order", event.id)
      timestamp: timestamp(event.at)
      mutations:
        - set: {cf: {status: event.status, total: event.?total}}
          replace: older
        - when: event.?gone.orValue(false)
          deleteColumns: {cf: [price]}
          tombstone: true
        - when: event.?reset.orValue(false)
          deleteFamilies: [totals]
    - name: view
      when: event.?type.orValue("") == "view"
      table: orders
      rowKey: event.page
      timestamp: bucket(timestamp(event.at), duration("1h"))
      dedupe: marker
      markerFamily: seen
      mutations:
        - add: {totals: {views: event.delta}}
    - name: lines
      when: has(event.lines)
      forEach: event.lines
      table: daily
      rowKey: key(event.id, item.sku)
      mutations:
        - set: {cf: {total: item.qty}}
tests:
`

// suite loads head and tests.
func suite(t testing.TB, file string) (*Suite, *pipeline.Pipeline) {
	t.Helper()
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "orders.yaml"})
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	var w *mapping.Write
	if p.Write != nil {
		if w, err = mapping.Compile(p, mapping.ServiceLimits()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(p, w)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// printed runs the file's only test and prints its problems.
func printed(t testing.TB, file string) string {
	t.Helper()
	s, p := suite(t, file)
	if len(p.Tests) != 1 {
		t.Fatalf("%d tests", len(p.Tests))
	}
	var b strings.Builder
	for _, problem := range s.Run(p.Tests[0]) {
		fmt.Fprintln(&b, problem.Text)
		for _, l := range problem.Lines {
			fmt.Fprintln(&b, l)
		}
	}
	return b.String()
}

const orderMessage = `
  - name: t
    message: {publishTime: "2026-08-30T10:15:31Z", data: {type: order, id: a, at: "2026-08-30T10:15:30.123Z", status: PAID, total: 9007199254740993}}
    expect:
`

func TestATestPassesOnlyWhereEverythingIsAsExpected(t *testing.T) {
	const row = `
      rows:
        - table: orders
          rowKey: order#a
          timestamp: "2026-08-30T10:15:30.123Z"
          mutations:
            - set: {cf: {total: 9007199254740993, status: PAID}}
              replace: older
`
	for _, c := range []struct{ name, old, new, want string }{
		{"as expected, columns of a set in any order", "", "", ""},
		{"any time", `          timestamp: "2026-08-30T10:15:30.123Z"` + "\n", "", ""},
		{"another value", "status: PAID", "status: OPEN", `the row differs
  orders "order#a"
    deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
    set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
    deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
-   set cf:status = "OPEN" @ 2026-08-30T10:15:30.123Z
+   set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
`},
		{"a number that a double would round", "9007199254740993", "9007199254740992", `the row differs
  orders "order#a"
    deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
-   set cf:total = 9007199254740992 @ 2026-08-30T10:15:30.123Z
+   set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
    deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
    set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
`},
		{"another time", "10:15:30.123Z\"\n", "10:15:30.124Z\"\n", `the row differs
  orders "order#a"
-   deleteColumns cf:total [.., 2026-08-30T10:15:30.123Z]
-   set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.124Z
-   deleteColumns cf:status [.., 2026-08-30T10:15:30.123Z]
-   set cf:status = "PAID" @ 2026-08-30T10:15:30.124Z
+   deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
+   set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
+   deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
+   set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
`},
		{"without replace", "              replace: older\n", "", `the row differs
  orders "order#a"
+   deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
    set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
+   deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
    set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
`},
		{"a mutation too many, at any time", `          timestamp: "2026-08-30T10:15:30.123Z"
          mutations:`, "          mutations:\n            - deleteColumns: {cf: [price]}", `the row differs
  orders "order#a"
-   deleteColumns cf:price [.., the row's time]
    deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
    set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
    deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
    set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
`},
		{"another row", "order#a", "order#b", `the row is not written
- orders "order#b"
-   deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
-   set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
-   deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
-   set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
a row that the test does not expect
+ orders "order#a"
+   deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
+   set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
+   deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
+   set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
`},
		{"a value that its column does not take", "total: 9007199254740993, status", "total: x, status", "the expected value: int64 takes int, not string\n"},
		{"skipped", row, "\n      skipped: true\n", `not skipped
+ orders "order#a"
+   deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
+   set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
+   deleteColumns cf:total [.., 2026-08-30T10:15:30.122Z]
+   set cf:total = 9007199254740993 @ 2026-08-30T10:15:30.123Z
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := printed(t, head+orderMessage+strings.Replace(row, c.old, c.new, 1)); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// A test holds values: a conversion, which is what an expression needs, would be text here.
func TestAnExpectedValueOfAnotherTypeIsToldWhatToWrite(t *testing.T) {
	for _, c := range []struct{ column, wrong, says, works string }{
		{"total", `"1250"`, `int64 takes int, not string: take the quotes off`, `1250`},
		{"total", `int("1250")`, `int64 takes int, not string`, `1250`},
		{"ok", `"true"`, `bool takes bool, not string: take the quotes off`, `true`},
		{"rate", `"1.5"`, `float64 takes double or int, not string: take the quotes off`, `1.5`},
		{"rate", `true`, `float64 takes double or int, not bool`, `1.5`},
		{"status", `5`, `string takes text, not int: put it in quotes`, `"5"`},
		{"status", `true`, `string takes text, not bool: put it in quotes`, `"true"`},
		{"status", `{a: 1}`, `string takes text, not map: declare the column as json`, `"a"`},
		{"undeclared", `5`, `bytes takes bytes or text, not int: declare the column's encoding, or put the value in quotes`, `"5"`},
		{"at", `1764556800123`, `timestamp takes a timestamp or text, not int: write a time, as in "2026-08-30T10:15:30.123Z"`, `"2026-08-30T10:15:30.123Z"`},
	} {
		file := func(value string) string {
			return head + `
  - name: t
    message: {data: {type: heartbeat}}
    expect: {rows: [{table: orders, rowKey: a, mutations: [{set: {cf: {` + c.column + `: ` + value + `}}}]}]}
`
		}
		got, _, _ := strings.Cut(printed(t, file(c.wrong)), "\n")
		if got != "the expected value: "+c.says {
			t.Errorf("%s: %s: %q\nwant %q", c.column, c.wrong, got, c.says)
		}
		if got := printed(t, file(c.works)); strings.Contains(got, "the expected value") {
			t.Errorf("%s: %s: %s", c.column, c.works, got)
		}
	}
}

func TestRejectionsAreExpectedOneByOne(t *testing.T) {
	const message = `
  - name: t
    message: {data: {type: order, at: "2026-08-30T10:15:30.123Z", status: PAID}}
    expect: {rejected: [EXPECT]}
`
	const came = "+ rejected: mapping order: rowKey: no such key: id\n"
	for _, c := range []struct{ expect, want string }{
		{`{mapping: order, at: rowKey, error: "no such key: id"}`, ""},
		{`{mapping: order, error: "such key"}`, ""},
		{`{mapping: order, at: timestamp, error: such}`, "no such rejection\n- rejected: mapping order: timestamp: … such …\n" + came},
		{`{mapping: view, error: such}`, "no such rejection\n- rejected: mapping view: … such …\n" + came},
		{`{error: such}`, "no such rejection\n- rejected: … such …\n" + came},
		{`{mapping: order, error: "such key"}, {mapping: order, error: "such key"}`, "no such rejection\n- rejected: mapping order: … such key …\n"},
	} {
		if got := printed(t, head+strings.Replace(message, "EXPECT", c.expect, 1)); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.expect, got, c.want)
		}
	}
	if got := printed(t, head+strings.Replace(message, "rejected: [EXPECT]", "rows: []", 1)); got != "a rejection that the test does not expect\n"+came {
		t.Errorf("got\n%s", got)
	}
	const unmatched = `
  - name: t
    message: {data: {type: other}}
    expect: {rejected: [{error: no mapping takes}]}
`
	if got := printed(t, head+unmatched); got != "" {
		t.Errorf("a record that no mapping takes: %s", got)
	}
	skipped := strings.Replace(unmatched, "rejected: [{error: no mapping takes}]", "skipped: true", 1)
	if got := printed(t, strings.Replace(head, "onUnmatched: dead-letter", "onUnmatched: skip", 1)+skipped); got != "" {
		t.Errorf("a record that no mapping takes, skipped: %s", got)
	}
	if got := printed(t, head+skipped); !strings.Contains(got, "no mapping takes the record") {
		t.Errorf("dead-letter is not skipped: %q", got)
	}
}

func TestEveryKindOfMutationIsCompared(t *testing.T) {
	const message = `
  - name: t
    message:
      data:
        - {type: order, id: a, at: "2026-08-30T10:15:30.123Z", status: null, gone: true, reset: true}
        - {type: view, page: p, at: "2026-08-30T10:15:30.123Z", delta: -2}
        - {type: heartbeat}
        - {id: b, at: "2026-08-30T10:15:30.123Z", lines: [{sku: x, qty: 1}, {sku: z, qty: 2}]}
    expect:
      rows:
        - {table: orders-2026-08-30, rowKey: b#z, timestamp: "2026-01-01T00:00:00Z", mutations: [{set: {cf: {total: 2}}}]}
        - {table: daily, rowKey: b#x, mutations: [{set: {cf: {total: 1}}}]}
        - table: orders
          rowKey: order#a
          timestamp: "2026-08-30T10:15:30.123Z"
          mutations:
            - {set: {cf: {status: null}}, replace: older}
            - {deleteColumns: {cf: [price]}, tombstone: true}
            - deleteFamilies: [totals]
        - {table: orders, rowKey: p, timestamp: "2026-08-30T10:00:00Z", mutations: [{add: {totals: {views: -2}}}]}
`
	if got := printed(t, head+message); got != "" {
		t.Errorf("got\n%s", got)
	}
	for _, c := range []struct{ old, new string }{
		{"views: -2}}}", "views: -3}}}"},
		{", tombstone: true", ""},
		{"deleteFamilies: [totals]", "deleteFamilies: [cf]"},
		{"orders-2026-08-30, rowKey: b#z", "orders-2026-08-31, rowKey: b#z"},
		{"status: null}}, replace: older", "status: null}}, replace: all"},
	} {
		if got := printed(t, head+strings.Replace(message, c.old, c.new, 1)); got == "" {
			t.Errorf("%s passes", c.new)
		}
	}
}

const readsFile = `version: 1
name: reads
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string, total: int64}}}}
scans:
  archive:
    table: orders
    when: row.cf.status != "DRAFT"
    emit: {id: rowKey, status: row.cf.status, total: row.cf.?total}
    to: {log: {}}
changes:
  feed: {table: orders, appProfile: one, to: {log: {}}}
tests:
`

func TestRowsThatAScanReadsAreTested(t *testing.T) {
	const row = `
  - name: t
    row: {scan: archive, key: order#a, cells: {cf: {total: 9007199254740993, status: PAID}}}
    expect: {records: [{id: order#a, status: PAID, total: 9007199254740993}]}
`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"cells: {cf: {total: 9007199254740993, status: PAID}}}\n    expect: {records: [{id: order#a, status: PAID, total: 9007199254740993}]}",
			"cells: {cf: {status: DRAFT}}}\n    expect: {records: []}", ""},
		{"993}]}", "992}]}", "the records differ\n- {\"id\":\"order#a\",\"status\":\"PAID\",\"total\":9007199254740992}\n+ {\"id\":\"order#a\",\"status\":\"PAID\",\"total\":9007199254740993}\n"},
		{", status: PAID}}", "}}", "the records differ\n- {\"id\":\"order#a\",\"status\":\"PAID\",\"total\":9007199254740993}\na rejection that the test does not expect\n+ rejected: when: no such key: status\n"},
		{", status: PAID}}}\n    expect: {records: [{id: order#a, status: PAID, total: 9007199254740993}]}",
			"}}}\n    expect: {rejected: [{at: when, error: no such key}]}", ""},
		{", cells: {cf: {total: 9007199254740993, status: PAID}}", "", "the row has no cell, and a scan reads no such row: write cells\n"},
	} {
		if got := printed(t, readsFile+strings.Replace(row, c.old, c.new, 1)); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.new, got, c.want)
		}
	}
}

// A test states a change and the record that the stream makes of it: whole, without the entries
// that the filter leaves out, and none if nothing is left or the change is too large.
func TestRecordsOfChangesAreTested(t *testing.T) {
	const file = `version: 1
name: reads
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {total: int64}}, sums: {aggregate: sum}}}
changes:
  feed: {table: orders, appProfile: one, filter: {families: {exclude: [audit]}, dropEmpty: true}, maxRecordBytes: 1KiB, to: {log: {}}}
tests:
  - name: t
    change:
      changes: feed
      rowKey: order#1
      cluster: c1
      commitTime: "2026-08-30T10:15:31.5Z"
      tieBreaker: 7
      entries:
        - {kind: DELETE_FAMILY, family: audit}
        - {kind: SET_CELL, family: cf, qualifier: total, timestamp: "1970-01-01T00:00:01Z", value: 42}
        - {kind: DELETE_CELLS, family: cf, qualifier: a, range: {to: "1970-01-01T00:00:02Z"}}
        - {kind: ADD_TO_CELL, family: sums, qualifier: hits, timestamp: "1970-01-01T00:00:01Z", value: -3}
        - {kind: MERGE_TO_CELL, family: sums, qualifier: hits, timestamp: "1970-01-01T00:00:01Z", value: aGxs}
    expect:
      records:
        - rowKey: order#1
          rowKeyBase64: b3JkZXIjMQ==
          type: USER
          cluster: c1
          commitTime: "2026-08-30T10:15:31.5Z"
          tieBreaker: 7
          lowWatermark: "2026-01-01T00:00:00Z"
          entries:
            - {index: 1, kind: SET_CELL, family: cf, qualifier: total, qualifierBase64: dG90YWw=, timestamp: "1970-01-01T00:00:01Z", timestampMicros: 1000000, valueType: RAW_VALUE, valueBase64: AAAAAAAAACo=, value: 42}
            - {index: 2, kind: DELETE_CELLS, family: cf, qualifier: a, qualifierBase64: YQ==, range: {startBound: CLOSED, startMicros: 0, endBound: OPEN, endMicros: 2000000}}
            - {index: 3, kind: ADD_TO_CELL, family: sums, qualifier: hits, qualifierBase64: aGl0cw==, timestamp: "1970-01-01T00:00:01Z", timestampMicros: 1000000, valueType: INT64, value: -3}
            - {index: 4, kind: MERGE_TO_CELL, family: sums, qualifier: hits, qualifierBase64: aGl0cw==, timestamp: "1970-01-01T00:00:01Z", timestampMicros: 1000000, valueType: RAW_VALUE, valueBase64: aGxs}
`
	head, _, _ := strings.Cut(file, "    change:\n")
	short := func(entries, expect string) string {
		return head + "    change: {changes: feed, rowKey: a, type: GARBAGE_COLLECTION, entries: [" + entries + "]}\n    expect: " + expect + "\n"
	}
	large := `{kind: SET_CELL, family: cf, qualifier: a, timestamp: "1970-01-01T00:00:01Z", value: ` + strings.Repeat("x", 1024) + `}`
	for name, c := range map[string]struct{ file, want string }{
		"each kind":        {file, ""},
		"another value":    {strings.Replace(file, "value: 42}\n        - {kind: DELETE_CELLS", "value: 43}\n        - {kind: DELETE_CELLS", 1), "the records differ"},
		"nothing is left":  {short("{kind: DELETE_FAMILY, family: audit}", "{records: []}"), ""},
		"something comes":  {short("{kind: DELETE_FAMILY, family: cf}", "{records: []}"), `"type":"GARBAGE_COLLECTION","cluster":null`},
		"too large":        {short(large, "{rejected: [{error: maxRecordBytes}]}"), ""},
		"a record instead": {short(large, "{records: [{}]}"), "maxRecordBytes"},
		"no integer":       {short(`{kind: ADD_TO_CELL, family: sums, qualifier: hits, timestamp: "1970-01-01T00:00:01Z", value: x}`, "{records: []}"), "integer of 64 bits"},
		"an empty range":   {short(`{kind: DELETE_CELLS, family: cf, qualifier: a, range: {from: "1970-01-01T00:00:02Z", to: "1970-01-01T00:00:01Z"}}`, "{records: []}"), "ends before it begins"},
		"emit":             {strings.Replace(short("{kind: DELETE_FAMILY, family: cf}", `{records: [{a: a, k: DELETE_FAMILY}]}`), "to: {log: {}}", "emit: {a: change.rowKey, k: 'change.entries[0].kind'}, to: {log: {}}", 1), ""},
		"emit differs":     {strings.Replace(short("{kind: DELETE_FAMILY, family: cf}", `{records: [{a: b}]}`), "to: {log: {}}", "emit: {a: change.rowKey}, to: {log: {}}", 1), `+ {"a":"a"}`},
		"when":             {strings.Replace(short("{kind: DELETE_FAMILY, family: cf}", `{records: []}`), "to: {log: {}}", "when: change.type == 'USER', to: {log: {}}", 1), ""},
		"emit that fails":  {strings.Replace(short("{kind: DELETE_FAMILY, family: cf}", `{rejected: [{at: emit.a, error: no such key}]}`), "to: {log: {}}", "emit: {a: 'change.entries[0].value'}, to: {log: {}}", 1), ""},
	} {
		got := printed(t, c.file)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got\n%swant %q", name, got, c.want)
		}
	}
}
