package cell

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of a tree, so that a hostile one cannot exhaust
// the stack.
const maxJSONDepth = 1000

// maxJSON bounds the text of one cell, in bytes, well over the 100 MB that Bigtable
// takes: parts of a tree may be shared and are not in its text.
const maxJSON = 128 << 20

func appendJSON(dst []byte, v any) ([]byte, error) {
	out, err := appendValue(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("json is nested deeper than %d", maxJSONDepth)
	}
	if len(dst) > maxJSON {
		return nil, fmt.Errorf("json of more than %d bytes", maxJSON)
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case uint64:
		return strconv.AppendUint(dst, v, 10), nil
	case float64:
		return appendFloat(dst, v, 64)
	case Inexact:
		return append(dst, v.Text...), nil
	case float32:
		return appendFloat(dst, float64(v), 32)
	case string:
		return appendQuoted(dst, v)
	case []byte:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v)
		return append(dst, '"'), nil
	case json.RawMessage:
		return append(dst, v...), nil
	case time.Time:
		if !InCalendar(v) {
			return strconv.AppendInt(dst, v.UnixMilli(), 10), nil
		}
		return appendQuoted(dst, v.UTC().Format(time.RFC3339Nano))
	case time.Duration:
		return appendQuoted(dst, strconv.FormatFloat(v.Seconds(), 'f', -1, 64)+"s")
	case []any:
		return appendList(dst, v, depth)
	case map[string]any:
		return appendMap(dst, v, depth)
	}
	return nil, mismatch("json", "values of JSON", v, "")
}

func appendList(dst []byte, list []any, depth int) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendValue(dst, v, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendMap(dst []byte, m map[string]any, depth int) (_ []byte, err error) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendQuoted(dst, k); err != nil {
			return nil, err
		}
		dst = append(dst, ':')
		if dst, err = appendValue(dst, m[k], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// InCalendar reports whether a time has a year of 1 to 9999, as RFC 3339 writes it.
func InCalendar(t time.Time) bool { y := t.UTC().Year(); return y >= 1 && y <= 9999 }

// appendFloat prints the shortest text that reads back as the same number of so many
// bits. A whole one keeps a fraction or an exponent, which is what tells it from an
// integer.
func appendFloat(dst []byte, f float64, bits int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("json holds neither NaN nor an infinity")
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, format, -1, bits)
	if format == 'f' && !slices.Contains(dst[start:], '.') {
		dst = append(dst, ".0"...)
	}
	return dst, nil
}

func appendQuoted(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, errors.New("json takes UTF-8 text only")
	}
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"'), nil
}

// decodeJSON reads one value with the rules of records: exact integers up to 64
// bits, no duplicate keys, no lone surrogates.
func decodeJSON(b []byte) (any, error) {
	if !json.Valid(b) || !utf8.Valid(b) {
		return nil, errors.New("the cell is not JSON text")
	}
	r := reader{rest: strings.TrimLeft(string(b), " \t\r\n")}
	return r.value(0)
}

// reader walks text that json.Valid has accepted, so it checks no syntax.
type reader struct{ rest string }

// next drops n bytes and the white space after them.
func (r *reader) next(n int) { r.rest = strings.TrimLeft(r.rest[n:], " \t\r\n") }

func (r *reader) value(depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("json is nested deeper than %d", maxJSONDepth)
	}
	switch r.rest[0] {
	case 'n':
		r.next(len("null"))
		return nil, nil
	case 't':
		r.next(len("true"))
		return true, nil
	case 'f':
		r.next(len("false"))
		return false, nil
	case '"':
		return r.text()
	case '[':
		return r.list(depth)
	case '{':
		return r.object(depth)
	}
	return r.number()
}

func (r *reader) list(depth int) (any, error) {
	list := []any{}
	for r.next(1); r.rest[0] != ']'; {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if r.rest[0] == ',' {
			r.next(1)
		}
	}
	r.next(1)
	return list, nil
}

func (r *reader) object(depth int) (any, error) {
	m := map[string]any{}
	for r.next(1); r.rest[0] != '}'; {
		key, err := r.text()
		if err != nil {
			return nil, err
		}
		if _, twice := m[key]; twice {
			return nil, errors.New("a JSON object in the cell has one name twice")
		}
		r.next(1) // the colon
		if m[key], err = r.value(depth + 1); err != nil {
			return nil, err
		}
		if r.rest[0] == ',' {
			r.next(1)
		}
	}
	r.next(1)
	return m, nil
}

func (r *reader) number() (any, error) {
	n := 0
	for n < len(r.rest) && strings.IndexByte("+-.eE0123456789", r.rest[n]) >= 0 {
		n++
	}
	text := r.rest[:n]
	r.next(n)
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return u, nil
		}
		return nil, errors.New("an integer in the cell's JSON is beyond 64 bits")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errors.New("a number in the cell's JSON is too large for a double")
	}
	return f, nil
}

func (r *reader) text() (string, error) {
	var out []byte
	i := 1
	for r.rest[i] != '"' {
		if r.rest[i] != '\\' {
			out = append(out, r.rest[i])
			i++
			continue
		}
		n, c := unescape(r.rest[i:])
		if c == utf8.RuneError && n == 6 && !strings.EqualFold(r.rest[i:i+6], `\ufffd`) {
			return "", errors.New("a text in the cell's JSON has a lone surrogate")
		}
		out = utf8.AppendRune(out, c)
		i += n
	}
	r.next(i + 1)
	return string(out), nil
}

// unescape reads the escape that s starts with: its length and its character, or
// utf8.RuneError for a lone surrogate.
func unescape(s string) (n int, c rune) {
	switch s[1] {
	case 'b':
		return 2, '\b'
	case 'f':
		return 2, '\f'
	case 'n':
		return 2, '\n'
	case 'r':
		return 2, '\r'
	case 't':
		return 2, '\t'
	case 'u':
		hi := hex4(s[2:6])
		if !utf16.IsSurrogate(hi) {
			return 6, hi
		}
		if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
			if c := utf16.DecodeRune(hi, hex4(s[8:12])); c != utf8.RuneError {
				return 12, c
			}
		}
		return 6, utf8.RuneError
	}
	return 2, rune(s[1])
}

func hex4(s string) rune {
	n, _ := strconv.ParseUint(s, 16, 32)
	return rune(n)
}
