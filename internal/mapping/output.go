package mapping

import (
	"encoding/json"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
)

var jsonText = cell.Encoding{Kind: cell.JSON}

// appendOutput appends a value as JSON, its parts that are columns as declared.
func appendOutput(b []byte, v any, s *expr.Shape) ([]byte, error) {
	if s == nil {
		return appendPlain(b, v)
	}
	if s.Elements == nil && s.Fields == nil {
		return appendTyped(b, v, s.Kind)
	}
	return appendPlain(b, typed(v, s))
}

func appendPlain(b []byte, v any) ([]byte, error) {
	if v == nil {
		return append(b, "null"...), nil // of a cell it would be the empty one
	}
	return jsonText.Append(b, v, "")
}

// appendTyped appends the value of a column, or of a key, as JSON.
func appendTyped(b []byte, v any, k cell.Kind) ([]byte, error) {
	if out, ok := appendDeclared(b, v, k); ok {
		return out, nil
	}
	return appendPlain(b, v)
}

// appendDeclared appends what JSON prints otherwise than the kind says: a date, a time of
// day, a float32. It reports false where v is no value of such a column: what stands for
// an absent one need not be.
func appendDeclared(b []byte, v any, k cell.Kind) ([]byte, bool) {
	switch v := v.(type) {
	case time.Time:
		if t := v.UTC(); k == cell.Date && cell.InCalendar(t) && t.Equal(t.Truncate(day)) {
			return t.AppendFormat(b, `"2006-01-02"`), true
		}
	case time.Duration:
		if k == cell.Time && v >= 0 && v < day && v%time.Millisecond == 0 {
			return time.Time{}.Add(v).AppendFormat(b, `"15:04:05.000"`), true
		}
	case float64:
		if k == cell.Float32 && float64(float32(v)) == v {
			out, err := jsonText.Append(b, float32(v), "")
			return out, err == nil
		}
	}
	return b, false
}

const day = 24 * time.Hour

// typed returns a value with its parts that are columns replaced by their JSON.
func typed(v any, s *expr.Shape) any {
	switch v := v.(type) {
	case []any:
		if s == nil || s.Elements == nil {
			return v
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = typed(e, s.Element(i))
		}
		return out
	case map[string]any:
		if s == nil || s.Fields == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[name] = typed(e, s.Field(name))
		}
		return out
	}
	if s != nil {
		if text, ok := appendDeclared(nil, v, s.Kind); ok {
			return json.RawMessage(text)
		}
	}
	return v
}
