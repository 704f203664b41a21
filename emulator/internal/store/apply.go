package store

import (
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// Applied is what a list of mutations made of a row.
type Applied struct {
	Row *Row // nil: the row has no cells left

	// Changes are the mutations as the change log records them, in order:
	// server timestamps resolved, DeleteFromRow as one DeleteFromFamily per
	// family that held data at that point. Empty if nothing was there to
	// change. It may be the list that was applied.
	Changes []*bigtablepb.Mutation
}

// Apply applies mutations in order to a row, nil for one that does not exist,
// at a time given in microseconds. The row is not changed. The mutations must
// have passed Validate against the same schema; values are kept, not copied.
func Apply(s *Schema, in *Interner, key string, row *Row, muts []*bigtablepb.Mutation, now int64) Applied {
	e := editor{schema: s, interner: in, cells: CellsOf(row), now: now - now%s.Unit}
	changes := changeList{muts: muts}
	for i, m := range muts {
		switch k := m.Mutation.(type) {
		case *bigtablepb.Mutation_SetCell_:
			changes.add(i, e.setCell(m, k.SetCell))
		case *bigtablepb.Mutation_AddToCell_:
			a := k.AddToCell
			f := s.Families[a.FamilyName]
			state, _ := f.Aggregate.add(a.Input) // Validate has checked it
			e.accumulate(f, a.ColumnQualifier, a.Timestamp, state)
			changes.add(i, m)
		case *bigtablepb.Mutation_MergeToCell_:
			a := k.MergeToCell
			f := s.Families[a.FamilyName]
			if state, _ := f.Aggregate.state(a.Input); state != nil {
				e.accumulate(f, a.ColumnQualifier, a.Timestamp, state)
			}
			changes.add(i, m)
		case *bigtablepb.Mutation_DeleteFromColumn_:
			d := k.DeleteFromColumn
			e.deleteVersions(s.Families[d.FamilyName], d.ColumnQualifier, d.TimeRange)
			changes.add(i, m)
		case *bigtablepb.Mutation_DeleteFromFamily_:
			e.clear(s.Families[k.DeleteFromFamily.FamilyName].Name)
			changes.add(i, m)
		case *bigtablepb.Mutation_DeleteFromRow_:
			changes.replace(i, e.clearAll())
		}
	}
	return Applied{Row: NewRow(key, e.result()), Changes: changes.list()}
}

// changeList is the applied list itself until a mutation is recorded as
// something else.
type changeList struct {
	muts   []*bigtablepb.Mutation
	copied bool
	out    []*bigtablepb.Mutation
}

func (c *changeList) add(i int, m *bigtablepb.Mutation) {
	if !c.copied && m != c.muts[i] {
		c.fork(i)
	}
	if c.copied {
		c.out = append(c.out, m)
	}
}

func (c *changeList) replace(i int, ms []*bigtablepb.Mutation) {
	c.fork(i)
	c.out = append(c.out, ms...)
}

func (c *changeList) fork(i int) {
	if !c.copied {
		c.copied, c.out = true, slices.Clone(c.muts[:i])
	}
}

func (c *changeList) list() []*bigtablepb.Mutation {
	if c.copied {
		return c.out
	}
	return c.muts
}

// editor collects what mutations do to each column, and makes the new cells
// once at the end: sorting then costs n·log n, where inserting cell by cell
// would be quadratic for an entry of 100,000 mutations.
type editor struct {
	schema   *Schema
	interner *Interner
	cells    []Cell // of the row as it was
	now      int64  // server time, at the table's granularity
	families []*familyEdit
}

type familyEdit struct {
	family  string
	cleared bool // nothing of the row as it was remains
	columns []*columnEdit
	index   map[string]*columnEdit // once there are many columns
}

type columnEdit struct {
	qualifier string
	aggregate *Aggregate
	base      []Cell // what remains of the row as it was; shared with it
	added     []Cell // in the order of the mutations
}

func (e *editor) setCell(m *bigtablepb.Mutation, c *bigtablepb.Mutation_SetCell) *bigtablepb.Mutation {
	ts := c.TimestampMicros
	if ts == -1 {
		ts = e.now
	} else if m.TimestampOrigin == bigtablepb.Mutation_CLIENT_AUTO_GENERATED {
		ts -= ts % e.schema.Unit
	}
	f := e.schema.Families[c.FamilyName]
	col := e.column(f, c.ColumnQualifier)
	col.added = append(col.added, Cell{Family: f.Name, Qualifier: col.qualifier, Timestamp: ts, Value: c.Value})
	if ts == c.TimestampMicros {
		return m
	}
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: c.FamilyName, ColumnQualifier: c.ColumnQualifier, TimestampMicros: ts, Value: c.Value,
	}}}
}

func (e *editor) accumulate(f *Family, qualifier, timestamp *bigtablepb.Value, state []byte) {
	ts := timestamp.GetRawTimestampMicros()
	col := e.column(f, qualifier.GetRawValue())
	col.added = append(col.added, Cell{Family: f.Name, Qualifier: col.qualifier, Timestamp: ts - ts%e.schema.Unit, Value: state})
}

