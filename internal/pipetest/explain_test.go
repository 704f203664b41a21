package pipetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

var published = time.Date(2026, 8, 30, 10, 15, 31, 456789e3, time.UTC)

func pushed(data string) *push.Message {
	return &push.Message{ID: "m-1", PublishTime: published, Subscription: "projects/p/subscriptions/s", Data: []byte(data)}
}

func explained(t testing.TB, s *Suite, m *push.Message) string {
	t.Helper()
	lines, err := s.Explain(m, published)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestExplainSaysWhatEachMappingDoesAndWhyOthersDoNot(t *testing.T) {
	s, _ := suite(t, head+"  []")
	for _, c := range []struct{ name, data, want string }{
		{"taken by one, refused by another", `{"type":"order","id":"a","at":"2026-08-30T10:15:30.123Z","status":"PAID","lines":[{"sku":"x","qty":"1"}]}`, `record 0, 105 bytes
  order: takes it, 1 row
  view: no, because orders.yaml:34:13: event.?type.orValue("") == "view" does not hold
  lines: rejected at mutations[0].set.cf.total (orders.yaml:48:29: item.qty): int64 takes int, not string: convert with int(); onFailure is dead-letter
row orders "order#a"
  deleteColumns cf:status [.., 2026-08-30T10:15:30.122Z]
  set cf:status = "PAID" @ 2026-08-30T10:15:30.123Z
`},
		{"a marker is printed, for it is written", `{"type":"view","page":"p\u001b","at":"2026-08-30T10:15:30.123Z","delta":2,"lines":[]}`, `record 0, 85 bytes
  order: no, because orders.yaml:21:13: event.?type.orValue("") == "order" does not hold
  view: takes it, 1 row
  lines: takes it and makes no row, because orders.yaml:44:16: event.lines is empty
row orders "p\x1b", alone, unless its marker is there
  add totals:views += 2 @ 2026-08-30T10:00:00.000Z
  set seen:MARKER = null @ 2026-08-30T10:15:31.456Z
`},
		{"skipped, not decoded, unmatched", `[{"type":"heartbeat"},{"a":1,"a":2},{"type":"x"}]`, `record 0, 20 bytes: skipped, because orders.yaml:16:9: event.?type.orValue("") == "heartbeat" holds
record 1, 13 bytes: rejected: element 1: duplicate key at offset 7; onFailure is dead-letter
record 2, 12 bytes: no mapping takes it, and onUnmatched is dead-letter
  order: no, because orders.yaml:21:13: event.?type.orValue("") == "order" does not hold
  view: no, because orders.yaml:34:13: event.?type.orValue("") == "view" does not hold
  lines: no, because orders.yaml:43:13: has(event.lines) does not hold
`},
		{"no record", `[]`, "the message holds no record, and is acknowledged\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := pushed(c.data)
			got := explained(t, s, m)
			if o := s.outcome(m, published); len(o.rows) == 1 && o.rows[0].Unless != nil {
				marker := o.rows[0].Unless.GetColumnRangeFilter().GetStartQualifierClosed()
				got = strings.Replace(got, fmt.Sprintf("%q", marker), "MARKER", 1)
			}
			if got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// everything is a pipeline over every encoding and kind of mutation; its columns take
// what the message says.
const everything = `version: 1
name: every
bigtable: {project: my-project, instance: my-instance}
tables:
  t:
    families:
      cf: {columns: {s: string, i: int8, l: int64, f: float32, d: float64, b: bool, dec: "decimal(10,2)", day: date, clock: time, at: timestamp, doc: json, "a b": string, "{base64: \"/w==\"}": bytes}}
      other: {}
      sum: {aggregate: sum}
      hll: {aggregate: hll}
  bin: {key: bytes, families: {cf: {}}}
write:
  skip: has(event.skip)
  onUnmatched: skip
  onFailure: dead-letter
  mappings:
    - name: rows
      forEach: event.rows
      table: t
      rowKey: item.key
      timestamp: timestamp(item.time)
      mutations:
        - set:
            cf: {s: item.?s, i: item.?i, l: item.?l, f: item.?f, d: item.?d, b: item.?b, dec: item.?dec}
            other: {x: item.?x}
        - set: {cf: {day: item.?day, clock: item.?clock, at: item.?at, doc: item.?doc, "a b": item.?s, "{base64: \"/w==\"}": item.?x}}
          replace: older
        - {set: {other: {x: item.?x, "y z": item.?x}}, replace: all}
        - {when: has(item.drop), deleteColumns: {cf: [s, "a b", {base64: "/w=="}], other: [q]}, tombstone: true}
        - {when: has(item.drop), deleteColumns: {cf: [l]}, from: timestamp("2020-01-01T00:00:00Z"), to: timestamp("2021-01-01T00:00:00Z")}
        - {when: has(item.drop), deleteColumns: {cf: [i]}, to: timestamp("2021-01-01T00:00:00Z")}
        - {when: has(item.drop), deleteColumns: {cf: [f]}, versions: all}
        - {when: has(item.drop), deleteColumns: {cf: [d]}}
        - {when: has(item.gone), deleteRow: true}
        - {when: has(item.gone), deleteFamilies: [other]}
        - {add: {sum: {num: item.?n}, hll: {num: item.?n}}}
        - {merge: {hll: {acc: 'item.?n.optMap(v, b"\xff\x00")'}}}
    - name: blob
      when: has(event.blob)
      table: bin
      rowKey: hash(string(event.blob))
      mutations:
        - set: {cf: {raw: 'b"\xfe\xff"', text: string(event.blob)}}
tests:
`

// covers: SNK-04
func TestWhatAsTestPrintsPasses(t *testing.T) {
	s, _ := suite(t, everything+"  []")
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "no", "null", "y", "1e5", "\x1b[31m", "\u2028\ufeff", "a: b # c", "{base64: \"/w==\"}", "\U0001F600", "0x1"}))
	rapid.Check(t, func(t *rapid.T) {
		var rows []string
		for range rapid.IntRange(0, 3).Draw(t, "rows") {
			fields := []string{
				fmt.Sprintf(`"key":%s`, jsonText(rapid.OneOf(rapid.SampledFrom([]string{"k", "k2"}), text).Draw(t, "key"))),
				fmt.Sprintf(`"time":%q`, rapid.SampledFrom([]string{"2026-08-30T10:15:30.123Z", "1970-01-01T00:00:00Z", "2026-08-30T10:15:30Z"}).Draw(t, "time")),
			}
			for name, values := range map[string][]string{
				"i": {"1", "-128", "null", "300"}, "l": {"9007199254740993", "null"}, "f": {"0.1", "3", "1e38", "null"},
				"d": {"0.1", "-0.0", "1e300", "5e-324", "12345678901234567890.0", "7"}, "b": {"true", "false", "null"}, "dec": {`"1.50"`, `"-0.005"`, "7", "null"},
				"day": {`"1969-12-31"`, "null"}, "clock": {`"23:59:59.999"`, "null"}, "at": {`"1969-12-31T23:59:59.999Z"`, `"9999-12-31T23:59:59.999Z"`},
				"doc":  {`{"a":[1,1.0,"x",null,{"no":true}],"b c":1e30}`, "[]", "null", `"t"`},
				"drop": {"1"}, "gone": {"1"}, "n": {"1", "-5"},
			} {
				if rapid.Bool().Draw(t, "has "+name) {
					fields = append(fields, fmt.Sprintf(`"%s":%s`, name, rapid.SampledFrom(values).Draw(t, name)))
				}
			}
			for _, name := range []string{"s", "x"} {
				if rapid.Bool().Draw(t, "has "+name) {
					fields = append(fields, fmt.Sprintf(`"%s":%s`, name, jsonText(text.Draw(t, name))))
				}
			}
			rows = append(rows, "{"+strings.Join(fields, ",")+"}")
		}
		data := rapid.SampledFrom([]string{
			`{"rows":[` + strings.Join(rows, ",") + `]}`, `{"rows":[` + strings.Join(rows, ",") + `],"blob":"x"}`,
			`[{"rows":[` + strings.Join(rows, ",") + `]},{"skip":1},{"rows":[],"blob":1e2}]`, `{"skip":true}`, "{\"a\":1,\"a\":2}", "\xff", "{base64: \"x\"}", `{"rows":1}`, `{}`,
		}).Draw(t, "data")
		m := pushed(data)
		m.ID = text.Draw(t, "id")
		m.Attributes = map[string]string{"no": text.Draw(t, "attribute")}
		written, err := s.AsTest(m)
		if err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		again, p := suiteOf(t, everything+written)
		if problems := again.Run(p.Tests[0]); len(problems) > 0 {
			t.Fatalf("%+v\n%s\n%s", problems, data, written)
		}
		for _, r := range written {
			if r != '\n' && (r < ' ' || r == 0x7f || r == 0x1b || r == 0x2028) {
				t.Fatalf("%q stands unescaped in\n%s", r, written)
			}
		}
	})
}

func suiteOf(t *rapid.T, file string) (*Suite, *pipeline.Pipeline) {
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "every.yaml"})
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	w, err := mapping.Compile(p, mapping.ServiceLimits())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p, w)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func TestAsTestWritesAReadableTest(t *testing.T) {
	s, _ := suite(t, head+"  []")
	got, err := s.AsTest(pushed(`{"type":"order","id":"a","at":"2026-08-30T10:15:30.123Z","status":"PAID","total":5,"gone":true}`))
	const want = `  - name: "message m-1"
    message:
      id: "m-1"
      publishTime: "2026-08-30T10:15:31.456Z"
      subscription: "projects/p/subscriptions/s"
      data: {type: "order", id: "a", at: "2026-08-30T10:15:30.123Z", status: "PAID", total: 5, gone: true}
    expect:
      rows:
        - table: "orders"
          rowKey: "order#a"
          timestamp: "2026-08-30T10:15:30.123Z"
          mutations:
            - set:
                cf:
                  status: "PAID"
                  total: 5
              replace: older
            - deleteColumns: {cf: ["price"]}
              tombstone: true
`
	if err != nil || got != want {
		t.Errorf("%v, got\n%swant\n%s", err, got, want)
	}
}

