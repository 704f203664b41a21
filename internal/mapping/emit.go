package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// Emit makes output records of the rows of a scan. It is safe for concurrent use.
type Emit struct {
	table      *pipeline.Table
	keysOnly   bool
	when       *expr.Program
	forEach    *expr.Program
	fields     []emitField // nil: the whole row
	orderBy    *expr.Program
	attributes []emitField
	fixed      map[string]string // the attributes, where all are the same for every record
}

type emitField struct {
	name     string
	json     []byte // the name, quoted, with its colon
	value    *expr.Program
	encoding *cell.Encoding // of the column that the value is; nil: it is computed
}

// Output is one record of a row.
type Output struct {
	// Index counts the records of the row.
	Index int
	// Body is a JSON object.
	Body []byte
	// OrderingKey is a hash of what orderBy says; empty where it says nothing.
	OrderingKey string
	Attributes  map[string]string // read only; records may share them
}

// OutputError is why no record can be made of a row. It quotes nothing of the row.
type OutputError struct {
	Place string // in the pipeline file; empty: of the row itself
	Err   error
}

// Error implements error.
func (e *OutputError) Error() string {
	if e.Place == "" {
		return e.Err.Error()
	}
	return e.Place + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *OutputError) Unwrap() error { return e.Err }

// CompileEmit compiles what a scan makes of a row. Its error joins all faults, each
// with file, line and column.
func CompileEmit(s *pipeline.Scan) (*Emit, error) {
	row, err := expr.NewRowEnv(s.Table, false)
	if err != nil {
		return nil, err
	}
	c := &compiler{env: row}
	e := &Emit{table: s.Table, keysOnly: s.Cells.KeysOnly}
	if s.Emit != nil {
		e.when, e.forEach = c.compile(s.Emit.When, expr.Bool), c.compile(s.Emit.ForEach, expr.List)
		if !s.Emit.ForEach.IsZero() {
			if c.env, err = expr.NewRowEnv(s.Table, true); err != nil {
				return nil, err
			}
		}
		e.fields = c.outputFields(s.Table, s.Emit.Fields, expr.Anything)
	}
	if sink := s.To.PubSub; sink != nil {
		e.orderBy = c.compile(sink.OrderBy, expr.Key)
		e.attributes = c.outputFields(s.Table, sink.Attributes, expr.Text)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	e.fixed = fixedAttributes(e.attributes)
	return e, nil
}

func (c *compiler) outputFields(t *pipeline.Table, fields []pipeline.EmitField, want expr.Want) []emitField {
	var out []emitField
	for _, f := range fields {
		field := emitField{name: f.Name, json: strconv.AppendQuote(nil, f.Name), value: c.compile(f.Value, want)}
		field.json = append(field.json, ':')
		if field.value != nil {
			field.encoding = columnEncoding(t, field.value)
		}
		out = append(out, field)
	}
	return out
}

// columnEncoding returns the declared encoding of a value that is a column as it is.
func columnEncoding(t *pipeline.Table, p *expr.Program) *cell.Encoding {
	family, qualifier, ok := p.Column()
	if !ok {
		return nil
	}
	e := t.Key
	if f := t.Family(family); f != nil {
		e = f.Encoding(qualifier)
	}
	return &e
}

// fixedAttributes evaluates attributes that look at no row; nil where one does.
func fixedAttributes(fields []emitField) map[string]string {
	out := map[string]string{}
	for _, f := range fields {
		v, err := f.value.Eval(&expr.Vars{})
		if err != nil {
			return nil
		}
		out[f.name] = v.(string)
	}
	return out
}

// Row makes the records of a row: none where `when` says no or `forEach` has none. Its
// error is an *OutputError.
func (e *Emit) Row(r bigtable.Row) ([]Output, error) {
	vars := &expr.Vars{Row: e.row(r)}
	if e.when != nil {
		if holds, err := e.when.Holds(vars); err != nil || !holds {
			return nil, outputError(err)
		}
	}
	if e.forEach == nil {
		out, err := e.output(r, vars)
		if err != nil {
			return nil, outputError(err)
		}
		return []Output{out}, nil
	}
	items, err := e.forEach.Eval(vars)
	if err != nil {
		return nil, outputError(err)
	}
	var outs []Output
	for i, item := range items.([]any) {
		vars.Item = item
		out, err := e.output(r, vars)
		if err != nil {
			return nil, outputError(err)
		}
		out.Index = i
		outs = append(outs, out)
	}
	return outs, nil
}

// ForEach reports whether a row may become several records.
func (e *Emit) ForEach() bool { return e.forEach != nil }

// outputError returns nil for nil.
func outputError(err error) error {
	switch err := err.(type) {
	case nil:
		return nil
	case *expr.Error:
		return &OutputError{Place: err.Place, Err: fmt.Errorf("%s", err.Message)}
	case *placedError:
		return &OutputError{Place: err.place, Err: err.err}
	}
	return &OutputError{Err: err}
}

func (e *Emit) row(r bigtable.Row) *expr.Row {
	return &expr.Row{
		Table: e.table, Key: r.Key(),
		Family: func(name string, each func(expr.Cell)) {
			for i, item := range r[name] {
				// The newest version of a column comes first.
				if i == 0 || item.Column != r[name][i-1].Column {
					each(expr.Cell{Qualifier: item.Column[len(name)+1:], Value: item.Value})
				}
			}
		},
		Families: func() []string { return slices.Collect(maps.Keys(r)) },
	}
}

// output makes one record of the variables at hand.
func (e *Emit) output(r bigtable.Row, vars *expr.Vars) (Output, error) {
	var out Output
	var err error
	if out.Body, err = e.body(r, vars); err != nil {
		return out, err
	}
	if e.orderBy != nil {
		v, err := e.orderBy.Eval(vars)
		if err != nil {
			return out, err
		}
		out.OrderingKey = orderingKey(v)
	}
	if out.Attributes = e.fixed; e.fixed != nil {
		return out, nil
	}
	out.Attributes = make(map[string]string, len(e.attributes))
	for _, a := range e.attributes {
		v, err := a.value.Eval(vars)
		if err != nil {
			return out, err
		}
		out.Attributes[a.name] = v.(string)
	}
	return out, nil
}

// orderingKey is short whatever the key's length: Pub/Sub takes 1,024 bytes.
func orderingKey(v any) string {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case []byte:
		text = string(v)
	case time.Time:
		text = v.UTC().Format(time.RFC3339Nano)
	default:
		text = fmt.Sprint(v)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// body is the record as JSON: the fields in the file's order, or the whole row.
func (e *Emit) body(r bigtable.Row, vars *expr.Vars) ([]byte, error) {
	if e.fields == nil {
		return e.wholeRow(r)
	}
	b := []byte{'{'}
	for _, f := range e.fields {
		v, err := f.value.Eval(vars)
		if err != nil {
			return nil, err
		}
		if _, absent := v.(expr.Absent); absent {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		if b, err = appendOutput(append(b, f.json...), v, f.encoding); err != nil {
			return nil, at(f.value, err)
		}
	}
	return append(b, '}'), nil
}

var jsonText = cell.Encoding{Kind: cell.JSON}

// appendOutput appends a value as JSON. As of a declared column, a date is a date and
// a time of the day one; a time that no calendar holds is its milliseconds.
func appendOutput(b []byte, v any, e *cell.Encoding) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case time.Time:
		switch {
		case e != nil && e.Kind == cell.Date && inCalendar(v):
			return append(b, v.UTC().Format(`"2006-01-02"`)...), nil
		case !inCalendar(v):
			return strconv.AppendInt(b, v.UnixMilli(), 10), nil
		}
	case time.Duration:
		if e != nil && e.Kind == cell.Time {
			return append(b, time.Time{}.Add(v).Format(`"15:04:05.000"`)...), nil
		}
	}
	return jsonText.Append(b, v, "")
}

// inCalendar reports whether a time has a year of four digits.
func inCalendar(t time.Time) bool { y := t.UTC().Year(); return y >= 1 && y <= 9999 }

// quoted appends text as JSON, and other bytes as an object that no text prints as.
func quoted(b []byte, s string) []byte {
	if out, err := jsonText.Append(b, s, ""); err == nil {
		return out
	}
	b = append(b, `{"base64":`...)
	b, _ = jsonText.Append(b, []byte(s), "") // bytes are never refused
	return append(b, '}')
}

// wholeRow prints every cell: family, qualifier, time and value, typed as declared.
func (e *Emit) wholeRow(r bigtable.Row) ([]byte, error) {
	b := appendKey(append(make([]byte, 0, sizeHint(r)), `{"rowKey":`...), e.table.Key, r.Key())
	if e.keysOnly {
		return append(b, '}'), nil
	}
	b = append(b, `,"cells":[`...)
	first := true
	for _, name := range slices.Sorted(maps.Keys(r)) {
		f := e.table.Family(name)
		for i := range r[name] {
			if !first {
				b = append(b, ',')
			}
			first = false
			var err error
			if b, err = e.appendCell(b, name, f, &r[name][i]); err != nil {
				return nil, err
			}
		}
	}
	return append(b, ']', '}'), nil
}

// sizeHint is about how long a row is when it is printed, so that large rows are not
// copied again and again.
func sizeHint(r bigtable.Row) int {
	n := 64 + 2*len(r.Key())
	for _, items := range r {
		for i := range items {
			n += 128 + len(items[i].Column) + len(items[i].Value) + len(items[i].Value)/3
		}
	}
	return n
}

func (e *Emit) appendCell(b []byte, family string, f *pipeline.Family, item *bigtable.ReadItem) ([]byte, error) {
	c := expr.Cell{Qualifier: strings.TrimPrefix(item.Column, family+":"), Value: item.Value}
	v, err := expr.DecodeCell(e.table, f, c)
	if err != nil {
		return nil, err
	}
	b = quoted(append(b, `{"family":`...), family)
	b = quoted(append(b, `,"qualifier":`...), c.Qualifier)
	b = append(b, `,"timestamp":`...)
	b = appendMicros(b, int64(item.Timestamp))
	if len(item.Labels) > 0 {
		b = append(b, `,"labels":[`...)
		for i, l := range item.Labels {
			if i > 0 {
				b = append(b, ',')
			}
			b = quoted(b, l)
		}
		b = append(b, ']')
	}
	encoding := cell.Encoding{Kind: cell.Bytes}
	if f != nil {
		encoding = f.Encoding(c.Qualifier)
	}
	if b, err = appendOutput(append(b, `,"value":`...), v, &encoding); err != nil {
		return nil, fmt.Errorf("a cell of family %s: %w", family, err)
	}
	return append(b, '}'), nil
}

// appendKey prints a row key in its declared encoding, and one that has no value of
// its own there as an object of its bytes.
func appendKey(b []byte, e cell.Encoding, key string) []byte {
	v, err := expr.DecodeKey(e, key)
	if err == nil {
		var out []byte
		if out, err = appendOutput(b, v, &e); err == nil {
			return out
		}
	}
	b = append(b, `{"base64":`...)
	b, _ = jsonText.Append(b, []byte(key), "")
	return append(b, '}')
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

// KeyRecord is the record of a row of which nothing but the key can be told.
func KeyRecord(t *pipeline.Table, key string) []byte {
	return append(appendKey([]byte(`{"rowKey":`), t.Key, key), '}')
}
