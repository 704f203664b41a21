package mapping

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

const ordersFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64, coupon: string, doc: json, at: timestamp}}
      other: {}
      totals: {aggregate: sum}
      seen: {gc: {maxAge: 960h}}
  daily:
    idFrom: '"orders-" + utcDate(timestamp(event.at))'
    idMatches: ^orders-\d{4}-\d{2}-\d{2}$
    create: if-needed
    families:
      cf: {columns: {total: int64}}
write:
  format: json
  onFailure: dead-letter
%s
`

func load(t testing.TB, write string, limits Limits) *Write {
	t.Helper()
	p, err := pipeline.Parse([]byte(fmt.Sprintf(ordersFile, indent(write))), pipeline.Options{File: "orders.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Compile(p, limits)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}

var published = time.Date(2026, 8, 30, 10, 15, 31, 456789e3, time.UTC)

func run(w *Write, records ...string) *Result {
	return w.Map(&expr.Message{ID: "m-1", PublishTime: published}, decoded(records...), published.Add(time.Second))
}

func decoded(records ...string) []record.Record {
	var decoder record.Decoder
	var all []record.Record
	for _, r := range records {
		all = append(all, decoder.JSON([]byte(r))...)
	}
	return all
}

// text prints rows the way explain does: key, then a mutation a line.
func text(rows []*Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s %s\n", r.Table.Table, Key(r.Schema, r.Entry.RowKey))
		for _, l := range Lines(r.Schema, r.Entry) {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	return b.String()
}

func rejections(r *Result) string {
	var out []string
	for _, x := range r.Rejected {
		out = append(out, fmt.Sprintf("%d %s", x.Record, x.Error()))
	}
	return strings.Join(out, "\n")
}

// covers: SQL-18, SQL-21, SQL-25
func TestRows(t *testing.T) {
	for _, c := range []struct{ name, write, record, want string }{
		{"set in file order at the publish time, to the millisecond", `
mappings:
  - name: a
    table: orders
    rowKey: key("order", event.id)
    mutations:
      - set: {cf: {status: event.status, total: int(event.total)}}
`, `{"id":7,"status":"PAID","total":"100"}`, `
orders "order#7"
  set cf:status = "PAID" @ 2026-08-30T10:15:31.456Z
  set cf:total = 100 @ 2026-08-30T10:15:31.456Z
`},
		{"null is written, absent is not", `
mappings:
  - name: a
    table: orders
    rowKey: event.id
    mutations:
      - set: {cf: {status: event.status, total: event.?total, coupon: event.?none}}
`, `{"id":"x","status":null,"total":null}`, `
orders "x"
  set cf:status = null @ 2026-08-30T10:15:31.456Z
  set cf:total = null @ 2026-08-30T10:15:31.456Z
`},
		{"replace, deletes and tombstone around the record's time", `
mappings:
  - name: a
    table: orders
    rowKey: event.id
    timestamp: timestamp(event.at)
    mutations:
      - set: {cf: {status: event.status}}
        replace: older
      - set: {cf: {coupon: event.status}}
        replace: all
      - deleteColumns: {cf: [total]}
      - deleteColumns: {cf: [doc]}
        tombstone: true
      - deleteColumns: {other: [w]}
        from: timestamp("2026-01-01T00:00:00Z")
        to: timestamp("2026-02-01T00:00:00Z")
      - deleteColumns: {other: [z]}
        versions: all
      - deleteFamilies: [other]
      - deleteRow: true
        when: event.gone
`, `{"id":"x","status":"S","at":"2026-08-30T10:15:30.123Z","gone":true}`, `
orders "x"
  deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
  set cf:status = "S" @ 2026-08-30T10:15:30.123Z
  deleteColumns cf:coupon
  set cf:coupon = "S" @ 2026-08-30T10:15:30.123Z
  deleteColumns cf:total [.., 2026-08-30T10:15:30.123Z]
  deleteColumns cf:doc [.., 2026-08-30T10:15:30.123Z]
  set cf:doc = null @ 2026-08-30T10:15:30.123Z
  deleteColumns other:w [2026-01-01T00:00:00.000Z, 2026-01-31T23:59:59.999Z]
  deleteColumns other:z
  deleteFamilies other
  deleteRow
