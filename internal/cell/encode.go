package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Append appends the bytes of v to dst. On an error it returns dst as it was.
//
// v is nil, bool, int64, uint64, float64, string, []byte, time.Time,
// time.Duration, or for JSON a tree of these in []any and map[string]any. A nil
// is nullString in a string column and an empty cell everywhere else; text equal
// to nullString reads back as a null.
//
// What is taken: string: text. bytes: bytes, and text as its UTF-8. bool: bool.
// Integers: int64 and uint64 within range. Floats: float64 (float32 rounds to
// the nearest, and an overflow is an error) and integers that are exact. decimal:
// text and integers, exactly, then rounded half away from zero to Scale; what
// then has more than Precision digits is an error. date: a time at midnight UTC,
// or text such as 2006-01-02. time: a duration from 0 to below 24 h, or text such
// as 15:04:05.000. timestamp: a time, or RFC 3339 text. Times finer than a
// millisecond are errors. json: any tree, compact, keys sorted by their bytes;
// bytes in it are standard padded base64, a whole double keeps its ".0", a time that no
// calendar holds is its milliseconds. It takes a float32 too, which is shorter than the
// same double, and a json.RawMessage as it stands.
func (e Encoding) Append(dst []byte, v any, nullString string) ([]byte, error) {
	if v == nil {
		if e.Kind == String {
			return append(dst, nullString...), nil
		}
		return dst, nil
	}
	if n, ok := v.(Inexact); ok && e.Kind != JSON {
		if e.Kind != Float32 && e.Kind != Float64 {
			return dst, ErrInexact
		}
		v = n.Double
	}
	switch e.Kind {
	case Bytes:
		return appendBytes(dst, v)
	case String:
		return appendText(dst, v)
	case Bool:
		return appendBool(dst, v)
	case Int8, Int16, Int32, Int64:
		return e.appendInt(dst, v)
	case Float32, Float64:
		return e.appendFloat(dst, v)
	case Decimal:
		return e.appendDecimal(dst, v)
	case Date:
		return appendDate(dst, v)
	case Time:
		return appendTime(dst, v)
	case Timestamp:
		return appendTimestamp(dst, v)
	case JSON:
		return appendJSON(dst, v)
	}
	return dst, fmt.Errorf("no such encoding: %v", e.Kind)
}

// ErrInexact refuses a number where its digits would show. It quotes none of them.
var ErrInexact = errors.New("the number has more digits than a double holds: send it as text")

// TypeName is what the expression language (CEL) calls the type of v, a value as
// Encoding.Append takes it.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case int64:
		return "int"
	case uint64:
		return "uint"
	case float64, Inexact:
		return "double"
	case string:
		return "string"
	case []byte:
		return "bytes"
	case time.Time:
		return "timestamp"
	case time.Duration:
		return "duration"
	case []any:
		return "list"
	case map[string]any:
		return "map"
	}
	return fmt.Sprintf("%T", v)
}

// TypeError says that an encoding takes no value of a type, whatever the value is.
type TypeError struct{ takes, hint string }

// Error says what the encoding takes, and hints at the expression to write.
func (e *TypeError) Error() string {
	if e.hint == "" {
		return e.takes
	}
	return e.takes + ": " + e.hint
}

// Takes says what the encoding takes, without the hint.
func (e *TypeError) Takes() string { return e.takes }

// mismatch says that an encoding does not take the type of v, and what to write.
func mismatch(encoding, takes string, v any, hint string) error {
	return &TypeError{fmt.Sprintf("%s takes %s, not %s", encoding, takes, TypeName(v)), hint}
}

// Fits returns a *TypeError if the encoding takes no value of the type of v, which stands
// for all values of its type.
func (e Encoding) Fits(v any) error {
	_, err := e.Append(nil, v, "")
	var mismatched *TypeError
	if errors.As(err, &mismatched) {
		return mismatched
	}
	return nil
}

func appendBytes(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return append(dst, v...), nil
	case string:
		return append(dst, v...), nil
	case []any, map[string]any:
		return dst, mismatch("bytes", "bytes or text", v, "declare the column as json")
	}
	return dst, mismatch("bytes", "bytes or text", v, "declare the column's encoding, or convert with string()")
}

func appendText(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return dst, errors.New("string takes UTF-8 text: declare the column as bytes")
		}
		return append(dst, v...), nil
	case []any, map[string]any:
		return dst, mismatch("string", "text", v, "declare the column as json")
	}
	return dst, mismatch("string", "text", v, "convert with string()")
}

func appendBool(dst []byte, v any) ([]byte, error) {
	b, ok := v.(bool)
	if !ok {
		return dst, mismatch("bool", "bool", v, "compare it with something, or convert text with bool()")
	}
	if b {
		return append(dst, 0xFF), nil
	}
	return append(dst, 0), nil
}

func (e Encoding) appendInt(dst []byte, v any) ([]byte, error) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case uint64:
		if v > math.MaxInt64 {
			return dst, fmt.Errorf("the value is out of range for %s", e)
		}
		n = int64(v)
	case float64, string:
		return dst, mismatch(e.String(), "int", v, "convert with int()")
	default:
		return dst, mismatch(e.String(), "int", v, "")
	}
	switch {
	case e.Kind == Int8 && int64(int8(n)) == n:
		return append(dst, byte(n)), nil
	case e.Kind == Int16 && int64(int16(n)) == n:
		return binary.BigEndian.AppendUint16(dst, uint16(n)), nil
	case e.Kind == Int32 && int64(int32(n)) == n:
		return binary.BigEndian.AppendUint32(dst, uint32(n)), nil
	case e.Kind == Int64:
		return binary.BigEndian.AppendUint64(dst, uint64(n)), nil
	}
	return dst, fmt.Errorf("the value is out of range for %s", e)
}

