package pipeline

// operations are the fields of which a mutation has one, in write or in what a test
// expects; V is what stands for a cell's value there.
type operations[V any] struct {
	set, add, merge *dict[dict[V]]
	columns         *dict[[]name]
	families        []text
	row             toggle
}

func (m *mutationDoc) operations() operations[expr] {
	return operations[expr]{&m.Set, &m.Add, &m.Merge, &m.DeleteColumns, m.DeleteFamilies, m.DeleteRow}
}

func (m *wantMutationDoc) operations() operations[literal] {
	return operations[literal]{&m.Set, &m.Add, &m.Merge, &m.DeleteColumns, m.DeleteFamilies, m.DeleteRow}
}

// chosen returns the operation that is written, where it stands, and the cells that it
// writes, if any. Without one, or with a second, the decoder has said so.
func (o operations[V]) chosen() (kind MutationKind, where at, cells *dict[dict[V]]) {
	switch {
	case o.set.given():
		return Set, o.set.at, o.set
	case o.add.given():
		return Add, o.add.at, o.add
	case o.merge.given():
		return Merge, o.merge.at, o.merge
	case o.columns.given():
		return DeleteColumns, o.columns.at, nil
	case len(o.families) > 0:
		return DeleteFamilies, o.families[0].at, nil
	case o.row.given():
		return DeleteRow, o.row.at, nil
	}
	return "", at{}, nil
}

// deleted returns what the operation deletes by name.
func (o operations[V]) deleted(b *builder, kind MutationKind, t *Table) (columns []ColumnRef, families []*Family) {
	switch {
	case kind == DeleteColumns:
		columns = b.columns(o.columns, t)
	case kind == DeleteFamilies:
		families = b.families(o.families, t)
	case kind == DeleteRow && o.row.ok() && !o.row.v:
		b.fail(o.row.at, "takes true: leave the mutation out where the row stays")
	}
	return columns, families
}