`},
		{"keep-latest replaces by a null too, and every cell has the record's time", `
mappings:
  - name: a
    table: orders
    rowKey: event.id
    timestamp: timestamp(event.at)
    mutations:
      - set: {cf: {status: event.status, total: event.total}}
        replace: all
`, `{"id":"x","status":null,"total":7,"at":"2026-08-30T10:15:30.123Z"}`, `
orders "x"
  deleteColumns cf:status
  set cf:status = null @ 2026-08-30T10:15:30.123Z
  deleteColumns cf:total
  set cf:total = 7 @ 2026-08-30T10:15:30.123Z
`},
		{"replace: older at the epoch deletes nothing", `
mappings:
  - name: a
    table: orders
    rowKey: event.id
    timestamp: timestamp("1970-01-01T00:00:00Z")
    mutations:
      - set: {cf: {status: '"S"'}}
        replace: older
`, `{"id":"x"}`, `
orders "x"
  set cf:status = "S" @ 1970-01-01T00:00:00.000Z
`},
		{"a row for each item, in a computed table", `
mappings:
  - name: lines
    forEach: event.items.filter(i, i.qty > 0)
    table: daily
    rowKey: key(event.id, item.sku)
    mutations:
      - set: {cf: {total: item.qty}}
`, `{"id":"o","at":"2026-08-30T23:59:59Z","items":[{"sku":"a","qty":1},{"sku":"b","qty":0},{"sku":"c","qty":3}]}`, `
orders-2026-08-30 "o#a"
  set cf:total = 1 @ 2026-08-30T10:15:31.456Z
orders-2026-08-30 "o#c"
  set cf:total = 3 @ 2026-08-30T10:15:31.456Z
`},
		{"each mapping that holds applies, one entry for a row", `
mappings:
  - name: a
    when: event.type == "x"
    table: orders
    rowKey: event.id
    mutations:
      - set: {cf: {status: '"A"'}}
  - name: b
    table: orders
    rowKey: event.id
    mutations:
      - set: {cf: {coupon: '"B"'}}
  - name: c
    when: event.type == "y"
    table: orders
    rowKey: event.id
    mutations:
      - deleteRow: true
`, `{"id":"x","type":"x"}`, `
orders "x"
  set cf:status = "A" @ 2026-08-30T10:15:31.456Z
  set cf:coupon = "B" @ 2026-08-30T10:15:31.456Z
`},
		{"aggregates", `
mappings:
  - name: a
    table: orders
    rowKey: event.id
    timestamp: bucket(timestamp(event.at), duration("1h"))
    mutations:
      - add: {totals: {views: event.delta}}
      - merge: {totals: {views: 'b"\x00\x00\x00\x00\x00\x00\x00\x05"'}}
`, `{"id":"x","at":"2026-08-30T10:15:30.123Z","delta":-3}`, `
orders "x"
  add totals:views += -3 @ 2026-08-30T10:00:00.000Z
  merge totals:views <- 0x0000000000000005 @ 2026-08-30T10:00:00.000Z
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			result := run(load(t, c.write, ServiceLimits()), c.record)
			if got := rejections(result); got != "" {
				t.Fatal(got)
			}
			if got := text(result.Rows); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%swant%s", got, c.want)
			}
		})
	}
}

const simple = `
skip: event.?skip.orValue(false)
mappings:
  - name: m
    when: event.?take.orValue(true)
    table: orders
    rowKey: event.id
    timestamp: timestamp(event.?at.orValue("2026-08-30T10:15:30.123Z"))
    mutations:
      - set: {cf: {total: event.total}}
`

