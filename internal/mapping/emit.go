package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
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
	name  string
	json  []byte // the name, quoted, with its colon
	value *expr.Program
	shape *expr.Shape // what of the value is printed as declared
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

// Unwrap returns a *retry.Rejected, which wraps the reason.
func (e *OutputError) Unwrap() error { return &retry.Rejected{Err: e.Err} }

// CompileEmit compiles what a scan makes of a row. Its error joins all faults, each
// with file, line and column.
func CompileEmit(s *pipeline.Scan) (*Emit, error) {
	row, err := expr.NewRowEnv(s.Table, false)
	if err != nil {
		return nil, err
	}
	c := &compiler{env: row}
	var item *expr.Shape
	e := &Emit{table: s.Table, keysOnly: s.Cells.KeysOnly, columns: declaredColumns(s.Table)}
	if s.Emit != nil {
		e.when, e.forEach = c.compile(s.Emit.When, expr.Bool), c.compile(s.Emit.ForEach, expr.List)
		if !s.Emit.ForEach.IsZero() {
			if c.env, err = expr.NewRowEnv(s.Table, true); err != nil {
				return nil, err
			}
			if e.forEach != nil {
				item = e.forEach.Shape(nil).Each()
			}
		}
		e.fields = c.outputFields(s.Emit.Fields, expr.Anything, item)
	}
	if sink := s.To.PubSub; sink != nil {
		e.orderBy = c.compile(sink.OrderBy, expr.Key)
		e.attributes = c.outputFields(sink.Attributes, expr.Attribute, nil)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	e.fixed = fixedAttributes(e.attributes)
	return e, nil
}

func (c *compiler) outputFields(fields []pipeline.EmitField, want expr.Want, item *expr.Shape) []emitField {
	var out []emitField
	for _, f := range fields {
		field := emitField{name: f.Name, json: strconv.AppendQuote(nil, f.Name), value: c.compile(f.Value, want)}
		field.json = append(field.json, ':')
		if field.value != nil {
			field.shape = field.value.Shape(item)
		}
		out = append(out, field)
	}
	return out
}

// Programs are the expressions of the scan, those of its sink included.
func (e *Emit) Programs() []*expr.Program {
	all := []*expr.Program{e.when, e.forEach, e.orderBy}
	for _, f := range slices.Concat(e.fields, e.attributes) {
		all = append(all, f.value)
	}
	return slices.DeleteFunc(all, func(p *expr.Program) bool { return p == nil })
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

// KeyRecord is the record of a row of which nothing but the key can be told.
func KeyRecord(t *pipeline.Table, key string) []byte {
	return append(appendKey([]byte(`{"rowKey":`), t.Key, key), '}')
}