func (e *editor) deleteVersions(f *Family, qualifier []byte, r *bigtablepb.TimestampRange) {
	start, end := r.GetStartTimestampMicros(), r.GetEndTimestampMicros()
	gone := func(c Cell) bool { return c.Timestamp >= start && (end == 0 || c.Timestamp < end) }
	col := e.column(f, qualifier)
	col.added = slices.DeleteFunc(col.added, gone)
	if slices.ContainsFunc(col.base, gone) {
		col.base = slices.DeleteFunc(slices.Clone(col.base), gone)
	}
}

// edited is the edit of a family, nil if there is none yet.
func (e *editor) edited(family string) *familyEdit {
	for _, f := range e.families {
		if f.family == family {
			return f
		}
	}
	return nil
}

func (e *editor) edit(family string) *familyEdit {
	f := e.edited(family)
	if f == nil {
		f = &familyEdit{family: family}
		e.families = append(e.families, f)
	}
	return f
}

// manyColumns is where looking a column up in a map begins to pay.
const manyColumns = 16

func (e *editor) column(f *Family, qualifier []byte) *columnEdit {
	fam := e.edit(f.Name)
	if fam.index != nil {
		if c := fam.index[string(qualifier)]; c != nil {
			return c
		}
	} else {
		for _, c := range fam.columns {
			if c.qualifier == string(qualifier) {
				return c
			}
		}
	}
	c := &columnEdit{aggregate: f.Aggregate}
	if !fam.cleared {
		c.base = Column(e.cells, f.Name, string(qualifier))
	}
	if len(c.base) > 0 {
		c.qualifier = c.base[0].Qualifier
	} else {
		c.qualifier = e.interner.Intern(qualifier)
	}
	fam.columns = append(fam.columns, c)
	if len(fam.columns) == manyColumns {
		fam.index = make(map[string]*columnEdit, 2*manyColumns)
		for _, c := range fam.columns {
			fam.index[c.qualifier] = c
		}
	} else if fam.index != nil {
		fam.index[c.qualifier] = c
	}
	return c
}

func (e *editor) clear(family string) {
	f := e.edit(family)
	f.cleared, f.columns, f.index = true, nil, nil
}

// clearAll empties the row and says which families held data.
func (e *editor) clearAll() []*bigtablepb.Mutation {
	var muts []*bigtablepb.Mutation
	for _, c := range e.result() {
		if n := len(muts); n > 0 && muts[n-1].GetDeleteFromFamily().FamilyName == c.Family {
			continue
		}
		muts = append(muts, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{
			DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: c.Family},
		}})
	}
	for i := range e.cells {
		if i == 0 || e.cells[i].Family != e.cells[i-1].Family {
			e.clear(e.cells[i].Family)
		}
	}
	for _, f := range e.families {
		e.clear(f.family)
	}
	return muts
}

// result makes the new row's cells.
func (e *editor) result() []Cell {
	slices.SortFunc(e.families, func(a, b *familyEdit) int { return strings.Compare(a.family, b.family) })
	n := len(e.cells)
	for _, f := range e.families {
		for _, c := range f.columns {
			n += len(c.added)
		}
	}
	out := make([]Cell, 0, n)
	rest := e.cells
	for _, f := range e.families {
		for len(rest) > 0 && rest[0].Family < f.family {
			out, rest = append(out, rest[0]), rest[1:]
		}
		was := 0
		for was < len(rest) && rest[was].Family == f.family {
			was++
		}
		old := rest[:was]
		rest = rest[was:]
		if f.cleared {
			old = nil
		}
		out = f.merge(out, old)
	}
	return append(out, rest...)
}

// merge appends the family's cells, old ones and edited columns, in order.
func (f *familyEdit) merge(out, old []Cell) []Cell {
	columns := slices.Clone(f.columns)
	slices.SortFunc(columns, func(a, b *columnEdit) int { return strings.Compare(a.qualifier, b.qualifier) })
	for _, c := range columns {
		for len(old) > 0 && old[0].Qualifier < c.qualifier {
			out, old = append(out, old[0]), old[1:]
		}
		for len(old) > 0 && old[0].Qualifier == c.qualifier {
			old = old[1:] // c.base is what remains of them
		}
		out = c.merge(out)
	}
	return append(out, old...)
}

// merge appends the column's cells, newest first. Of several cells with one
// timestamp the last one written wins; an aggregate combines them.
func (c *columnEdit) merge(out []Cell) []Cell {
	added := c.added
	if len(added) > 1 {
		added = slices.Clone(added)
		slices.SortStableFunc(added, func(a, b Cell) int { return CompareCells(&a, &b) })
	}
	base := c.base
	for len(added) > 0 {
		for len(base) > 0 && base[0].Timestamp > added[0].Timestamp {
			out, base = append(out, base[0]), base[1:]
		}
		cell := added[0]
		if len(base) > 0 && base[0].Timestamp == cell.Timestamp {
			cell, base = c.fold(base[0], cell), base[1:]
		}
		for added = added[1:]; len(added) > 0 && added[0].Timestamp == cell.Timestamp; added = added[1:] {
			cell = c.fold(cell, added[0])
		}
		out = append(out, cell)
	}
	return append(out, base...)
}

func (c *columnEdit) fold(old, new Cell) Cell {
	if c.aggregate != nil {
		new.Value = c.aggregate.combine(old.Value, new.Value)
	}
	return new
}