func TestARecordThatFailsNamesMappingAndPlaceAndLeavesItsNeighbours(t *testing.T) {
	w := load(t, simple, ServiceLimits())
	for _, c := range []struct{ bad, want string }{
		{`{"total":1}`, "1 mapping m: rowKey: no such key: id"},
		{`{"id":7,"total":1}`, "1 mapping m: rowKey: string takes text, not int"},
		{`{"id":"","total":1}`, "1 mapping m: rowKey: a row key of 0 bytes; Bigtable takes 1 to 4096"},
		{`{"id":"` + strings.Repeat("k", 5000) + `","total":1}`, "1 mapping m: rowKey: a row key of 5000 bytes"},
		{`{"id":null,"total":1}`, "1 mapping m: rowKey: is null"},
		{`{"id":"x","total":"SECRET"}`, "1 mapping m: mutations[0].set.cf.total: int64 takes int"},
		{`{"id":"x","total":1.5}`, "1 mapping m: mutations[0].set.cf.total: int64 takes int"},
		{`{"id":"x","total":9223372036854775808}`, "1 mapping m: mutations[0].set.cf.total:"},
		{`{"id":"x","total":18446744073709551616}`, "1 an integer of more than 64 bits (send it as a string)"},
		{`{"id":"x","total":1,"at":"yesterday"}`, "1 mapping m: timestamp: timestamp() takes RFC 3339 text such as 2006-01-02T15:04:05.000Z; the text is not one"},
		{`{"id":"x","total":1,"at":"2026-08-30T10:15:30.1234Z"}`, "1 mapping m: timestamp: a time finer than a millisecond: truncate it with millis(…)"},
		{`{"id":"x","total":1,"at":"1969-12-31T23:59:59Z"}`, "1 mapping m: timestamp: a time before 1970"},
		{`{"id":"x","total":1,"take":"yes"}`, "1 mapping m: when: is string, and this place takes a bool"},
		{`{"id":"x","total":1,"skip":7}`, "1 skip: is int, and this place takes a bool"},
		{`{"id":"x","total":1`, "1 JSON that ends too early"},
		{`{"id":"x","id":"y"}`, "1 duplicate key at offset 10"},
		{`7`, "1 mapping"},
	} {
		result := run(w, `{"id":"first","total":1}`, c.bad, `{"id":"last","total":3}`)
		if got := rejections(result); !strings.HasPrefix(got, c.want) && !(c.want == "1 mapping" && got != "") {
			t.Errorf("%s: %s\nwant %s", c.bad, got, c.want)
		} else if strings.Contains(got, "SECRET") {
			t.Errorf("%s quotes the record", got)
		}
		if len(result.Rows) != 2 || string(result.Rows[0].Entry.RowKey) != "first" || string(result.Rows[1].Entry.RowKey) != "last" {
			t.Errorf("%s: its neighbours became\n%s", c.bad, text(result.Rows))
		}
	}
}

// covers: SNK-03
func TestSkippedAndUnmatchedRecordsAreTold(t *testing.T) {
	result := run(load(t, simple, ServiceLimits()), `{"skip":true}`, `{"id":"x","total":1}`, `{"take":false}`)
	if result.Skipped != 1 || !reflect.DeepEqual(result.Unmatched, []int{2}) || len(result.Rows) != 1 || len(result.Rejected) != 0 {
		t.Errorf("%+v", result)
	}
}

