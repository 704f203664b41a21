package pipetest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// errNoLiteral: a value has no literal that a test could say it with.
var errNoLiteral = errors.New("a value that no test can write out: a double that is no number of JSON, or a time that no calendar holds")

// plainName is text that every YAML reader takes for itself.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]+$`)

// word writes text as a YAML scalar: plain where all readers agree on it, else in
// double quotes, in which nothing unprintable stands as it is.
func word(s string) string {
	switch strings.ToLower(s) {
	case "yes", "no", "on", "off", "true", "false", "null", "base64":
		return strconv.Quote(s)
	}
	if plainName.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// bytesLiteral writes bytes: text where they are, else {base64: "…"}.
func bytesLiteral(b []byte) string {
	if utf8.Valid(b) {
		return strconv.Quote(string(b))
	}
	return fmt.Sprintf("{base64: %q}", base64.StdEncoding.EncodeToString(b))
}

// qualifierKey writes a qualifier where YAML takes text alone.
func qualifierKey(q string) string {
	if utf8.ValidString(q) && !strings.HasPrefix(q, "{base64:") {
		return word(q)
	}
	return fmt.Sprintf("'{base64: %q}'", base64.StdEncoding.EncodeToString([]byte(q)))
}

// cellLiteral writes the bytes of a cell or key as a literal that encode turns into the
// same bytes.
func cellLiteral(e cell.Encoding, b []byte, nullString string) (string, error) {
	if e.Kind == cell.Bytes {
		return bytesLiteral(b), nil
	}
	v, err := e.Decode(b, nullString)
	if err != nil {
		return "", errNoLiteral
	}
	switch t := v.(type) {
	case time.Time:
		switch {
		case e.Kind == cell.Date:
			v = t.Format(time.DateOnly)
		default:
			v = t.Format("2006-01-02T15:04:05.999Z")
		}
		if t.Year() < 0 || t.Year() > 9999 {
			return "", errNoLiteral
		}
	case time.Duration:
		v = time.Time{}.Add(t).Format("15:04:05.000")
	}
	text, err := literal(v)
	if err != nil {
		return "", err
	}
	// What is written must be what is read: a cell may have more bytes than its type.
	again, err := encode(e, pipeline.Literal{JSON: jsonText(v)}, nullString)
	if err != nil || !bytes.Equal(again, b) {
		return "", errNoLiteral
	}
	return text, nil
}

// literal writes a value of JSON in YAML's flow style.
func literal(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	case float64:
		return double(v)
	case cell.Inexact:
		return v.Text, nil
	case string:
		return strconv.Quote(v), nil
	case []any:
		var items []string
		for _, item := range v {
			text, err := literal(item)
			if err != nil {
				return "", err
			}
			items = append(items, text)
		}
		return "[" + strings.Join(items, ", ") + "]", nil
	case map[string]any:
		var members []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text, err := literal(v[name])
			if err != nil {
				return "", err
			}
			members = append(members, word(name)+": "+text)
		}
		return "{" + strings.Join(members, ", ") + "}", nil
	}
	return "", errNoLiteral
}

// double writes a number that has a point, so that it reads as a double, and an
// exponent only with a sign, without which YAML readers differ.
func double(f float64) (string, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "", errNoLiteral
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	mantissa, exponent, scientific := strings.Cut(text, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if !scientific {
		return mantissa, nil
	}
	return mantissa + "e" + exponent, nil
}

func jsonText(v any) json.RawMessage {
	b, err := cell.Encoding{Kind: cell.JSON}.Append(nil, v, "")
	if err != nil || v == nil {
		return json.RawMessage("null")
	}
	return b
}
