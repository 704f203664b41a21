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
	maker
	families []rowFamily // of the row at hand, by name
	view     expr.Row
	clock    clock
}

// rowFamily is the part of a row that a family has.
type rowFamily struct {
	name  string
	items []bigtable.ReadItem
}

// New returns an Emitter.
func (e *Emit) New() *Emitter {
	m := &Emitter{Emit: e, maker: maker{template: &e.template}}
	m.whole = m.appendRow
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
	outs, err := m.outputs()
	clear(m.families) // so that they do not outlive their row
	return outs, err
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

// Row makes the records of a row, for those who have one.
func (e *Emit) Row(r bigtable.Row) ([]Output, error) {
	outs, err := e.New().Row(r)
	if err != nil {
		return nil, err
	}
	return outs, nil
}
