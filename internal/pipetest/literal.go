package pipetest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// encode returns the bytes of a literal in an encoding. It is exact: integers as JSON
// records have them, decimals by their text. Bytes are text, or {base64: "…"}.
func encode(e cell.Encoding, l pipeline.Literal, nullString string) ([]byte, error) {
	if e.Kind == cell.Decimal && len(l.JSON) > 0 && (l.JSON[0] == '-' || '0' <= l.JSON[0] && l.JSON[0] <= '9') {
		return e.Append(nil, string(l.JSON), nullString)
	}
	v, err := value(l)
	if err != nil {
		return nil, err
	}
	if e.Kind == cell.Bytes {
		if v, err = binary(v); err != nil {
			return nil, err
		}
	}
	b, err := e.Append(nil, v, nullString)
	var mismatched *cell.TypeError
	if errors.As(err, &mismatched) {
		err = errors.New(mismatched.Takes() + instead(e, v))
	}
	return b, err
}

// instead says how to write a literal whose type its encoding does not take: a test holds
// values, and a conversion would be text.
func instead(e cell.Encoding, v any) string {
	switch v := v.(type) {
	case string:
		if json.Valid([]byte(v)) {
			return ": take the quotes off"
		}
		return ""
	case []any, map[string]any:
		if e.Kind == cell.String || e.Kind == cell.Bytes {
			return ": declare the column as json"
		}
		return ""
	}
	switch e.Kind {
	case cell.String:
		return ": put it in quotes"
	case cell.Bytes:
		return ": declare the column's encoding, or put the value in quotes"
	case cell.Timestamp:
		return `: write a time, as in "2026-08-30T10:15:30.123Z"`
	}
	return ""
}

// value decodes a literal like a record of JSON.
func value(l pipeline.Literal) (any, error) {
	var d record.Decoder
	wrapped := append(append([]byte(`{"v":`), l.JSON...), '}') // an array alone would be a batch
	records := d.JSON(wrapped)
	if records[0].Err != nil {
		return nil, errors.New("the value cannot be read: a number has at most 64 bits, and text is UTF-8")
	}
	return records[0].Value.(map[string]any)["v"], nil
}

// binary turns {base64: "…"} into bytes.
func binary(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return v, nil
	}
	text, isText := m["base64"].(string)
	if len(m) != 1 || !isText {
		return nil, fmt.Errorf(`bytes are text or {base64: "…"}`)
	}
	return decodeBase64(text)
}

func decodeBase64(text string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(b) != text {
		return nil, errors.New("no padded standard base64")
	}
	return b, nil
}

// accumulator reads the input of a merge: base64, as text or in {base64: "…"}.
func accumulator(l pipeline.Literal) ([]byte, error) {
	v, err := value(l)
	if err != nil {
		return nil, err
	}
	if text, ok := v.(string); ok {
		return decodeBase64(text)
	}
	b, err := binary(v)
	if b, ok := b.([]byte); ok {
		return b, err
	}
	return nil, errors.New("an accumulator is written in base64")
}

// integer reads the input of an add.
func integer(l pipeline.Literal) (int64, error) {
	v, err := value(l)
	if err != nil {
		return 0, err
	}
	n, ok := v.(int64)
	if !ok {
		return 0, errors.New("what is added is an integer of 64 bits")
	}
	return n, nil
}