func (e Encoding) appendFloat(dst []byte, v any) ([]byte, error) {
	f, err := e.float(v)
	if err != nil {
		return dst, err
	}
	if e.Kind == Float64 {
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(f)), nil
	}
	bits, ok := narrow(f)
	if !ok {
		return dst, fmt.Errorf("the value is out of range for %s", e)
	}
	return binary.BigEndian.AppendUint32(dst, bits), nil
}

// float returns v as a double; an integer must be one that the encoding holds
// exactly.
func (e Encoding) float(v any) (float64, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case int64:
		f := float64(v)
		if f == 1<<63 || int64(f) != v || (e.Kind == Float32 && float64(float32(f)) != f) {
			return 0, fmt.Errorf("the integer is not exact as %s: convert with double() to round it", e)
		}
		return f, nil
	case uint64:
		f := float64(v)
		if f == 1<<64 || uint64(f) != v || (e.Kind == Float32 && float64(float32(f)) != f) {
			return 0, fmt.Errorf("the integer is not exact as %s: convert with double() to round it", e)
		}
		return f, nil
	case string:
		return 0, mismatch(e.String(), "double or int", v, "convert with double()")
	}
	return 0, mismatch(e.String(), "double or int", v, "")
}

const (
	nanFloat32  = 0x7F800000
	mantissa64  = 1<<52 - 1
	mantissa32  = 1<<23 - 1
	mantissaGap = 29
)

// narrow returns the float32 bits nearest to f. A NaN keeps its sign and the
// upper bits of its payload, which a conversion would make quiet.
func narrow(f float64) (bits uint32, ok bool) {
	if math.IsNaN(f) {
		b := math.Float64bits(f)
		payload := uint32(b & mantissa64 >> mantissaGap)
		if payload == 0 {
			payload = 1 << 22 // all zero would read as an infinity
		}
		return uint32(b>>63)<<31 | nanFloat32 | payload, true
	}
	g := float32(f)
	if math.IsInf(float64(g), 0) && !math.IsInf(f, 0) {
		return 0, false
	}
	return math.Float32bits(g), true
}

// widen is the inverse of narrow.
func widen(bits uint32) float64 {
	f := math.Float32frombits(bits)
	if f == f {
		return float64(f)
	}
	return math.Float64frombits(uint64(bits>>31)<<63 | 0x7FF<<52 | uint64(bits&mantissa32)<<mantissaGap)
}

const (
	day      = 24 * time.Hour
	daySecs  = int64(day / time.Second)
	dateForm = "2006-01-02"
)

func appendDate(dst []byte, v any) ([]byte, error) {
	var t time.Time
	switch v := v.(type) {
	case time.Time:
		t = v
	case string:
		var err error
		if t, err = time.Parse(dateForm, v); err != nil {
			return dst, errors.New("date takes text such as 2006-01-02; the text is not one")
		}
	default:
		return dst, mismatch("date", "a timestamp at midnight or text", v, "")
	}
	secs := t.Unix()
	if secs%daySecs != 0 || t.Nanosecond() != 0 {
		return dst, errors.New("date takes a timestamp at midnight UTC; for the day of another use utcDate()")
	}
	days := secs / daySecs
	if int64(int32(days)) != days {
		return dst, errors.New("the value is out of range for date")
	}
	return binary.BigEndian.AppendUint32(dst, uint32(days)), nil
}

func appendTime(dst []byte, v any) ([]byte, error) {
	var d time.Duration
	switch v := v.(type) {
	case time.Duration:
		d = v
	case string:
		t, err := parseClock(v)
		if err != nil {
			return dst, err
		}
		d = t
	case time.Time:
		return dst, mismatch("time", "a duration since midnight or text", v, `subtract its day: t - bucket(t, duration("24h"))`)
	default:
		return dst, mismatch("time", "a duration since midnight or text", v, "")
	}
	if d < 0 || d >= day {
		return dst, errors.New("time takes a duration from 0s to below 24h")
	}
	if d%time.Millisecond != 0 {
		return dst, errors.New("the value is finer than a millisecond, which is all that time holds")
	}
	return binary.BigEndian.AppendUint32(dst, uint32(d/time.Millisecond)), nil
}

// parseClock reads 15:04:05 with an optional fraction.
func parseClock(s string) (time.Duration, error) {
	// Go's layouts take one-digit hours and a comma; RFC 3339 does not.
	t, err := time.Parse("15:04:05", s)
	if err != nil || len(s) < 8 || s[2] != ':' || (len(s) > 8 && s[8] != '.') {
		return 0, errors.New("time takes text such as 15:04:05.000; the text is not one")
	}
	return t.Sub(t.Truncate(day)), nil
}

func appendTimestamp(dst []byte, v any) ([]byte, error) {
	var t time.Time
	switch v := v.(type) {
	case time.Time:
		t = v
	case string:
		var err error
		if t, err = ParseTime(v); err != nil {
			return dst, fmt.Errorf("timestamp %w", err)
		}
	case int64, uint64, float64:
		return dst, mismatch("timestamp", "a timestamp or text", v, "convert seconds since 1970 with timestamp(), and milliseconds with "+millisHint)
	default:
		return dst, mismatch("timestamp", "a timestamp or text", v, "")
	}
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		return dst, errors.New("the value is finer than a millisecond, which is all that timestamp holds: wrap it in millis()")
	}
	ms := t.UnixMilli()
	if !time.UnixMilli(ms).Equal(t) {
		return dst, errors.New("the value is out of range for timestamp")
	}
	return binary.BigEndian.AppendUint64(dst, uint64(ms)), nil
}
