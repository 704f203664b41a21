package lint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// typedExpressions have each static type of CEL that an expression can have, and the
// values of event.v with which they are tried.
var typedExpressions = []struct {
	name, source string
	values       []string
}{
	{"bool", `event.v == 1`, []string{`1`, `2`}},
	{"int", `int(event.v)`, []string{`0`, `20`}},
	{"uint", `uint(event.v)`, []string{`0`, `20`}},
	{"double", `double(event.v)`, []string{`0.5`, `2`}},
	{"string", `string(event.v)`, []string{`"x"`, `"2026-01-02"`, `"12:30:00"`, `"2026-01-02T00:00:00Z"`, `"-12.30"`}},
	{"bytes", `bytes(event.v)`, []string{`"x"`, `"12345678"`}},
	{"timestamp", `timestamp(event.v)`, []string{`"2026-01-02T00:00:00Z"`, `"2026-01-02T03:04:05Z"`}},
	{"duration", `duration(event.v)`, []string{`"60s"`}},
	{"list", `[event.v]`, []string{`1`}},
	{"map", `{"a": event.v}`, []string{`1`}},
	{"type", `type(event.v)`, []string{`1`, `"x"`}},
	{"map of int", `{1: event.v}`, []string{`1`}},
	{"optional int", `optional.of(int(event.v))`, []string{`0`, `20`}},
	{"optional string", `optional.of(string(event.v))`, []string{`"x"`, `"2026-01-02"`, `"12:30:00"`, `"2026-01-02T00:00:00Z"`, `"-12.30"`}},
	{"optional bytes", `optional.of(bytes(event.v))`, []string{`"x"`}},
	{"null", `event.v == 1 ? null : null`, []string{`1`}},
	{"constant int", `300`, []string{`1`}},
	{"constant negative", `-1`, []string{`1`}},
	{"constant text", `"x"`, []string{`1`}},
	{"empty text", `""`, []string{`1`}},
	{"constant day", `"2026-01-02"`, []string{`1`}},
	{"constant time", `timestamp("2026-01-02T00:00:00.0001Z")`, []string{`1`}},
	{"constant time of old", `timestamp("1969-01-02T00:00:00Z")`, []string{`1`}},
}

// typedPlaces are the places of write whose type the file says, with %s for an expression.
var typedPlaces = []struct{ name, table, write, mapping string }{
	{"when", "", "", "when: %s\n      rowKey: event.id\n      mutations: [{set: {cf: {a: event.id}}}]"},
	{"skip", "", "  skip: %s\n", "rowKey: event.id\n      mutations: [{set: {cf: {a: event.id}}}]"},
	{"forEach", "", "", "forEach: %s\n      rowKey: event.id\n      mutations: [{set: {cf: {a: event.id}}}]"},
	{"timestamp", "", "", "timestamp: %s\n      rowKey: event.id\n      mutations: [{set: {cf: {a: event.id}}}]"},
	{"dedupeId", "", "", "dedupe: window\n      dedupeId: %s\n      timestamp: message.publishTime\n      rowKey: event.id\n      mutations: [{add: {sums: {a: '1'}}}]"},
	{"add", "", "", "timestamp: message.publishTime\n      rowKey: event.id\n      mutations: [{add: {sums: {a: %s}}}]"},
	{"merge", "", "", "timestamp: message.publishTime\n      rowKey: event.id\n      mutations: [{merge: {sums: {a: %s}}}]"},
	{"mutation when", "", "", "rowKey: event.id\n      mutations: [{when: %s, set: {cf: {a: event.id}}}, {set: {cf: {a: event.id}}}]"},
	{"to", "", "", "rowKey: event.id\n      mutations: [{deleteColumns: {cf: [a]}, to: %s}]"},
	{"idFrom", "    idFrom: %s\n    idMatches: '[0-9a-z-]+'\n", "", "rowKey: event.id\n      mutations: [{set: {cf: {a: event.id}}}]"},
}

const typedFile = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  t:
    key: %s
%s    families: {cf: {columns: {c: '%s'}}, sums: {aggregate: sum}}
write:
%s  onFailure: dead-letter
  mappings:
    - name: m
      table: t
      %s
