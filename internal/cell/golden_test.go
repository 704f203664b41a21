package cell

import (
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// golden is one value and the bytes that HBase's Bytes class, or Flink's HBase
// connector on top of it, would write for it; worked out by hand.
type golden struct {
	encoding string
	value    any
	bytes    string // hex
	reads    any    // what Decode returns; nil: value
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

var nanPayload = math.Float64frombits(0x7FF0000000000001)

var goldens = []golden{
	{"string", "héllo", "68c3a96c6c6f", nil},
	{"string", "", "", nil},
	{"bytes", []byte{0xFF, 0x00}, "ff00", nil},
	{"bytes", "é", "c3a9", []byte("é")},
	{"bool", true, "ff", nil},
	{"bool", false, "00", nil},
	{"int8", int64(-128), "80", nil},
	{"int8", int64(127), "7f", nil},
	{"int16", int64(-1), "ffff", nil},
	{"int16", int64(-32768), "8000", nil},
	{"int32", int64(-2147483648), "80000000", nil},
	{"int32", int64(258), "00000102", nil},
	{"int64", int64(math.MinInt64), "8000000000000000", nil},
	{"int64", int64(-1), "ffffffffffffffff", nil},
	{"int64", int64(math.MaxInt64), "7fffffffffffffff", nil},
	{"int64", uint64(1), "0000000000000001", int64(1)},
	{"float32", 1.5, "3fc00000", nil},
	{"float32", math.Copysign(0, -1), "80000000", nil},
	{"float32", widen(0x7FA00001), "7fa00001", nil}, // a signalling NaN
	{"float32", int64(16777216), "4b800000", 16777216.0},
	{"float64", -0.1, "bfb999999999999a", nil},
	{"float64", math.Copysign(0, -1), "8000000000000000", nil},
	{"float64", nanPayload, "7ff0000000000001", nil},
	{"float64", math.Inf(-1), "fff0000000000000", nil},
	{"float64", int64(-3), "c008000000000000", -3.0},
	{"decimal(10,2)", "12.30", "0000000204ce", nil},
	{"decimal(10,2)", "-12.30", "00000002fb32", nil},
	{"decimal(10,2)", "0", "0000000200", "0.00"},
	{"decimal(10,2)", "-0.00", "0000000200", "0.00"},
	{"decimal(10,2)", "1.28", "000000020080", nil},   // 128 needs a sign byte
	{"decimal(10,2)", "-1.28", "0000000280", nil},    // -128 does not
	{"decimal(10,2)", "-1.29", "00000002ff7f", nil},  // -129 does
	{"decimal(10,2)", "0.005", "0000000201", "0.01"}, // half away from zero
	{"decimal(10,2)", "-0.005", "00000002ff", "-0.01"},
	{"decimal(10,2)", "0.0049", "0000000200", "0.00"},
	{"decimal(10,2)", "1e3", "00000002" + "0186a0", "1000.00"},
	{"decimal(5,0)", int64(-1), "00000000ff", "-1"},
	{"decimal(20,0)", uint64(math.MaxUint64), "00000000" + "00ffffffffffffffff", "18446744073709551615"},
	{"decimal(5,-2)", "1234", "fffffffe0c", "1200"}, // 12 × 10²
	{"decimal(5,-2)", int64(0), "fffffffe00", "0"},
	{"date", at("1970-01-01T00:00:00Z"), "00000000", nil},
	{"date", at("1969-12-31T00:00:00Z"), "ffffffff", nil},
	{"date", "2026-08-30", "000050d7", at("2026-08-30T00:00:00Z")},
	{"date", at("0001-01-01T00:00:00Z"), "fff506c6", nil},
	{"time", time.Duration(0), "00000000", nil},
	{"time", "23:59:59.999", "05265bff", 24*time.Hour - time.Millisecond},
	{"timestamp", at("1970-01-01T00:00:00Z"), "0000000000000000", nil},
	{"timestamp", at("1969-12-31T23:59:59.999Z"), "ffffffffffffffff", nil},
	{"timestamp", "1970-01-01T01:00:00.001+01:00", "0000000000000001", at("1970-01-01T00:00:00.001Z")},
	{"timestamp", at("0001-01-01T00:00:00Z"), "ffffc77cedd32800", nil},
	{"timestamp", time.UnixMilli(math.MinInt64).UTC(), "8000000000000000", nil},
	{"timestamp", time.UnixMilli(math.MaxInt64).UTC(), "7fffffffffffffff", nil},
	{"json", map[string]any{"b": int64(math.MinInt64), "a": []any{nil, true, "é\"\n\u2028", uint64(math.MaxUint64), 1.0, -0.5}},
		hex.EncodeToString([]byte(`{"a":[null,true,"é\"\n` + "\u2028" + `",18446744073709551615,1.0,-0.5],"b":-9223372036854775808}`)), nil},
	{"json", []any{[]byte{0xFF}, at("2026-08-30T10:15:30.5Z"), 1500 * time.Millisecond, math.Copysign(0, -1), 1e21, 1e-7},
		hex.EncodeToString([]byte(`["/w==","2026-08-30T10:15:30.5Z","1.5s",-0.0,1e+21,1e-07]`)),
		[]any{"/w==", "2026-08-30T10:15:30.5Z", "1.5s", math.Copysign(0, -1), 1e21, 1e-7}},
	{"json", "", hex.EncodeToString([]byte(`""`)), nil},
}

func encoding(t testing.TB, s string) Encoding {
	t.Helper()
	e, err := ParseEncoding(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// same compares values and takes NaNs by their bits.
func same(a, b any) bool {
	x, xFloat := a.(float64)
	y, yFloat := b.(float64)
	if xFloat && yFloat {
		return math.Float64bits(x) == math.Float64bits(y)
	}
	return reflect.DeepEqual(a, b)
}

// covers: SQL-03, SQL-04, SQL-06, SQL-32
func TestGoldenVectorsInBothDirections(t *testing.T) {
	for _, g := range goldens {
		e := encoding(t, g.encoding)
		got, err := e.Append([]byte("x"), g.value, "null")
		if err != nil || hex.EncodeToString(got) != "78"+g.bytes {
			t.Errorf("%s of %v: got x%x, %v; want %s", g.encoding, g.value, got[min(1, len(got)):], err, g.bytes)
			continue
		}
		want := g.reads
		if want == nil {
			want = g.value
		}
		if back, err := e.Decode(got[1:], "null"); err != nil || !same(back, want) {
			t.Errorf("%s of %s: read %#v, %v; want %#v", g.encoding, g.bytes, back, err, want)
		}
	}
}

// covers: SQL-07, SQL-08
func TestNullsAreEmptyCellsButInStrings(t *testing.T) {
	for _, name := range Names() {
		name = strings.Replace(name, "p,s", "10,2", 1)
		e := encoding(t, name)
		cell, err := e.Append(nil, nil, "NIL")
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if e.Kind == String {
			want = "NIL"
		}
		if string(cell) != want {
			t.Errorf("%s writes a null as %q, want %q", name, cell, want)
		}
		if v, err := e.Decode(cell, "NIL"); v != nil || err != nil {
			t.Errorf("%s reads a null as %v, %v", name, v, err)
		}
	}
	e := encoding(t, "string")
	if v, err := e.Decode(nil, "null"); v != "" || err != nil {
		t.Errorf("an empty string cell reads as %v, %v", v, err)
	}
	if v, err := e.Decode(nil, ""); v != nil || err != nil {
		t.Errorf("an empty string cell reads as %v, %v where the null is empty", v, err)
	}
	if v, err := encoding(t, "json").Decode([]byte(" null"), ""); v != nil || err != nil {
		t.Errorf("a JSON null reads as %v, %v", v, err)
	}
}

// covers: SQL-09
func TestShortCellsFailAndLongOnesAreRead(t *testing.T) {
	for name, size := range map[string]int{
		"int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8, "date": 4, "time": 4, "timestamp": 8,
	} {
		e := encoding(t, name)
		for n := 1; n < size; n++ {
			if v, err := e.Decode(make([]byte, n), ""); err == nil {
				t.Errorf("%s of %d bytes reads as %v", name, n, v)
			}
		}
		exact, err := e.Decode(make([]byte, size), "")
		long, err2 := e.Decode(append(make([]byte, size), 0xFF, 0xFF), "")
		if err != nil || err2 != nil || !same(exact, long) {
			t.Errorf("%s: %v, %v with bytes after it: %v, %v", name, exact, err, long, err2)
		}
	}
	if _, err := encoding(t, "int64").Decode(make([]byte, 7), ""); err == nil || err.Error() != "the cell has 7 bytes, and int64 needs 8" {
		t.Errorf("got %v", err)
	}
	if _, err := encoding(t, "decimal(5,2)").Decode(make([]byte, 4), ""); err == nil {
		t.Error("a decimal of 4 bytes is read")
	}
	for b, want := range map[byte]bool{0: false, 1: true, 0x80: true, 0xFF: true} {
		if v, err := encoding(t, "bool").Decode([]byte{b, 0}, ""); v != want || err != nil {
			t.Errorf("%x reads as %v, %v", b, v, err)
		}
	}
}

// covers: SQL-09
func TestDecimalsOfAnyScaleAreReadAtTheDeclaredOne(t *testing.T) {
	for bytes, want := range map[string]string{
		"0000000004d2": "1234.00", "ffffffff7b": "1230.00", "0000000504d2": "0.01", "00000005ffff": "0.00",
		"000000020001": "0.01", "0000000200": "0.00", "7fffffff01": "0.00", "7fffffff00": "0.00", "8000000000": "0.00",
	} {
		b, _ := hex.DecodeString(bytes)
		if got, err := encoding(t, "decimal(6,2)").Decode(b, ""); got != want || err != nil {
			t.Errorf("%s reads as %v, %v; want %s", bytes, got, err, want)
		}
	}
	for _, bytes := range []string{
		"00000000" + "2710",     // 10000.00 has seven digits
		"00000003" + "3b9ac9fb", // 999999.995 has too many already
		"00000003" + "0098967b", // 9999.995 rounds to 10000.00
		"8000000001", "00000000" + strings.Repeat("7f", 2000),
	} {
		b, _ := hex.DecodeString(bytes)
		if got, err := encoding(t, "decimal(6,2)").Decode(b, ""); err == nil {
			t.Errorf("%.20s reads as %v", bytes, got)
		}
	}
}

// covers: SQL-05
func TestWhatAnEncodingDoesNotTakeIsRefusedWithAHint(t *testing.T) {
	for _, c := range []struct {
		encoding string
		value    any
		want     string
	}{
		{"string", int64(7), "string takes text, not int: convert with string()"},
		{"string", []byte("x"), "string takes text, not bytes: convert with string()"},
		{"string", []any{}, "string takes text, not list: declare the column as json"},
		{"string", "\xff", "UTF-8"},
		{"bytes", int64(7), "bytes takes bytes or text, not int"},
		{"bool", "true", "bool takes bool, not string"},
		{"int64", 1.0, "int64 takes int, not double: convert with int()"},
		{"int64", "1", "int64 takes int, not string: convert with int()"},
		{"int64", true, "int64 takes int, not bool"},
		{"int64", uint64(math.MaxInt64) + 1, "out of range for int64"},
		{"int8", int64(128), "out of range for int8"},
		{"int16", int64(-32769), "out of range for int16"},
		{"int32", int64(1) << 31, "out of range for int32"},
		{"float32", 1e39, "out of range for float32"},
		{"float32", int64(16777217), "not exact as float32: convert with double()"},
		{"float64", int64(math.MaxInt64), "not exact as float64"},
		{"float64", int64(1)<<53 + 1, "not exact as float64"},
		{"float64", uint64(math.MaxUint64), "not exact as float64"},
		{"float64", "1", "convert with double()"},
		{"decimal(4,2)", 1.5, "not double: send the number as text"},
		{"decimal(4,2)", "100", "more digits than decimal(4,2) holds"},
		{"decimal(4,2)", "99.995", "more digits than decimal(4,2) holds"},
		{"decimal(4,2)", "1e999999999", "more digits"},
		{"decimal(4,2)", ".", "not a number"},
		{"decimal(4,2)", "1,5", "not a number"},
		{"decimal(4,2)", "", "not a number"},
		{"decimal(4,2)", "0x1", "not a number"},
		{"date", at("2026-08-30T10:15:30Z"), "utcDate()"},
		{"date", "30.08.2026", "text such as 2006-01-02"},
		{"date", "2026-02-30", "text such as 2006-01-02"},
		{"date", int64(1), "date takes a timestamp at midnight or text, not int"},
		{"time", 24 * time.Hour, "below 24h"},
		{"time", -time.Millisecond, "from 0s"},
		{"time", time.Microsecond, "finer than a millisecond"},
		{"time", "1:00:00", "text such as 15:04:05.000"},
		{"time", "01:00:00,5", "text such as 15:04:05.000"},
		{"time", at("2026-08-30T10:15:30Z"), "bucket("},
		{"timestamp", at("2026-08-30T10:15:30.0001Z"), "wrap it in millis()"},
		{"timestamp", "2026-08-30T10:15:30.0001Z", "wrap it in millis()"},
		{"timestamp", "2026-08-30 10:15:30", "RFC 3339"},
		{"timestamp", "2026-08-30T1:15:30Z", "RFC 3339"},
		{"timestamp", "2026-08-30T10:15:30,5Z", "RFC 3339"},
		{"timestamp", int64(1), "convert seconds since 1970 with timestamp()"},
		{"timestamp", time.Unix(1<<60, 0), "out of range"},
		{"json", math.NaN(), "NaN"},
		{"json", map[string]any{"a": []any{math.Inf(1)}}, "infinity"},
		{"json", map[string]any{"\xff": nil}, "UTF-8"},
		{"json", struct{}{}, "values of JSON"},
	} {
		got, err := encoding(t, c.encoding).Append([]byte("kept"), c.value, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || string(got) != "kept" {
			t.Errorf("%s of %v: got %q, %v; want an error with %q", c.encoding, c.value, got, err, c.want)
		}
	}
}

func TestErrorsNeverQuoteTheValue(t *testing.T) {
	const secret = "hunter2"
	for _, name := range Names() {
		e := encoding(t, strings.Replace(name, "p,s", "10,2", 1))
		for _, v := range []any{secret, []byte(secret), []any{secret}, map[string]any{secret: math.NaN()}} {
			if _, err := e.Append(nil, v, ""); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", e, err)
			}
		}
		if _, err := e.Decode([]byte(secret+"\xff"), ""); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", e, err)
		}
	}
}

func TestJSONCellsThatAreNotExactAreRefused(t *testing.T) {
	for _, s := range []string{
		`{"a":1,"a":1}`, `18446744073709551616`, `-9223372036854775809`, `1e999`, `"\ud800"`, `"\udc00\ud800"`, `{"\ud800":1}`, "\"\xff\"",
		`{} x`, `{"a":1,}`, ` `, strings.Repeat("[", 1002) + strings.Repeat("]", 1002),
	} {
		if v, err := encoding(t, "json").Decode([]byte(s), ""); err == nil {
			t.Errorf("%.30s reads as %v", s, v)
		}
	}
	v, err := encoding(t, "json").Decode([]byte("\n{ \"a\\u0000\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\"\\\\\" : [ 1 , 2.0 , { } , [ ] , \"\\uFFFD\" ] }\r\n"), "")
	want := map[string]any{"a\x00😀/\b\f\n\r\t\"\\": []any{int64(1), 2.0, map[string]any{}, []any{}, "\ufffd"}}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("got %#v, %v; want %#v", v, err, want)
	}
}

func TestEncodingsAreReadAsTheyPrint(t *testing.T) {
	for _, name := range Names() {
		name = strings.Replace(name, "p,s", "38,-38", 1)
		if e := encoding(t, name); e.String() != name {
			t.Errorf("%s prints as %s", name, e)
		}
	}
	if e := encoding(t, "decimal( 10 , 2 )"); e != (Encoding{Decimal, 10, 2}) {
		t.Errorf("got %v", e)
	}
	for _, name := range []string{"", "int", "String", "decimal", "decimal(10)", "decimal(0,0)", "decimal(39,0)", "decimal(10,39)", "decimal(p,s)", "Kind(3)"} {
		if e, err := ParseEncoding(name); err == nil {
			t.Errorf("%q reads as %v", name, e)
		}
	}
	if (Encoding{}).String() != "bytes" {
		t.Error("the zero encoding is not bytes")
	}
}
