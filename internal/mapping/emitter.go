package mapping

import (
	"slices"
	"strings"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
)

// Emitter makes records of rows, one row after another. It is for one goroutine at a
// time.
type Emitter struct {
	*Emit
	families []rowFamily // of the row at hand, by name
	bytes    int
	view     expr.Row
	vars     expr.Vars
	outs     []Output
	free     []byte // where the next body goes
	clock    clock
}

// rowFamily is the part of a row that a family has.
type rowFamily struct {
	name  string
	items []bigtable.ReadItem
}

// New returns an Emitter.
func (e *Emit) New() *Emitter {
	m := &Emitter{Emit: e}
	m.view = expr.Row{Table: e.table, Family: m.eachNewest, Families: m.names}
	m.vars.Row = &m.view
	return m
}

// Key returns the row key of the last row.
func (m *Emitter) Key() string { return m.view.Key }

// Bytes returns how much the last row counts: its key, families, qualifiers, values,
// timestamps and labels, not what the client library needs to hold them.
func (m *Emitter) Bytes() int64 { return int64(m.bytes) }

// Row makes the records of a row: none where `when` says no or `forEach` has none. The
// slice is good until the next call, what is in it for ever. The error is an
// *OutputError.
func (m *Emitter) Row(r bigtable.Row) ([]Output, error) {
	m.load(r)
	m.outs, m.vars.Item = m.outs[:0], nil
	err := m.all()
	clear(m.families) // so that they do not outlive their row
	if err != nil {
		return nil, outputError(err)
	}
	return m.outs, nil
}

// cellOverhead is what a cell's timestamp takes.
const cellOverhead = 8

// load looks at a row, once.
func (m *Emitter) load(r bigtable.Row) {
	m.families, m.bytes = m.families[:0], 0
	key := ""
	for name, items := range r {
		m.families = append(m.families, rowFamily{name, items})
		for i := range items {
			item := &items[i]
			key = item.Row
			m.bytes += len(item.Column) + len(item.Value) + cellOverhead
			for _, l := range item.Labels {
				m.bytes += len(l)
			}
		}
	}
	m.bytes += len(key)
	m.view.Reset(key)
	if len(m.families) > 1 {
		slices.SortFunc(m.families, func(a, b rowFamily) int { return strings.Compare(a.name, b.name) })
	}
}

func (m *Emitter) names() []string {
	var names []string
	for _, f := range m.families {
		names = append(names, f.name)
	}
	return names
}

// eachNewest calls each with the newest version of every column of a family, which
// comes first.
func (m *Emitter) eachNewest(name string, each func(expr.Cell)) {
	for _, f := range m.families {
		if f.name != name {
			continue
		}
		for i := range f.items {
			if i == 0 || f.items[i].Column != f.items[i-1].Column {
				each(expr.Cell{Qualifier: f.items[i].Column[len(name)+1:], Value: f.items[i].Value})
			}
		}
	}
}

func (m *Emitter) all() error {
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
	page = 16 << 10
	// small is the most that a body may take of a page.
	small = page / 8
)

// body is the record as JSON: the fields in the file's order, or the whole row. Small
// bodies are laid side by side in pages, which costs less than each alone.
func (m *Emitter) body() ([]byte, error) {
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

func (m *Emitter) appendBody(b []byte) ([]byte, error) {
	if m.fields == nil {
		return m.appendRow(b)
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

// Row makes the records of a row, for those who have one.
func (e *Emit) Row(r bigtable.Row) ([]Output, error) {
	outs, err := e.New().Row(r)
	if err != nil {
		return nil, err
	}
	return outs, nil
}