`

// columnKinds are all encodings.
func columnKinds(t *testing.T) []cell.Encoding {
	t.Helper()
	var out []cell.Encoding
	for _, name := range cell.Names() {
		e, err := cell.ParseEncoding(strings.Replace(name, "p,s", "10,2", 1))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// Lint says "error" of an expression of a known type if and only if every record fails
// with it. What a record does is shown by the same expression under dyn(), of whose type
// nothing is known before.
//
// covers: TBL-08
func TestTypesThatNeverFitAreErrors(t *testing.T) {
	errors, sound := 0, 0
	try := func(name, file, source string, values []string) {
		t.Helper()
		quoted := func(source string) string { return "'" + source + "'" }
		_, found := Load([]byte(strings.ReplaceAll(file, "EXPR", quoted(source))), pipeline.Options{File: "f"})
		refused := found.Err()
		l, found := Load([]byte(strings.ReplaceAll(file, "EXPR", quoted("dyn("+source+")"))), pipeline.Options{File: "f"})
		if l == nil && (refused == nil || strings.Contains(source, "type(") || strings.Contains(source, "{1:")) {
			t.Errorf("%s: the dynamic one: %v", name, found.Err())
			return
		}
		if l == nil {
			return
		}
		written, why := 0, ""
		for _, v := range values {
			var decoder record.Decoder
			r := l.Write.Map(&expr.Message{ID: "m-1", PublishTime: time.Unix(1, 0)}, decoder.JSON([]byte(`{"id": "a", "v": `+v+`}`)), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			if len(r.Rejected) == 0 {
				written++
			} else {
				why = r.Rejected[0].Error()
			}
		}
		switch {
		case refused == nil && written == 0:
			t.Errorf("%s: every record fails, and lint says nothing: %s", name, why)
		case refused != nil && written > 0:
			t.Errorf("%s: %d of %d records are written, and lint says %v", name, written, len(values), refused)
		case refused != nil:
			errors++
		default:
			sound++
		}
	}
	for _, e := range typedExpressions {
		// Only a cell may be absent: elsewhere an optional is refused whatever it holds.
		optional := strings.HasPrefix(e.name, "optional")
		for _, enc := range columnKinds(t) {
			file := fmt.Sprintf(typedFile, "string", "", enc, "", "rowKey: event.id\n      mutations: [{set: {cf: {c: EXPR}}}]")
			try(fmt.Sprintf("column %s from %s", enc, e.name), file, e.source, e.values)
			if enc.Kind == cell.JSON || optional {
				continue
			}
			file = fmt.Sprintf(typedFile, enc, "", "bytes", "", "rowKey: EXPR\n      mutations: [{set: {cf: {c: event.id}}}]")
			try(fmt.Sprintf("key %s from %s", enc, e.name), file, e.source, e.values)
		}
		for _, p := range typedPlaces {
			if optional && p.name != "add" && p.name != "merge" {
				continue
			}
			table, write, mapping := strings.ReplaceAll(p.table, "%s", "EXPR"), strings.ReplaceAll(p.write, "%s", "EXPR"), strings.ReplaceAll(p.mapping, "%s", "EXPR")
			try(p.name+" from "+e.name, fmt.Sprintf(typedFile, "string", table, "bytes", write, mapping), e.source, e.values)
		}
	}
	if errors < 100 || sound < 100 {
		t.Errorf("%d errors and %d sound pairs are too few to show anything", errors, sound)
	}
}

const typedScan = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  t:
    families: {cf: {columns: {b: bool, i: int64, f: float64, s: string, raw: bytes, at: timestamp, tm: time, d: date, dec: 'decimal(10,2)', j: json, f32: float32, i8: int8}}}
scans:
  s:
    table: t
    %s
`

// Each place of a scan takes the values of a declared column, or lint reports an error.
func TestColumnsThatNeverFitAScansPlacesAreErrors(t *testing.T) {
	columns := map[string]string{"b": "\xff", "i": "\x00\x00\x00\x00\x00\x00\x00\x01", "f": "\x00\x00\x00\x00\x00\x00\x00\x00", "s": "x", "raw": "x",
		"at": "\x00\x00\x00\x00\x00\x00\x00\x01", "tm": "\x00\x00\x00\x01", "d": "\x00\x00\x00\x01", "dec": "\x00\x00\x00\x02\x01", "f32": "\x00\x00\x00\x00", "i8": "\x01"}
	row := bigtable.Row{}
	for name, value := range columns {
		row["cf"] = append(row["cf"], bigtable.ReadItem{Row: "r", Column: "cf:" + name, Value: []byte(value)})
	}
	for place, form := range map[string]string{
		"when":       "when: EXPR\n    emit: {a: rowKey}\n    to: {log: {}}",
		"forEach":    "forEach: EXPR\n    emit: {a: rowKey}\n    to: {log: {}}",
		"emit":       "emit: {a: EXPR}\n    to: {log: {}}",
		"orderBy":    "emit: {a: rowKey}\n    to: {pubsub: {topic: out, orderBy: EXPR}}",
		"attributes": "emit: {a: rowKey}\n    to: {pubsub: {topic: out, attributes: {k: EXPR}}}",
	} {
		for name := range columns {
			load := func(source string) (*pipeline.Pipeline, error) {
				l, found := Load([]byte(fmt.Sprintf(typedScan, strings.ReplaceAll(form, "EXPR", "'"+source+"'"))), pipeline.Options{File: "f"})
				if l == nil {
					return nil, found.Err()
				}
				return l.Pipeline, found.Err()
			}
			_, refused := load("row.cf." + name)
			p, err := load("dyn(row.cf." + name + ")")
			if err != nil {
				t.Fatal(err)
			}
			emit, err := mapping.CompileEmit(p.Scans[0])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := emit.Row(row); (err == nil) != (refused == nil) {
				t.Errorf("%s from cf:%s: lint says %v, a row %v", place, name, refused, err)
			}
		}
	}
}