// covers: FAIL-09
func TestADeadLetterIsExplainedAndTested(t *testing.T) {
	file := strings.Replace(strings.Split(everything, "write:")[0], "name: every", "name: again", 1) + "write: {format: mutation}\ntests:\n"
	s, _ := suite(t, file+"  []")
	row := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: []*bigtablepb.Mutation{deletion("cf", []byte("s"), nil)}}
	data, err := proto.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	l := deadletter.Letter{Kind: deadletter.KindEntry, Table: "projects/my-project/instances/my-instance/tables/t", Time: published, Data: data}
	m := pushed("")
	m.Data, m.Attributes = l.Encode()
	const want = "record 0, 14 bytes: an entry for projects/my-project/instances/my-instance/tables/t\nrow t \"k\"\n  deleteColumns cf:s\n"
	if got := explained(t, s, m); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	written, err := s.AsTest(m)
	if err != nil {
		t.Fatal(err)
	}
	if got := printed(t, file+written); got != "" {
		t.Errorf("%s\n%s", got, written)
	}
	m.Attributes["table"] += "x"
	if got := explained(t, s, m); got != "record 0, 14 bytes: rejected: the entry is for a table that the pipeline file does not have; onFailure is fail\n" {
		t.Errorf("got\n%s", got)
	}
}
