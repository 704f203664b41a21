package cell

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimesAreReadInOneWay(t *testing.T) {
	at := time.Date(2026, 8, 30, 10, 15, 30, 123e6, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-08-30T10:15:30.123Z":        at,
		"2026-08-30t10:15:30.123z":        at,
		"2026-08-30T12:15:30.123+02:00":   at,
		"2026-08-31T10:14:30.123+23:59":   at,
		"2026-08-30T10:15:30Z":            at.Truncate(time.Second),
		"2026-08-30T10:15:30.123456789Z":  at.Add(456789),
		"2026-08-30T10:15:30.1234567890Z": {},
		"2026-08-30T10:15:30.1234567891Z": {},
		"2026-08-30T23:59:60Z":            {},
		"2016-12-31T23:59:60Z":            {},
		"2026-08-30T10:15:30":             {},
		"2026-08-30 10:15:30Z":            {},
		"2026-08-30T10:15Z":               {},
		"2026-08-30T10:15:30.Z":           {},
		"2026-08-30T10:15:30,5Z":          {},
		"2026-08-30T10:15:30+2:00":        {},
		"2026-08-30T10:15:30+24:00":       {},
		"2026-08-30T10:15:30+02:60":       {},
		"2026-08-30T10:15:30+0200":        {},
		"2026-02-30T10:15:30Z":            {},
		"2026-08-30T25:15:30Z":            {},
		"0001-01-01T00:00:00+01:00":       {},
		"0001-01-01T00:00:01Z":            time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		"9999-12-31T23:59:59Z":            time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		"9999-12-31T23:59:59-01:00":       {},
		"10000-01-01T00:00:00Z":           {},
		"-2026-08-30T10:15:30Z":           {},
		"1788084930123":                   {},
		"":                                {},
		"２０２６-08-30T10:15:30Z":            {},
		strings.Repeat("2026", 1<<20):     {},
	} {
		got, err := ParseTime(text)
		if refused := want.IsZero(); refused != (err != nil) || !refused && !got.Equal(want) {
			t.Errorf("%.60q: %v %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		"2026-08-30T10:15:30.1234567890Z": errFineTime, "2026-08-30T10:15:30.1234567890+02:00": errFineTime,
		"2016-12-31T23:59:60Z": errLeapSecond, "1788084930123": errMillisText, "yesterday": errNoTime,
	} {
		if _, err := ParseTime(text); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestEveryTimeThatIsPrintedIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
		if got, err := ParseTime(at.Format(time.RFC3339Nano)); err != nil || !got.Equal(at) {
			t.Fatalf("%v: %v %v", at, got, err)
		}
	})
}

func TestNumbersThatADoubleDoesNotHoldAreTold(t *testing.T) {
	for text, exact := range map[string]bool{
		"0.1": true, "1.5": true, "1e3": true, "1.0": true, "0.0": true, "-0.0": true, "0e5": true, "123456789012345.0": true, "0.30000000000000004": true,
		"1e15": true, "100000000000000000000.0": true, "1.7976931348623157e308": true, "5e-324": true, "9007199254740993.0": false,
		"0.1234567890123456789": false, "1e-400": false, "4e-324": false, "3.14159265358979323846": false, "-0.1234567890123456789": false,
	} {
		f := parseFloat(t, text)
		v := Number(f, text)
		if inexact, is := v.(Inexact); is == exact || is && (inexact.Text != text || inexact.Double != f) {
			t.Errorf("%s: %#v", text, v)
		}
	}
	n := Number(parseFloat(t, "0.1234567890123456789"), "0.1234567890123456789")
	for _, e := range []Encoding{{Kind: String}, {Kind: Decimal, Precision: 38, Scale: 20}, {Kind: Bytes}, {Kind: Int64}, {Kind: Timestamp}} {
		if _, err := e.Append(nil, n, ""); !errors.Is(err, ErrInexact) {
			t.Errorf("%s: %v", e, err)
		}
	}
	if b, err := (Encoding{Kind: Float64}).Append(nil, n, ""); err != nil || len(b) != 8 {
		t.Errorf("a double: %v %v", b, err)
	}
	if b, err := (Encoding{Kind: JSON}).Append(nil, map[string]any{"n": n}, ""); err != nil || string(b) != `{"n":0.1234567890123456789}` {
		t.Errorf("JSON: %s %v", b, err)
	}
}

func parseFloat(t *testing.T, text string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