func TestAMappingThatFailsOnOneItemWritesNoneOfTheRecord(t *testing.T) {
	w := load(t, `
mappings:
  - name: lines
    forEach: event.items
    table: orders
    rowKey: item.sku
    mutations:
      - set: {cf: {total: item.qty}}
  - name: head
    table: orders
    rowKey: event.id
    mutations:
      - set: {cf: {status: '"S"'}}
`, ServiceLimits())
	result := run(w, `{"id":"o","items":[{"sku":"a","qty":1},{"sku":"b"}]}`)
	if got, want := rejections(result), "0 mapping lines: mutations[0].set.cf.total: no such key: qty"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := text(result.Rows), "orders \"o\"\n  set cf:status = \"S\" @ 2026-08-30T10:15:31.456Z\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRecordsOfOneRowAreMergedInOrderAndCanBeTakenApart(t *testing.T) {
	w := load(t, simple, ServiceLimits())
	result := run(w, `{"id":"x","total":1}`, `{"id":"y","total":2}`, `{"id":"x","total":3}`)
	if len(result.Rows) != 2 || len(result.Rows[0].Entry.Mutations) != 2 {
		t.Fatalf("\n%s", text(result.Rows))
	}
	first, last := result.Rows[0].Halves()
	if len(first.Parts) != 1 || first.Parts[0].Record != 0 || len(last.Parts) != 1 || last.Parts[0].Record != 2 || last.Parts[0].End != 1 {
		t.Fatalf("parts %+v and %+v", first.Parts, last.Parts)
	}
	joined := append(slices.Clip(first.Entry.Mutations), last.Entry.Mutations...)
	for i, m := range result.Rows[0].Entry.Mutations {
		if !proto.Equal(m, joined[i]) {
			t.Errorf("mutation %d differs: %v, %v", i, m, joined[i])
		}
	}
}

func TestWhatTheServiceWouldRefuseIsRefusedOrNotMerged(t *testing.T) {
	limits := ServiceLimits()
	limits.Mutations, limits.CellBytes = 2, 10
	w := load(t, `
mappings:
  - name: m
    table: orders
    rowKey: event.id
    mutations:
      - set: {cf: {status: event.a}}
      - set: {cf: {coupon: event.?b}}
      - set: {cf: {total: event.?c}}
`, limits)
	result := run(w, `{"id":"x","a":"12345678901"}`, `{"id":"x","a":"1","b":"2","c":3}`, `{"id":"x","a":"1"}`, `{"id":"x","a":"2","b":"2"}`, `{"id":"x","a":"3"}`)
	want := "0 mapping m: mutations[0].set.cf.status: a cell of 11 bytes; Bigtable takes at most 10\n" +
		"1 mapping m: mutations: 3 mutations of one row; Bigtable takes at most 2"
	if got := rejections(result); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if len(result.Rows) != 3 {
		t.Errorf("merged over the limit:\n%s", text(result.Rows))
	}
	limits = ServiceLimits()
	limits.EntryBytes = 100
	w = load(t, simple, limits)
	if result := run(w, `{"id":"`+strings.Repeat("k", 99)+`","total":1}`); !strings.Contains(rejections(result), "an entry of") {
		t.Errorf("an entry over the limit: %s", rejections(result))
	}
	none := load(t, `
mappings:
  - name: m
    table: orders
    rowKey: event.id
    mutations:
      - set: {cf: {status: event.?a}}
`, ServiceLimits())
	if got := run(none, `{"id":"x"}`); rejections(got) != "" || len(got.Rows)+len(got.Unmatched) != 0 {
		t.Errorf("a record that sets nothing: %s %+v", rejections(got), got)
	}
}

const counters = `
onFailure: dead-letter
mappings:
  - name: views
    table: orders
    rowKey: event.id
    timestamp: bucket(timestamp(event.at), duration("1h"))
    dedupe: %s
    dedupeId: event.view
    %s
    mutations:
      - add: {totals: {views: 1}}
`

