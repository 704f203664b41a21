package mapping

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// columnInfo is what there is to know of a declared column.
type columnInfo struct {
	family   *pipeline.Family
	encoding cell.Encoding
	head     []byte // the cell as JSON, up to its time
}

// declaredColumns finds columns by their names as the client has them, family:qualifier.
func declaredColumns(t *pipeline.Table) map[string]*columnInfo {
	out := map[string]*columnInfo{}
	for _, f := range t.Families {
		for _, c := range f.Columns {
			out[f.Name+":"+c.Qualifier] = &columnInfo{f, f.Encoding(c.Qualifier), cellHead(nil, f.Name, c.Qualifier)}
		}
	}
	return out
}

func cellHead(b []byte, family, qualifier string) []byte {
	b = quoted(append(b, `{"family":`...), family)
	b = quoted(append(b, `,"qualifier":`...), qualifier)
	return append(b, `,"timestamp":`...)
}

// appendRow prints every cell: family, qualifier, time and value, typed as declared.
func (e *Emit) appendRow(b []byte, key string, r bigtable.Row) ([]byte, error) {
	b = appendKey(append(b, `{"rowKey":`...), e.table.Key, key)
	if e.keysOnly {
		return append(b, '}'), nil
	}
	b = append(b, `,"cells":[`...)
	var err error
	if len(r) == 1 {
		for name, items := range r {
			b, err = e.appendFamily(b, name, items)
		}
	} else {
		for i, name := range slices.Sorted(maps.Keys(r)) {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = e.appendFamily(b, name, r[name]); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return append(b, ']', '}'), nil
}

func (e *Emit) appendFamily(b []byte, family string, items []bigtable.ReadItem) ([]byte, error) {
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = e.appendCell(b, family, &items[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (e *Emit) appendCell(b []byte, family string, item *bigtable.ReadItem) ([]byte, error) {
	qualifier := item.Column[len(family)+1:]
	info := e.columns[item.Column]
	if info != nil {
		b = append(b, info.head...)
	} else {
		info = e.undeclared(family, qualifier)
		b = cellHead(b, family, qualifier)
	}
	b = appendMicros(b, int64(item.Timestamp))
	if len(item.Labels) > 0 {
		b = appendLabels(b, item.Labels)
	}
	b = append(b, `,"value":`...)
	if info.encoding.Kind == cell.String && string(item.Value) != e.table.NullString {
		if out, ok := appendText(b, item.Value); ok {
			return append(out, '}'), nil
		}
	}
	v, err := expr.DecodeCell(e.table, info.family, expr.Cell{Qualifier: qualifier, Value: item.Value})
	if err == nil {
		b, err = appendOutput(b, v, &info.encoding)
		if err != nil {
			err = fmt.Errorf("a cell of family %s: %w", family, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// undeclared is a column that the table does not name: bytes, or an aggregate.
func (e *Emit) undeclared(family, qualifier string) *columnInfo {
	info := &columnInfo{family: e.table.Family(family)}
	if info.family != nil {
		info.encoding = info.family.Encoding(qualifier)
	}
	return info
}

func appendLabels(b []byte, labels []string) []byte {
	b = append(b, `,"labels":[`...)
	for i, l := range labels {
		if i > 0 {
			b = append(b, ',')
		}
		b = quoted(b, l)
	}
	return append(b, ']')
}

// appendText appends text as JSON, and reports false, b as it was, where it is no text.
func appendText(b, text []byte) ([]byte, bool) {
	for _, c := range text {
		if c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(b, text)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"'), true
}

func appendEscaped(b, text []byte) ([]byte, bool) {
	out, err := jsonText.Append(b, string(text), "")
	return out, err == nil
}

// quoted appends text as JSON, and other bytes as an object that no text prints as.
func quoted(b []byte, s string) []byte {
	if out, err := jsonText.Append(b, s, ""); err == nil {
		return out
	}
	return appendBase64(b, s)
}

func appendBase64(b []byte, s string) []byte {
	b = append(b, `{"base64":`...)
	b, _ = jsonText.Append(b, []byte(s), "") // bytes are never refused
	return append(b, '}')
}

// appendKey prints a row key in its declared encoding, and one that has no value of
// its own there as an object of its bytes.
func appendKey(b []byte, e cell.Encoding, key string) []byte {
	if e.Kind == cell.String {
		return quoted(b, key)
	}
	v, err := expr.DecodeKey(e, key)
	if err == nil {
		var out []byte
		if out, err = appendOutput(b, v, &e); err == nil {
			return out
		}
	}
	return appendBase64(b, key)
}

// appendMicros prints a cell's time; one that no calendar holds as its microseconds.
func appendMicros(b []byte, micros int64) []byte {
	t := time.UnixMicro(micros).UTC()
	if !inCalendar(t) {
		return strconv.AppendInt(b, micros, 10)
	}
	b = append(b, '"')
	b = t.AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}
