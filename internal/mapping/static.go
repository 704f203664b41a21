package mapping

import (
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Static is a compiled mapping, for what can be said of it without a record.
// Programs are nil where the file has no such expression.
type Static struct {
	Source    *pipeline.Mapping
	IDFrom    *expr.Program
	RowKey    *expr.Program
	Timestamp *expr.Program
	DedupeID  *expr.Program
	All       []*expr.Program // every expression of the mapping, those above included
}

// Static returns the mappings in the file's order.
func (w *Write) Static() []Static {
	out := make([]Static, len(w.mappings))
	for i, m := range w.mappings {
		out[i] = Static{Source: m.src, IDFrom: m.idFrom, RowKey: m.rowKey, Timestamp: m.timestamp, DedupeID: m.dedupeID, All: m.programs()}
	}
	return out
}

func (m *mapping) programs() []*expr.Program {
	all := []*expr.Program{m.when, m.forEach, m.idFrom, m.rowKey, m.timestamp, m.dedupeID}
	for i := range m.mutations {
		mu := &m.mutations[i]
		all = append(all, mu.when, mu.from, mu.to)
		for _, c := range mu.cells {
			all = append(all, c.value)
		}
	}
	given := all[:0]
	for _, p := range all {
		if p != nil {
			given = append(given, p)
		}
	}
	return given
}
