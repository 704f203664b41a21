package mapping

import (
	"slices"
	"strconv"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// template is what a scan makes of a row, and a change stream of a change: one record, several
// or none, and how the sink sends them.
type template struct {
	when       *expr.Program
	forEach    *expr.Program
	fields     []emitField // nil: the whole row or change
	orderBy    *expr.Program
	attributes []emitField
	fixed      map[string]string // the attributes, where all are the same for every record
}

type emitField struct {
	name  string
	json  []byte // the name, quoted, with its colon
	value *expr.Program
	shape *expr.Shape // what of the value is printed as declared
}

// compileTemplate compiles emit and what the sink says of each record; either may be nil. vocabulary
// returns that of the place, with item or without. The error joins all faults, each with file,
// line and column.
func compileTemplate(emit *pipeline.Emit, sink *pipeline.PubSubSink, vocabulary func(withItem bool) (*expr.Env, error)) (template, error) {
	var t template
	env, err := vocabulary(false)
	if err != nil {
		return t, err
	}
	c := &compiler{env: env}
	var item *expr.Shape
	if emit != nil {
		t.when, t.forEach = c.compile(emit.When, expr.Bool), c.compile(emit.ForEach, expr.List)
		if !emit.ForEach.IsZero() {
			if c.env, err = vocabulary(true); err != nil {
				return t, err
			}
			if t.forEach != nil {
				item = t.forEach.Shape(nil).Each()
			}
		}
		t.fields = c.outputFields(emit.Fields, expr.Anything, item)
	}
	if sink != nil {
		t.orderBy = c.compile(sink.OrderBy, expr.Key)
		t.attributes = c.outputFields(sink.Attributes, expr.Attribute, nil)
	}
	if err := c.err(); err != nil {
		return t, err
	}
	t.fixed = fixedAttributes(t.attributes)
	return t, nil
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

// Programs are the expressions, those of the sink included.
func (t *template) Programs() []*expr.Program {
	all := []*expr.Program{t.when, t.forEach, t.orderBy}
	for _, f := range slices.Concat(t.fields, t.attributes) {
		all = append(all, f.value)
	}
	return slices.DeleteFunc(all, func(p *expr.Program) bool { return p == nil })
}

// fixedAttributes evaluates attributes that look at no row or change; nil where one does.
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

// Attributes returns those of every record, nil where they depend on the row or change. Read only.
func (t *template) Attributes() map[string]string { return t.fixed }

// maker makes the records of one row or change after another. It is for one goroutine at a time.
type maker struct {
	*template
	// whole appends the whole row or change as JSON.
	whole func([]byte) ([]byte, error)
	vars  expr.Vars
	bytes int // of the row or change at hand
	outs  []Output
	free  []byte // where the next body goes
}

// outputs makes the records of the row or change at hand: none where when says no or forEach has
// none. The slice is good until the next call, what is in it for ever. The error is an
// *OutputError.
func (m *maker) outputs() ([]Output, error) {
	m.outs, m.vars.Item = m.outs[:0], nil
	if err := m.all(); err != nil {
		return nil, outputError(err)
	}
	return m.outs, nil
}

func (m *maker) all() error {
	if m.when != nil {
		if holds, err := m.when.Holds(&m.vars); err != nil || !holds {
			return err
		}
	}
	if m.forEach == nil {
		return m.one(-1)
	}
	items, err := m.forEach.Eval(&m.vars)
	if err != nil {
		return err
	}
	for i, item := range items.([]any) {
		m.vars.Item = item
		if err := m.one(i); err != nil {
			return err
		}
	}
	return nil
}

// one makes one record of the variables at hand.
func (m *maker) one(index int) error {
	out := Output{Index: index, Attributes: m.fixed}
	var err error
	if out.Body, err = m.body(); err != nil {
		return err
	}
	if m.orderBy != nil {
		v, err := m.orderBy.Eval(&m.vars)
		if err != nil {
			return err
		}
		out.OrderingKey = orderingKey(v)
	}
	if m.fixed == nil {
		if out.Attributes, err = m.evaluated(); err != nil {
			return err
		}
	}
	m.outs = append(m.outs, out)
	return nil
}

func (m *maker) evaluated() (map[string]string, error) {
	out := make(map[string]string, len(m.attributes))
	for _, a := range m.attributes {
		v, err := a.value.Eval(&m.vars)
		if err != nil {
			return nil, err
		}
		out[a.name] = v.(string)
	}
	return out, nil
}

const (
	// page is what bodies of small rows share: it lives as long as one of them does.
	page = 16 << 10
	// small is the most that a body may take of a page.
	small = page / 8
)

// body is the record as JSON: the fields in the file's order, or the whole row or change. Small
// bodies are laid side by side in pages, which costs less than each alone.
func (m *maker) body() ([]byte, error) {
	hint := 64 + m.bytes + m.bytes/2
	if hint > small {
		// A large one is mostly a value, and as long as it where that is plain text.
		return m.appendBody(make([]byte, 0, 64+m.bytes+m.bytes/16))
	}
	if cap(m.free)-len(m.free) < hint {
		m.free = make([]byte, 0, page)
	}
	start := len(m.free)
	b, err := m.appendBody(m.free[start:start:cap(m.free)])
	if err != nil {
		return nil, err
	}
	if len(b) <= cap(m.free)-start { // it has not outgrown the page
		m.free = m.free[:start+len(b)]
	}
	return b[:len(b):len(b)], nil
}

func (m *maker) appendBody(b []byte) ([]byte, error) {
	if m.fields == nil {
		return m.whole(b)
	}
	b = append(b, '{')
	first := true
	for _, f := range m.fields {
		v, err := f.value.Eval(&m.vars)
		if err != nil {
			return nil, err
		}
		if _, absent := v.(expr.Absent); absent {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		if b, err = appendOutput(append(b, f.json...), v, f.shape); err != nil {
			return nil, at(f.value, err)
		}
	}
	return append(b, '}'), nil
}