func TestDedupeMakesTheSameTokenInEveryDelivery(t *testing.T) {
	event := func(id, view string) string {
		return fmt.Sprintf(`{"id":%q,"view":%q,"at":"2026-08-30T10:15:30Z"}`, id, view)
	}
	w := load(t, strings.Replace(fmt.Sprintf(counters, "window", ""), "onFailure: dead-letter\n", "", 1), ServiceLimits())
	result := run(w, event("x", "1"), event("x", "2"), event("x", "1"), event("y", "1"))
	if len(result.Rows) != 0 || len(result.Last) != 4 {
		t.Fatalf("%d rows first, %d last; want 0 and 4", len(result.Rows), len(result.Last))
	}
	first := result.Last[0].Entry.Idempotency.Token
	if got := hex.EncodeToString(first); len(first) != 16 {
		t.Errorf("a token of %d bytes: %s", len(first), got)
	}
	for i, same := range []bool{true, false, true, false} {
		if r := result.Last[i]; bytes.Equal(r.Token(), first) != same || !r.Shared || !r.Commutes() {
			t.Errorf("row %d: has the first one's token: %v; shared %v, commutes %v", i, !same, r.Shared, r.Commutes())
		}
	}
	// sha256sum of each part after its length in eight bytes: orders, the table's full name, x, views, 1.
	const golden = "cffac2d307c99d4415a9136a7dcb77c7"
	if got := hex.EncodeToString(first); got != golden {
		t.Errorf("the token changed to %s: deployed counters would count redeliveries again", got)
	}

	w = load(t, strings.Replace(fmt.Sprintf(counters, "marker", "markerFamily: seen"), "onFailure: dead-letter\n", "", 1), ServiceLimits())
	result = run(w, event("x", "1"), event("x", "1"))
	if len(result.Rows) != 2 || len(result.Last) != 0 || !bytes.Equal(result.Rows[0].Token(), result.Rows[1].Token()) {
		t.Fatalf("marker rows: %d first, %d last; want 2 of one token, and 0", len(result.Rows), len(result.Last))
	}
	r := result.Rows[0].Unless.GetColumnRangeFilter()
	if r.FamilyName != "seen" || hex.EncodeToString(r.GetStartQualifierClosed()) != golden || hex.EncodeToString(r.GetEndQualifierClosed()) != golden {
		t.Errorf("the marker's filter: %v", r)
	}
	last := result.Rows[0].Entry.Mutations[len(result.Rows[0].Entry.Mutations)-1].GetSetCell()
	if last.FamilyName != "seen" || hex.EncodeToString(last.ColumnQualifier) != golden || last.TimestampMicros != published.Add(time.Second).UnixMilli()*1000 {
		t.Errorf("the marker: %v", last)
	}
}

// identified sums what rows under dedupe would add if each token counted once, as the
// service does it, and holds each row to having its own.
func identified(t *testing.T, rows []*Row) (sum int64) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range rows {
		token := string(r.Token())
		if token == "" || seen[token] || r.Shared || len(r.Parts) != 1 {
			t.Errorf("a row of %d parts shares its token, and the service would drop it", len(r.Parts))
		}
		seen[token] = true
		for _, m := range r.Entry.Mutations {
			sum += m.GetAddToCell().GetInput().GetIntValue()
		}
	}
	return sum
}

const sums = `
mappings:
  - name: a
    table: orders
    rowKey: event.id
    timestamp: timestamp("2026-08-30T10:00:00Z")
    dedupe: %[1]s
    mutations: [add: {totals: {views: event.v}}]
%[2]s
  - name: b
    table: orders
    forEach: event.?more.orValue([])
    rowKey: event.id
    timestamp: timestamp("2026-08-30T10:00:00Z")
    dedupe: %[1]s
    mutations: [add: {totals: {views: item}}]
%[2]s
`

// Every record of a message counts under the default identity, however its rows have to
// be cut: at the limits, at the ends of what is mapped at once, and into parts.
func TestEveryRecordOfAMessageCountsUnderDedupe(t *testing.T) {
	limits := ServiceLimits()
	limits.Mutations = 4
	for dedupe, more := range map[string]string{"window": "", "marker": "    markerFamily: seen"} {
		w := load(t, fmt.Sprintf(sums, dedupe, more), limits)
		for _, size := range []int{1, 2, 3, 100} {
			s := w.Start(&expr.Message{ID: "m-1", PublishTime: published}, published)
			var records []record.Record
			var want int64
			for i := range int64(20) {
				v := int64(1) << i
				want += v + 10_000_000*3
				records = append(records, record.Record{Value: map[string]any{
					"id": []string{"x", "y"}[i%2], "v": v, "more": []any{int64(10_000_000), int64(20_000_000)},
				}})
			}
			var rows []*Row
			for chunk := range slices.Chunk(records, size) {
				result, err := s.Map(t.Context(), chunk)
				if err != nil || rejections(result) != "" {
					t.Fatal(err, rejections(result))
				}
				rows = append(append(rows, result.Rows...), result.Last...)
			}
			if got := identified(t, rows); got != want {
				t.Errorf("%s, %d at once: the sum is %d, want %d", dedupe, size, got, want)
			}
		}
	}
}

