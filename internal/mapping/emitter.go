package mapping

import (
	"maps"
	"slices"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
)

// Emitter makes records of rows, one row after another. It is for one goroutine at a
// time.
type Emitter struct {
	*Emit
	row  bigtable.Row
	view expr.Row
	vars expr.Vars
	outs []Output
	free []byte // where the next body goes
	size int    // of the row at hand, about
}

// New returns an Emitter.
func (e *Emit) New() *Emitter {
	m := &Emitter{Emit: e}
	m.view = expr.Row{Table: e.table, Family: m.eachNewest, Families: func() []string { return slices.Collect(maps.Keys(m.row)) }}
	return m
}

// eachNewest calls each with the newest version of every column of a family, which
// comes first.
func (m *Emitter) eachNewest(family string, each func(expr.Cell)) {
	items := m.row[family]
	for i := range items {
		if i == 0 || items[i].Column != items[i-1].Column {
			each(expr.Cell{Qualifier: items[i].Column[len(family)+1:], Value: items[i].Value})
		}
	}
}

// Row makes the records of a row: none where `when` says no or `forEach` has none. size
// is about how many bytes the row has. The slice is good until the next call, what is
// in it for ever. The error is an *OutputError.
func (m *Emitter) Row(key string, r bigtable.Row, size int) ([]Output, error) {
	m.row, m.size, m.outs = r, size, m.outs[:0]
	m.view.Reset(key)
	m.vars = expr.Vars{Row: &m.view}
	err := m.all()
	m.row = nil
	if err != nil {
		return nil, outputError(err)
	}
	return m.outs, nil
}

func (m *Emitter) all() error {
	if m.when != nil {
		if holds, err := m.when.Holds(&m.vars); err != nil || !holds {
			return err
		}
	}
	if m.forEach == nil {
		return m.one(0)
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
func (m *Emitter) one(index int) error {
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

func (m *Emitter) evaluated() (map[string]string, error) {
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
	page = 32 << 10
	// small is the most that a body may take of a page.
	small = page / 8
)

// body is the record as JSON: the fields in the file's order, or the whole row. Bodies
// are laid side by side in pages, which costs the collector less than each alone.
func (m *Emitter) body() ([]byte, error) {
	hint := 64 + m.size + m.size/2
	if hint > small {
		return m.appendBody(make([]byte, 0, hint))
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

func (m *Emitter) appendBody(b []byte) ([]byte, error) {
	if m.fields == nil {
		return m.appendRow(b, m.view.Key, m.row)
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
		if b, err = appendOutput(append(b, f.json...), v, f.encoding); err != nil {
			return nil, at(f.value, err)
		}
	}
	return append(b, '}'), nil
}

// Row makes the records of a row, for those who have one.
func (e *Emit) Row(r bigtable.Row) ([]Output, error) {
	outs, err := e.New().Row(r.Key(), r, 0)
	if err != nil {
		return nil, err
	}
	return outs, nil
}
