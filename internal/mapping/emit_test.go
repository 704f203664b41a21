package mapping

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

const emitTables = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    key: KEY
    families:
      cf:
        columns: {status: string, total: int64, price: 'decimal(10,2)', day: date, at: timestamp, clock: time, ok: bool, ratio: float64, share: float32, doc: json, small: int8}
      odd-name: {columns: {'a.b': string}}
      totals: {aggregate: sum}
`

// scanOf parses a scan of the table orders.
func scanOf(t testing.TB, key, scan string) *pipeline.Scan {
	t.Helper()
	file := strings.Replace(emitTables, "KEY", key, 1) + "scans:\n  all:\n    table: orders\n" + indentScan(scan)
	if !strings.Contains(scan, "to:") {
		file += "    to: {log: {}}\n"
	}
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return p.Scans[0]
}

func indentScan(s string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(s) + "\n") {
		if strings.TrimSpace(line) != "" {
			b.WriteString("    " + line)
		}
	}
	return b.String()
}

func emitOf(t testing.TB, key, scan string) *Emit {
	t.Helper()
	e, err := CompileEmit(scanOf(t, key, scan))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// rowOf makes a row of family:qualifier, value pairs, all at 1.5 s.
func rowOf(key string, cells ...string) bigtable.Row {
	r := bigtable.Row{}
	for i := 0; i < len(cells); i += 2 {
		family, _, _ := strings.Cut(cells[i], ":")
		r[family] = append(r[family], bigtable.ReadItem{Row: key, Column: cells[i], Timestamp: 1_500_000, Value: []byte(cells[i+1])})
	}
	return r
}

func be(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

func days(n int32) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

// onlyRecord returns the only record of a row, or the error.
func onlyRecord(t testing.TB, e *Emit, r bigtable.Row) string {
	t.Helper()
	outs, err := e.Row(r)
	if err != nil {
		return "error: " + err.Error()
	}
	if len(outs) != 1 {
		t.Fatalf("%d records, want one", len(outs))
	}
	if !json.Valid(outs[0].Body) {
		t.Errorf("%s is no JSON", outs[0].Body)
	}
	return string(outs[0].Body)
}

// covers: SC-17, SC-19, SQL-12
func TestEmitMakesTypedRecordsOfDeclaredColumns(t *testing.T) {
	row := rowOf("order#1",
		"cf:status", "PAID", "cf:status", "OPEN", "cf:total", be(-5), "cf:price", "\x00\x00\x00\x02\x30\x39", "cf:day", days(20_000),
		"cf:at", be(1_756_548_931_123), "cf:clock", days(3_723_004), "cf:ok", "\xff", "cf:ratio", be(int64(math.Float64bits(2))),
		"cf:doc", `{"a":[1,2.5,null]}`, "cf:raw", "\xff\x00", "totals:n", be(7), "odd-name:a.b", "x")
	for expression, want := range map[string]string{
		"rowKey":                                    `"order#1"`,
		"row.cf.status":                             `"PAID"`, // the newest of two versions
		"row.cf.total":                              `-5`,
		"row.cf.price":                              `"123.45"`,
		"row.cf.day":                                `"2024-10-04"`,
		"row.cf.at":                                 `"2025-08-30T10:15:31.123Z"`,
		"row.cf.clock":                              `"01:02:03.004"`,
		"row.cf.ok":                                 `true`,
		"row.cf.ratio":                              `2.0`,
		"row.cf.doc.a":                              `[1,2.5,null]`,
		"row.cf.raw":                                `"/wA="`,
		"row.totals.n + 1":                          `8`,
		`row["odd-name"]["a.b"]`:                    `"x"`,
		`row.cf.?coupon.orValue(b"none")`:           `"bm9uZQ=="`,
		"has(row.cf.coupon)":                        `false`,
		"has(row.cf.status)":                        `true`,
		"row.cf.total * 2":                          `-10`,
		"string(row.cf.total) + row.cf.status":      `"-5PAID"`,
		"utcDate(row.cf.at)":                        `"2025-08-30"`,
		"row.cf.?total.hasValue()":                  `true`,
		"row.cf.status.lowerAscii()":                `"paid"`,
		`{"a": row.cf.total, "b": row.cf.raw}`:      `{"a":-5,"b":"/wA="}`,
		`[row.cf.status, "x"]`:                      `["PAID","x"]`,
		`row.cf.total < 0 ? "debt" : row.cf.status`: `"debt"`,
	} {
		e := emitOf(t, "string", "emit: {x: '"+strings.ReplaceAll(expression, "'", "''")+"'}")
		if got, want := onlyRecord(t, e, row), `{"x":`+want+`}`; got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

// A column prints as it is declared wherever it stands as it is: alone, where it may be
// absent, chosen, and inside of maps and lists.
func TestAColumnPrintsAsDeclaredWhereverItStandsAsItIs(t *testing.T) {
	row := rowOf("k", "cf:day", days(20_000), "cf:clock", days(3_723_004), "cf:share", "\x3d\xcc\xcc\xcd", "cf:at", be(1_756_548_931_123),
		"cf:far", "x", "cf:total", be(5))
	const day, clock, at, share = `"2024-10-04"`, `"01:02:03.004"`, `"2025-08-30T10:15:31.123Z"`, `0.1`
	for expression, want := range map[string]string{
		"row.cf.day":                           day,
		"row.cf.?day":                          day,
		"row.?cf.?day":                         day,
		`row.cf["day"]`:                        day,
		`row["cf"][?"day"]`:                    day,
		"row.cf.clock":                         clock,
		"row.cf.?clock":                        clock,
		"row.cf.share":                         share,
		"row.cf.?share":                        share,
		"row.cf.?day.orValue(null)":            day,
		`row.cf.?day.orValue("never")`:         day,
		"row.cf.?day.or(row.cf.?dawn)":         `"2024-10-04T00:00:00Z"`, // undeclared: it may be anything
		"row.cf.?day.value()":                  day,
		"optional.of(row.cf.day)":              day,
		"dyn(row.cf.day)":                      day,
		"row.cf.total > 1 ? row.cf.day : null": day,
		// What is computed is a timestamp, a duration or a double.
		`row.cf.day + duration("1h")`:                                      `"2024-10-04T01:00:00Z"`,
		`row.cf.day + duration("24h")`:                                     `"2024-10-05T00:00:00Z"`,
		`row.cf.clock + duration("1s")`:                                    `"3724.004s"`,
		"row.cf.share * 1.0":                                               `0.10000000149011612`,
		"row.cf.total > 1 ? row.cf.day : row.cf.at":                        `"2024-10-04T00:00:00Z"`,
		"[row.cf.day, row.cf.at, row.cf.?clock]":                           "[" + day + "," + at + "," + clock + "]",
		"[?row.cf.?absent, ?row.cf.?day]":                                  `["2024-10-04T00:00:00Z"]`,
		"[?row.cf.?day, ?row.cf.?day]":                                     "[" + day + "," + day + "]",
		`{"d": row.cf.?day, "at": row.cf.at, "in": [{"t": row.cf.clock}]}`: `{"at":` + at + `,"d":` + day + `,"in":[{"t":` + clock + `}]}`,
		`{?"d": row.cf.?day, ?"t": row.cf.?absent}`:                        `{"d":` + day + `}`,
		`{"d": row.cf.day}.d`:                                              day,
		"row.cf":                                                           `{"at":` + at + `,"clock":` + clock + `,"day":` + day + `,"far":"eA==","share":` + share + `,"total":5}`,
		"row":                                                              `{"cf":{"at":` + at + `,"clock":` + clock + `,"day":` + day + `,"far":"eA==","share":` + share + `,"total":5},"odd-name":{},"totals":{}}`,
		"row.?cf":                                                          `{"at":` + at + `,"clock":` + clock + `,"day":` + day + `,"far":"eA==","share":` + share + `,"total":5}`,
	} {
		e := emitOf(t, "string", "emit: {x: '"+expression+"'}")
		if got, want := onlyRecord(t, e, row), `{"x":`+want+`}`; got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

func TestWhatStandsForAnAbsentColumnPrintsInFull(t *testing.T) {
	for expression, want := range map[string]string{
		`row.cf.?day.orValue(timestamp("2026-01-01T00:00:00Z"))`: `"2026-01-01"`,
		`row.cf.?day.orValue(timestamp("2026-01-01T05:00:00Z"))`: `"2026-01-01T05:00:00Z"`,
		`row.cf.?clock.orValue(duration("90s"))`:                 `"00:01:30.000"`,
		`row.cf.?clock.orValue(duration("-1s"))`:                 `"-1s"`,
		`row.cf.?clock.orValue(duration("25h"))`:                 `"90000s"`,
		`row.cf.?clock.orValue(duration("1us"))`:                 `"0.000001s"`,
		`row.cf.?share.orValue(0.1)`:                             `0.1`,
		`row.cf.?day.orValue("never")`:                           `"never"`,
		"row.cf.?day.orValue(null)":                              `null`,
		"row.cf.?day.orValue(row.cf.at)":                         `"1970-01-01T00:00:00Z"`,
	} {
		e := emitOf(t, "string", "emit: {x: '"+expression+"'}")
		if got, want := onlyRecord(t, e, rowOf("k", "cf:at", be(0))), `{"x":`+want+`}`; got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

func TestAnItemThatIsAColumnPrintsAsDeclared(t *testing.T) {
	row := rowOf("k", "cf:day", days(20_000), "cf:at", be(0))
	for forEach, want := range map[string]string{
		`[{"d": row.cf.day}, {"d": row.cf.?day}]`: `"2024-10-04"`,
		`[{"d": row.cf.day}, {"d": row.cf.at}]`:   `"2024-10-04T00:00:00Z"`, // not one type
	} {
		outs, err := emitOf(t, "string", "forEach: '"+forEach+"'\nemit: {x: item.d}").Row(row)
		if err != nil || len(outs) != 2 || string(outs[0].Body) != `{"x":`+want+`}` {
			t.Errorf("%s: %v, %v", forEach, outs, err)
		}
	}
}

func TestATimeThatNoCalendarHoldsIsItsMilliseconds(t *testing.T) {
	row := rowOf("k", "cf:at", be(1<<60), "cf:day", days(math.MaxInt32))
	for expression, want := range map[string]string{
		"row.cf.at": "1152921504606846976", "row.cf.?at": "1152921504606846976", "[row.cf.at]": "[1152921504606846976]",
		"row.cf.day": "185542587100800000", "row.cf": `{"at":1152921504606846976,"day":185542587100800000}`,
	} {
		if got := onlyRecord(t, emitOf(t, "string", "emit: {x: '"+expression+"'}"), row); got != `{"x":`+want+`}` {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

func TestAFloat32PrintsAsShortAsItIs(t *testing.T) {
	for bits, want := range map[string]string{"\x3d\xcc\xcc\xcd": "0.1", "\x7f\x7f\xff\xff": "3.4028235e+38", "\x00\x00\x00\x01": "1e-45", "\x80\x00\x00\x00": "-0.0", "\x40\x00\x00\x00": "2.0"} {
		row := rowOf("k", "cf:share", bits)
		if got := onlyRecord(t, emitOf(t, "string", "emit: {x: row.cf.share}"), row); got != `{"x":`+want+`}` {
			t.Errorf("%x is %s, want %s", bits, got, want)
		}
		if got := onlyRecord(t, emitOf(t, "string", ""), row); !strings.HasSuffix(got, `"value":`+want+"}]}") {
			t.Errorf("%x is %s, want %s", bits, got, want)
		}
	}
}

func TestFieldsComeInTheFilesOrderAndAbsentOnesStayOut(t *testing.T) {
	e := emitOf(t, "string", "emit: {z: rowKey, a: 'row.cf.?status', b: row.cf.?total}")
	if got := onlyRecord(t, e, rowOf("k", "cf:total", be(1))); got != `{"z":"k","b":1}` {
		t.Error(got)
	}
}

func TestWhenAndForEachChooseRecords(t *testing.T) {
	e := emitOf(t, "string", `