func TestRowsOfOneKeyStandInRecordOrder(t *testing.T) {
	limits := ServiceLimits()
	limits.Mutations = 1
	result := run(load(t, simple, limits), `{"id":"x","total":1}`, `{"id":"y","total":2}`, `{"id":"x","total":3}`, `{"id":"x","total":4}`)
	var records []int
	for _, r := range result.Rows {
		records = append(records, r.Parts[0].Record)
	}
	if !slices.Equal(records, []int{0, 1, 2, 3}) {
		t.Errorf("rows of records %v", records)
	}
}

// The token of a contribution tells the record, the mapping and the row, and nothing about
// its neighbours: a bad one beside it, other mappings, what else the message brings.
//
// covers: FAIL-10
func TestATokenIsOfOneRecordMappingAndRow(t *testing.T) {
	for dedupe, more := range map[string]string{"window": "", "marker": "    markerFamily: seen"} {
		w := load(t, fmt.Sprintf(sums, dedupe, more), ServiceLimits())
		tokens := func(place int, records ...string) map[string]bool {
			result := w.MapAt(&expr.Message{ID: "m-1", PublishTime: published}, decoded(records...), published, place)
			out := map[string]bool{}
			for _, r := range slices.Concat(result.Rows, result.Last) {
				if out[string(r.Token())] {
					t.Errorf("%s: two contributions share a token", dedupe)
				}
				out[string(r.Token())] = true
			}
			return out
		}
		const one, bad = `{"id":"x","v":1,"more":[1,2]}`, `{"id":7}`
		alone := tokens(1, one)
		if len(alone) != 2 { // one of each mapping: two items of one record are one contribution
			t.Errorf("%s: %d contributions of one record", dedupe, len(alone))
		}
		for name, all := range map[string]map[string]bool{
			"after a bad record":    tokens(0, bad, one),
			"before a bad record":   tokens(1, one, bad),
			"the other items bad":   tokens(1, `{"id":"x","v":"?","more":[1,2]}`),
			"the first mapping bad": tokens(1, `{"id":"x","v":1,"more":["?"]}`),
			"beside others":         tokens(0, `{"id":"x","v":5,"more":[5]}`, one, `{"id":"x","v":6}`),
		} {
			shared := 0
			for token := range all {
				if alone[token] {
					shared++
				}
			}
			want := 2
			if strings.HasSuffix(name, "s bad") || strings.HasSuffix(name, "mapping bad") {
				want = 1
			}
			if shared != want {
				t.Errorf("%s, %s: %d of 2 tokens are the same, want %d", dedupe, name, shared, want)
			}
		}
	}
}

// What one record brings to one row is never split: what does not fit into an entry is
// refused, and no row of the record is made.
func TestAContributionThatFitsNoEntryIsRefused(t *testing.T) {
	limits := ServiceLimits()
	limits.Mutations = 3
	for dedupe, more := range map[string]string{"window": "", "marker": "    markerFamily: seen", "none": ""} {
		w := load(t, fmt.Sprintf(sums, dedupe, more), limits)
		result := run(w, `{"id":"x","v":1,"more":[1,2,3,4]}`)
		if !strings.Contains(rejections(result), "0 mapping b: mutations: ") || len(result.Rows)+len(result.Last) != 1 {
			t.Errorf("%s: %s, %d rows", dedupe, rejections(result), len(result.Rows)+len(result.Last))
		}
	}
}

