package pipeline

import (
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

func (b *builder) mapping(doc *mappingDoc, index int) *Mapping {
	m := &Mapping{
		Name: doc.Name.v, Index: index, Pos: doc.pos, When: doc.When.v, ForEach: doc.ForEach.v,
		Table: b.named(doc.Table), RowKey: doc.RowKey.v, Timestamp: doc.Timestamp.v,
		Dedupe: Dedupe(doc.Dedupe.v), DedupeID: doc.DedupeID.v, AllowFuture: doc.AllowFuture.v,
	}
	if doc.MarkerFamily.ok() {
		m.MarkerFamily = b.familyOf(m.Table, doc.MarkerFamily.v, doc.MarkerFamily.at)
	}
	for i := range doc.Mutations {
		mu := b.mutation(&doc.Mutations[i], m.Table)
		if mu != nil && mu.Kind == DeleteRow && m.Table != nil && m.Table.AuthorizedView != "" {
			b.fail(doc.Mutations[i].operation(), "deletes whole rows of table %q, which is written through an authorized view: a view does not serve that; delete families or columns", m.Table.Name)
		}
		m.Mutations = append(m.Mutations, mu)
	}
	for i, mutation := range m.Mutations {
		if (mutation.Kind == Add || mutation.Kind == Merge) && !doc.Timestamp.given() {
			b.fail(doc.Mutations[i].operation(), `needs the mapping's timestamp, which selects the cell to add to, as in timestamp: bucket(timestamp(event.at), duration("1h"))`)
		}
	}
	b.dedupe(doc, m)
	return m
}

// operation is where the mutation's one operation stands.
func (m *mutationDoc) operation() at {
	if _, where, _ := m.operations().chosen(); where.given() {
		return where
	}
	return m.at
}

func (b *builder) mutation(doc *mutationDoc, t *Table) *Mutation {
	m := &Mutation{
		Pos: doc.pos, When: doc.When.v, Replace: Replace(doc.Replace.v), From: doc.From.v, To: doc.To.v,
		AllVersions: doc.Versions.v == "all", Tombstone: doc.Tombstone.v,
	}
	o := doc.operations()
	kind, _, cells := o.chosen()
	m.Kind = kind
	if cells != nil {
		m.Cells, b.unplaced[m] = b.assignments(cells, t, kind)
	}
	m.Columns, m.Families = o.deleted(b, kind, t)
	b.modifiers(m, doc.Replace.at, doc.From.at, doc.To.at, doc.Versions.at, doc.Tombstone.at)
	return m
}

// modifiers checks what stands beside an operation.
func (b *builder) modifiers(m *Mutation, replace, from, to, versions, tombstone at) {
	if replace.given() && m.Kind != Set {
		b.fail(replace, "goes with set only")
	}
	for _, a := range []at{from, to, versions, tombstone} {
		if a.given() && m.Kind != DeleteColumns {
			b.fail(a, "goes with deleteColumns only")
		}
	}
	bounded := from
	if !from.given() {
		bounded = to
	}
	switch {
	case bounded.given() && versions.given():
		b.fail(versions, "stands beside from or to: either all versions are deleted or some")
	case bounded.given() && m.Tombstone:
		b.fail(tombstone, "stands beside from or to: a tombstone hides all versions up to the record's time")
	case versions.given() && m.Tombstone:
		b.fail(tombstone, "stands beside versions: all, which deletes newer versions too: use one of them")
	}
	for _, c := range m.Columns {
		if m.Tombstone && c.Family.Aggregate != NoAggregate {
			b.fail(tombstone, "family %q is an aggregate, in which no null can be written", c.Family.Name)
		}
	}
}

// assignments returns the cells that can be written, and those whose family cannot.
func (b *builder) assignments(doc *dict[dict[expr]], t *Table, kind MutationKind) (cells, unplaced []Assignment) {
	for _, byFamily := range doc.entries {
		f := b.familyOf(t, byFamily.key, byFamily.at)
		accepted := b.accepts(f, kind, byFamily.at)
		if !accepted {
			f = &Family{Name: byFamily.key}
		}
		for _, c := range byFamily.value.entries {
			a := Assignment{Family: f, Qualifier: c.key, Encoding: inputEncoding(f, c.key, kind), Value: c.value.v}
			if !accepted {
				unplaced = append(unplaced, a)
				continue
			}
			b.qualifier(c.key, c.at)
			cells = append(cells, a)
		}
	}
	return cells, unplaced
}

// accepts reports whether cells of a family can be written by a kind of mutation.
func (b *builder) accepts(f *Family, kind MutationKind, a at) bool {
	switch {
	case f == nil:
		return false
	case kind == Set && f.Aggregate != NoAggregate:
		b.fail(a, "family %q is an aggregate: use add or merge", f.Name)
		return false
	case kind != Set && f.Aggregate == NoAggregate && !b.faulty(child(a.place, "aggregate")):
		b.fail(a, "family %q is no aggregate: declare it so in tables, as in %[1]s: {aggregate: sum}, or use set", f.Name)
		return false
	}
	return true
}

// inputEncoding is the encoding of a value before it is sent: inputs of
// aggregates are integers, accumulators bytes.
func inputEncoding(f *Family, qualifier string, kind MutationKind) cell.Encoding {
	switch kind {
	case Add:
		return cell.Encoding{Kind: cell.Int64}
	case Merge:
		return cell.Encoding{Kind: cell.Bytes}
	}
	return f.Encoding(qualifier)
}

func (b *builder) qualifier(q string, a at) {
	if len(q) > maxQualifier {
		b.fail(a, "a qualifier of %d bytes: Bigtable takes at most %d", len(q), maxQualifier)
	}
}

func (b *builder) columns(doc *dict[[]name], t *Table) []ColumnRef {
	var columns []ColumnRef
	for _, byFamily := range doc.entries {
		f := b.familyOf(t, byFamily.key, byFamily.at)
		if f == nil {
			continue
		}
		for _, q := range byFamily.value {
			b.qualifier(q.v, q.at)
			columns = append(columns, ColumnRef{Family: f, Qualifier: q.v, Pos: q.pos})
		}
	}
	return columns
}

func (b *builder) families(names []text, t *Table) []*Family {
	var families []*Family
	for _, n := range names {
		if !n.ok() {
			continue
		}
		if f := b.familyOf(t, n.v, n.at); f != nil {
			families = append(families, f)
		}
	}
	return families
}

// markerLife is how long a marker must live: seven days in the topic, and 31 in
// the subscription of undelivered messages.
const markerLife = 38 * 24 * time.Hour

func (b *builder) dedupe(doc *mappingDoc, m *Mapping) {
	if !doc.Dedupe.ok() && doc.Dedupe.given() {
		return
	}
	if m.Dedupe == DedupeNone && doc.DedupeID.given() {
		b.fail(doc.DedupeID.at, "stands without dedupe: say window or marker, or leave it out")
	}
	if m.Dedupe != DedupeMarker && doc.MarkerFamily.given() {
		b.fail(doc.MarkerFamily.at, "stands without dedupe: marker")
	}
	switch m.Dedupe {
	case DedupeWindow:
		b.window(doc, m)
	case DedupeMarker:
		b.marker(doc, m)
	}
}

// window checks that a second delivery, which Bigtable applies but for its adds,
// deletes none of them.
func (b *builder) window(doc *mappingDoc, m *Mapping) {
	added := map[*Family]bool{}
	for _, mutation := range m.Mutations {
		if mutation.Kind == Add || mutation.Kind == Merge {
			for _, c := range mutation.Cells {
				added[c.Family] = true
			}
		}
	}
	if len(added) == 0 {
		if !b.faulty(doc.place) {
			b.fail(doc.Dedupe.at, "window recognises add and merge only, and this mapping has neither: leave it out, or use marker")
		}
		return
	}
	for i, mutation := range m.Mutations {
		for f := range deletes(mutation, m.Table) {
			if added[f] {
				b.fail(doc.Mutations[i].operation(), "deletes from family %q, to which the mapping adds under dedupe: window: a second delivery would delete what is not added again", f.Name)
			}
		}
	}
}

// deletes returns the families from which a mutation deletes.
func deletes(m *Mutation, t *Table) map[*Family]bool {
	families := map[*Family]bool{}
	for _, f := range m.Families {
		families[f] = true
	}
	for _, c := range m.Columns {
		families[c.Family] = true
	}
	if m.Kind == DeleteRow && t != nil {
		for _, f := range t.Families {
			families[f] = true
		}
	}
	return families
}

func (b *builder) marker(doc *mappingDoc, m *Mapping) {
	if !doc.MarkerFamily.given() {
		b.fail(doc.Dedupe.at, "marker needs markerFamily beside it, a family of the table for the markers alone")
		return
	}
	f := m.MarkerFamily
	if f == nil {
		return
	}
	if f.Aggregate != NoAggregate {
		b.fail(doc.MarkerFamily.at, "family %q is an aggregate, in which no marker can be written", f.Name)
	}
	if f.GC != nil && keeps(f.GC) <= markerLife {
		b.fail(doc.MarkerFamily.at, "family %q collects markers after %v: a message can come again for 38 days, so maxAge must be more than %v", f.Name, keeps(f.GC), markerLife)
	}
	for i, mutation := range m.Mutations {
		if deletes(mutation, m.Table)[f] {
			b.fail(doc.Mutations[i].operation(), "deletes from family %q, which holds the markers", f.Name)
		}
	}
}

// forever is longer than any rule's age.
const forever = time.Duration(1<<63 - 1)

// keeps returns how long a rule surely keeps the only version of a cell.
func keeps(r *GCRule) time.Duration {
	switch {
	case r.MaxAge > 0:
		return r.MaxAge
	case r.Union != nil:
		shortest := forever
		for _, rule := range r.Union {
			shortest = min(shortest, keeps(rule))
		}
		return shortest
	case r.Intersection != nil:
		var longest time.Duration
		for _, rule := range r.Intersection {
			longest = max(longest, keeps(rule))
		}
		return longest
	}
	return forever
}
