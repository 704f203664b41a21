package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

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
	columns    map[string]*columnInfo
}

type emitField struct {
	name     string
	json     []byte // the name, quoted, with its colon
	value    *expr.Program
	encoding *cell.Encoding // of the column that the value is; nil: it is computed
}

// Output is one record of a row.
type Output struct {
	// Index counts the records of the row where there is `forEach`; -1 elsewhere.
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
	e := &Emit{table: s.Table, keysOnly: s.Cells.KeysOnly, columns: declaredColumns(s.Table)}
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

// Plain reports whether a record is its body and Attributes, and a row makes one at most.
func (e *Emit) Plain() bool { return e.forEach == nil && e.orderBy == nil && e.fixed != nil }

// Attributes returns those of every record, nil where they depend on the row. Read only.
func (e *Emit) Attributes() map[string]string { return e.fixed }

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

// KeyRecord is the record of a row of which nothing but the key can be told.
func KeyRecord(t *pipeline.Table, key string) []byte {
	return append(appendKey([]byte(`{"rowKey":`), t.Key, key), '}')
}