func TestAPublishTimeThatNoCellCanHaveIsARejection(t *testing.T) {
	w := load(t, strings.Replace(simple, "    timestamp: timestamp(event.?at.orValue(\"2026-08-30T10:15:30.123Z\"))\n", "", 1), ServiceLimits())
	result := w.Map(&expr.Message{ID: "m", PublishTime: time.Date(1969, 12, 31, 23, 59, 59, 999e6, time.UTC)},
		[]record.Record{{Value: map[string]any{"id": "x", "total": int64(1)}}}, published)
	if len(result.Rows) != 0 || !strings.Contains(rejections(result), "publish time is before 1970") {
		t.Errorf("%s\n%s", text(result.Rows), rejections(result))
	}
}

func TestMappingStopsWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := load(t, simple, ServiceLimits()).Start(&expr.Message{}, published).Map(ctx, []record.Record{{}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// covers: SNK-10
func TestASecondDeliveryMakesTheSameRows(t *testing.T) {
	w := load(t, simple, ServiceLimits())
	a := run(w, `{"id":"x","total":1}`, `{"id":"x","total":2}`)
	b := run(w, `{"id":"x","total":1}`, `{"id":"x","total":2}`)
	if !proto.Equal(a.Rows[0].Entry, b.Rows[0].Entry) {
		t.Errorf("%v\n%v", a.Rows[0].Entry, b.Rows[0].Entry)
	}
}

func TestAComputedTableMustMatch(t *testing.T) {
	w := load(t, `
mappings:
  - name: m
    table: daily
    rowKey: event.id
    mutations:
      - set: {cf: {total: 1}}
`, ServiceLimits())
	result := run(w, `{"id":"x","at":"2026-08-30T10:15:30Z"}`, `{"id":"y","at":"nonsense"}`)
	if len(result.Rows) != 1 || result.Rows[0].Table.Table != "orders-2026-08-30" {
		t.Errorf("rows\n%s", text(result.Rows))
	}
	if got := rejections(result); !strings.HasPrefix(got, "1 mapping m: tables.daily.idFrom: timestamp() takes RFC 3339") {
		t.Error(got)
	}
}

func BenchmarkMap(b *testing.B) {
	w := load(b, simple, ServiceLimits())
	var decoder record.Decoder
	records := decoder.JSON([]byte(`{"id":"order-1234","total":100,"at":"2026-08-30T10:15:30.123Z"}`))
	m := &expr.Message{ID: "m-1", PublishTime: published}
	b.ReportAllocs()
	for b.Loop() {
		if r := w.Map(m, records, published); len(r.Rows) != 1 {
			b.Fatal(rejections(r))
		}
	}
}

// A cell in the far future hides all that is written after it.
func TestATimeFarAheadIsRefusedUnlessTheFileAllowsIt(t *testing.T) {
	const file = `
mappings:
  - name: m
    table: orders
    rowKey: event.id
    timestamp: timestamp(event.at)
    OPTION
    mutations:
      - set: {cf: {status: '"S"'}}
`
	now := published.Add(time.Second) // see run
	for _, c := range []struct {
		ahead  time.Duration
		option string
		fails  bool
	}{
		{-time.Hour, "allowFuture: false", false}, {24 * time.Hour, "allowFuture: false", false}, {24*time.Hour + 2*time.Millisecond, "allowFuture: false", true},
		{1000 * 24 * time.Hour, "allowFuture: false", true}, {1000 * 24 * time.Hour, "allowFuture: true", false},
	} {
		w := load(t, strings.Replace(file, "OPTION", c.option, 1), ServiceLimits())
		result := run(w, fmt.Sprintf(`{"id":"x","at":%q}`, now.Add(c.ahead).Truncate(time.Millisecond).Format(time.RFC3339Nano)))
		if got := rejections(result); (got != "") != c.fails || c.fails && !strings.Contains(got, "0 mapping m: timestamp: a time more than a day ahead") {
			t.Errorf("%v ahead, %s: %q", c.ahead, c.option, got)
		}
	}
}