when: row.cf.total > 0
forEach: row.cf.doc.items
emit: {id: rowKey, item: item.sku}
to: {pubsub: {topic: out, orderBy: rowKey, attributes: {sku: item.sku}}}`)
	outs, err := e.Row(rowOf("k", "cf:total", be(1), "cf:doc", `{"items":[{"sku":"a"},{"sku":"b"}]}`))
	if err != nil || len(outs) != 2 {
		t.Fatalf("%d records, %v", len(outs), err)
	}
	for i, want := range []string{`{"id":"k","item":"a"}`, `{"id":"k","item":"b"}`} {
		if string(outs[i].Body) != want || outs[i].Index != i || outs[i].Attributes["sku"] != want[len(want)-3:len(want)-2] {
			t.Errorf("record %d: %s %v, want %s", i, outs[i].Body, outs[i].Attributes, want)
		}
	}
	if len(outs[0].OrderingKey) != 32 || outs[0].OrderingKey != outs[1].OrderingKey {
		t.Errorf("ordering keys %q and %q, want one hash", outs[0].OrderingKey, outs[1].OrderingKey)
	}
	for _, none := range []bigtable.Row{rowOf("k", "cf:total", be(0)), rowOf("k", "cf:total", be(1), "cf:doc", `{"items":[]}`)} {
		if outs, err := e.Row(none); err != nil || len(outs) != 0 {
			t.Errorf("%d records, %v: want none", len(outs), err)
		}
	}
}

func TestARowThatMakesNoRecordSaysWhereAndQuotesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		key, expression string
		row             bigtable.Row
		want            string
	}{
		"absent column":            {"string", "row.cf.status", rowOf("secret", "cf:total", be(1)), "scans.all.emit.x: no such key: status"},
		"absent undeclared column": {"string", "row.cf.extra", rowOf("secret", "cf:total", be(1)), "scans.all.emit.x: no such key: extra"},
		"short cell":               {"string", "row.cf.total", rowOf("secret", "cf:total", "abc"), `scans.all.emit.x: cf:"total": the cell has 3 bytes, and int64 needs 8`},
		"short cell, optional":     {"string", "row.cf.?total", rowOf("secret", "cf:total", "abc"), `scans.all.emit.x: cf:"total": the cell has 3 bytes, and int64 needs 8`},
		"short cell in a family":   {"string", "row.cf", rowOf("secret", "cf:total", "abc"), `scans.all.emit.x: cf:"total": the cell has 3 bytes, and int64 needs 8`},
		"short cell in a row":      {"string", "row", rowOf("secret", "cf:total", "abc"), `scans.all.emit.x: cf:"total": the cell has 3 bytes, and int64 needs 8`},
		"short cell or a default":  {"string", "row.cf.?total.orValue(0)", rowOf("secret", "cf:total", "abc"), `scans.all.emit.x: cf:"total": the cell has 3 bytes, and int64 needs 8`},
		"short cell in a sum":      {"string", "row.cf.total + 1", rowOf("secret", "cf:total", "abc"), `scans.all.emit.x: cf:"total": the cell has 3 bytes, and int64 needs 8`},
		"null in arithmetic":       {"string", "row.cf.total + 1", rowOf("secret", "cf:total", ""), "scans.all.emit.x: + does not take (null, int)"},
		"key that is no text":      {"string", "rowKey", rowOf("secret\xff", "cf:total", be(1)), "scans.all.emit.x: the row key: it is not UTF-8 text, as string must be"},
		"key with trailing bytes":  {"int64", "rowKey", rowOf(be(5)+"secret", "cf:total", be(1)), "scans.all.emit.x: the row key: its 14 bytes are not how a int64 is written"},
		"no number of JSON":        {"string", "row.cf.ratio", rowOf("secret", "cf:ratio", be(int64(math.Float64bits(math.NaN())))), "scans.all.emit.x: json holds neither NaN nor an infinity"},
	} {
		e := emitOf(t, c.key, "emit: {x: "+c.expression+"}")
		if got := onlyRecord(t, e, c.row); got != "error: "+c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

// A cell that nobody asks for may be broken.
func TestOnlyTheColumnsThatAnExpressionNamesAreDecoded(t *testing.T) {
	e := emitOf(t, "string", "emit: {x: row.cf.status, z: has(row.cf.day)}")
	if got := onlyRecord(t, e, rowOf("k", "cf:status", "PAID", "cf:total", "abc", "cf:day", "x")); got != `{"x":"PAID","z":true}` {
		t.Error(got)
	}
}

func TestAnEmitThatCannotWorkFailsAtLoad(t *testing.T) {
	for expression, want := range map[string]string{
		"row.cx.status":                "p.yaml:16:19: scans.all.emit.x: table orders declares no family cx",
		`row["cx"]["status"]`:          "table orders declares no family cx",
		"row.?cx":                      "table orders declares no family cx",
		"row.cf.total + row.cf.status": "convert the int with string(…)",
		"row.cf.status + 1":            "convert the int with string(…)",
		"event.status":                 "a column of the row is row.FAMILY.event",
		"status":                       "to mean the text, quote it twice, since YAML takes the outer quotes away: '\"status\"'",
		"item":                         "item is known only inside a scan that has forEach",
		`row.cf.day + "x"`:             "convert",
	} {
		_, err := CompileEmit(scanOf(t, "string", "emit: {x: '"+expression+"'}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", expression, err, want)
		}
	}
	if _, err := CompileEmit(scanOf(t, "string", "when: row.cf.status")); err == nil || !strings.Contains(err.Error(), "scans.all.when: is of type string") {
		t.Errorf("a condition that is text: %v", err)
	}
}

func TestAnAttributeThatIsNoTextSaysWhyItMustBe(t *testing.T) {
	const to = "to: {pubsub: {topic: out, attributes: {k: ATTRIBUTE}}}"
	const want = "scans.all.to.pubsub.attributes.k: is of type int, and this place takes text, which is all that an attribute of Pub/Sub can be: convert with string(…)"
	if _, err := CompileEmit(scanOf(t, "string", strings.Replace(to, "ATTRIBUTE", "row.cf.total", 1))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
	for attribute, want := range map[string]string{
		"string(row.cf.total)": "5",
		"row.cf.doc.n":         "scans.all.to.pubsub.attributes.k: is int, and this place takes text, which is all",
	} {
		outs, err := emitOf(t, "string", strings.Replace(to, "ATTRIBUTE", attribute, 1)).Row(rowOf("k", "cf:total", be(5), "cf:doc", `{"n":1}`))
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && outs[0].Attributes["k"] != want {
			t.Errorf("%s: %v, %v", attribute, outs, err)
		}
	}
}

func TestTheWholeRowPrintsEveryCell(t *testing.T) {
	e := emitOf(t, "string", "")
	row := rowOf("k", "cf:total", be(5), "cf:total", be(4), "cf:raw", "ab", "cf:\xff", "x", "totals:n", be(9), "new:q", "v")
	row["cf"][1].Timestamp = 1_000_000
	row["new"][0].Timestamp = math.MaxInt64
	row["totals"][0].Labels = []string{"l"}
	want := `{"rowKey":"k","cells":[` +
		`{"family":"cf","qualifier":"total","timestamp":"1970-01-01T00:00:01.5Z","value":5},` +
		`{"family":"cf","qualifier":"total","timestamp":"1970-01-01T00:00:01Z","value":4},` +
		`{"family":"cf","qualifier":"raw","timestamp":"1970-01-01T00:00:01.5Z","value":"YWI="},` +
		`{"family":"cf","qualifier":{"base64":"/w=="},"timestamp":"1970-01-01T00:00:01.5Z","value":"eA=="},` +
		`{"family":"new","qualifier":"q","timestamp":9223372036854775807,"value":"dg=="},` +
		`{"family":"totals","qualifier":"n","timestamp":"1970-01-01T00:00:01.5Z","labels":["l"],"value":9}]}`
	if got := onlyRecord(t, e, row); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := onlyRecord(t, e, rowOf("k", "cf:total", "abc")); got != `error: cf:"total": the cell has 3 bytes, and int64 needs 8` {
		t.Error(got)
	}
	keys := emitOf(t, "bytes", "cells: {keysOnly: true}")
	if got := onlyRecord(t, keys, rowOf("\xff", "cf:total", "")); got != `{"rowKey":"/w=="}` {
		t.Error(got)
	}
}

func TestTwoKeysOrQualifiersNeverPrintAlike(t *testing.T) {
	for _, key := range []string{"string", "bytes", "int64", "int8", "bool", "date", "timestamp", "time", "float64", "float32", "'decimal(10,2)'"} {
		e := emitOf(t, key, "")
		text := rapid.OneOf(
			rapid.StringN(1, 8, 64), rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 12), func(b []byte) string { return string(b) }),
			rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff, '{', '"', 'b', 0x80}), 1, 9), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{`{"base64":"/w=="}`, "\xff", "/w==", "null", " 1", "1", be(1), be(1) + "\x00", "\x01", "\xfe"}),
		)
		rapid.Check(t, func(rt *rapid.T) {
			a, b := text.Draw(rt, "a"), text.Draw(rt, "b")
			for _, rows := range [][2]bigtable.Row{
				{rowOf(a, "new:q", "v"), rowOf(b, "new:q", "v")}, {rowOf("k", "new:"+a, "v"), rowOf("k", "new:"+b, "v")},
			} {
				x, errX := e.Row(rows[0])
				y, errY := e.Row(rows[1])
				if errX != nil || errY != nil {
					rt.Fatalf("%v, %v", errX, errY)
				}
				if alike := string(x[0].Body) == string(y[0].Body); alike != (a == b) {
					rt.Fatalf("key %s: %q and %q print as %s and %s", key, a, b, x[0].Body, y[0].Body)
				}
			}
		})
	}
}

func TestTimesPrintAsTheLibraryPrintsThem(t *testing.T) {
	var c clock
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.OneOf(
			rapid.Int64(), rapid.Int64Range(-62_135_596_800_000_001, 253_402_300_800_000_000), rapid.Int64Range(0, 2_000_000_000_000_000),
			rapid.SampledFrom([]int64{-62_135_596_800_000_000, -62_135_596_800_000_001, 253_402_300_799_999_999, 253_402_300_800_000_000, 0, -1, 86_400_000_000, 86_399_999_999}),
		).Draw(t, "micros")
		want := strconv.FormatInt(micros, 10)
		if at := time.UnixMicro(micros).UTC(); at.Year() >= 1 && at.Year() <= 9999 {
			want = strconv.Quote(at.Format(time.RFC3339Nano))
		}
		if got := string(c.append(nil, micros)); got != want {
			t.Fatalf("%d prints as %s, want %s", micros, got, want)
		}
	})
}

func TestTextThatNeedsNoEscapeIsTold(t *testing.T) {
	plain := rapid.SliceOfN(rapid.ByteRange(0x20, 0x7f), 0, 40)
	rapid.Check(t, func(t *rapid.T) {
		text := plain.Draw(t, "text")
		if len(text) > 0 && rapid.Bool().Draw(t, "spoil") {
			text[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = rapid.SampledFrom([]byte{0, 1, 0x1f, '"', '\\', 0x80, 0xff, 0x7f, ' ', '!', '#', '[', ']'}).Draw(t, "byte")
		}
		if got, want := isPlain(text), isPlainSlow(text); got != want {
			t.Fatalf("%q: %t, want %t", text, got, want)
		}
	})
}

// A qualifier that is no text is printed as the file writes it as a key, and no other
// prints so.
func TestAFamilyWithAQualifierThatIsNoTextIsPrinted(t *testing.T) {
	row := rowOf("k", "cf:status", "PAID", "cf:\xff", "x", `cf:{base64: "/w=="}`, "y", "cf:\x00", "z")
	for expression, want := range map[string]string{
		"row.cf": `{"x":{"\u0000":"eg==","status":"PAID","{base64: \"/w==\"}":"eA==","{base64: \"e2Jhc2U2NDogIi93PT0ifQ==\"}":"eQ=="}}`,
		"row":    `{"x":{"cf":{"\u0000":"eg==","status":"PAID","{base64: \"/w==\"}":"eA==","{base64: \"e2Jhc2U2NDogIi93PT0ifQ==\"}":"eQ=="},"odd-name":{},"totals":{}}}`,
		"row.cf.filter(q, q == '{base64: \"/w==\"}')": `{"x":["{base64: \"/w==\"}"]}`,
		"string(row.cf['{base64: \"/w==\"}'])":        `{"x":"x"}`,
		"size(row.cf)":                                `{"x":4}`,
	} {
		e := emitOf(t, "string", "emit: {x: '"+strings.ReplaceAll(expression, "'", "''")+"'}")
		if got := onlyRecord(t, e, row); got != want {
			t.Errorf("%s: got  %s\nwant %s", expression, got, want)
		}
	}
}
