package pipeline

import (
	"slices"
)

func (b *builder) test(doc *testDoc) {
	t := &Test{Name: doc.Name.v, Pos: doc.pos}
	for _, other := range b.p.Tests {
		if doc.Name.ok() && other.Name == t.Name {
			b.fail(doc.Name.at, "%q is the name of the test on line %d already", t.Name, other.Pos.Line)
		}
	}
	if doc.Message != nil && doc.Message.ok() {
		t.Message = b.message(doc.Message)
	}
	if doc.Row != nil && doc.Row.ok() {
		t.Row = b.testRow(doc.Row)
	}
	if doc.Change != nil && doc.Change.ok() {
		t.Change = b.testChange(doc.Change)
	}
	t.Expect = b.expect(doc)
	b.p.Tests = append(b.p.Tests, t)
}

func (b *builder) message(doc *messageDoc) *TestMessage {
	if b.p.Write == nil && !b.faulty("write") {
		b.fail(doc.at, "a message needs write, which the file does not have")
	}
	m := &TestMessage{
		ID: doc.ID.v, OrderingKey: doc.OrderingKey.v, Subscription: doc.Subscription.v,
		PublishTime: doc.PublishTime.v, Attributes: map[string]string{}, Data: doc.Data.v,
	}
	if doc.Raw.given() {
		m.Data = []byte(doc.Raw.v)
	}
	for _, a := range doc.Attributes.entries {
		m.Attributes[a.key] = a.value.v
	}
	return m
}

func (l literal) literal() Literal { return Literal{Pos: l.pos, JSON: l.v} }

func (b *builder) testRow(doc *rowDoc) *TestRow {
	r := &TestRow{Key: doc.Key.literal()}
	if doc.Scan.ok() {
		i := slices.IndexFunc(b.p.Scans, func(s *Scan) bool { return s.Name == doc.Scan.v })
		if i < 0 {
			b.unknown(doc.Scan, "scans", names(b.p.Scans, func(s *Scan) string { return s.Name }))
			return r
		}
		r.Scan = b.p.Scans[i]
		r.Cells = b.testCells(&doc.Cells, r.Scan.Table, "")
		return r
	}
	return r
}

func names[T any](list []T, name func(T) string) []string {
	var out []string
	for _, v := range list {
		out = append(out, name(v))
	}
	return out
}

// unknown reports a name that a section does not have.
func (b *builder) unknown(t text, section string, known []string) {
	if !b.faulty(section) {
		b.fail(t.at, "no %q in %s%s", t.v, section, didYouMean(t.v, known))
	}
}

func (b *builder) testChange(doc *changeInDoc) *TestChange {
	c := &TestChange{
		RowKey: doc.RowKey.literal(), Type: doc.Type.v, Cluster: doc.Cluster.v, TieBreaker: int(doc.TieBreaker.v),
		CommitTime: doc.CommitTime.v, LowWatermark: doc.LowWatermark.v,
	}
	if !doc.Changes.ok() {
		return c
	}
	i := slices.IndexFunc(b.p.Changes, func(c *Change) bool { return c.Name == doc.Changes.v })
	if i < 0 {
		b.unknown(doc.Changes, "changes", names(b.p.Changes, func(c *Change) string { return c.Name }))
		return c
	}
	c.Change = b.p.Changes[i]
	for j := range doc.Entries {
		c.Entries = append(c.Entries, b.testEntry(&doc.Entries[j], c.Change.Table))
	}
	return c
}

func (b *builder) testEntry(doc *entryDoc, t *Table) TestEntry {
	e := TestEntry{
		Pos: doc.pos, Kind: doc.Kind.v, FamilyName: doc.Family.v, Qualifier: doc.Qualifier.v,
		Timestamp: doc.Timestamp.v, Value: doc.Value.literal(),
	}
	if t != nil {
		e.Family = t.Family(doc.Family.v)
	}
	if doc.Range != nil {
		e.From, e.To = doc.Range.From.v, doc.Range.To.v
	}
	takes := map[string]struct{ qualifier, timestamp, value, times bool }{
		"SET_CELL":      {qualifier: true, timestamp: true, value: true},
		"ADD_TO_CELL":   {qualifier: true, timestamp: true, value: true},
		"MERGE_TO_CELL": {qualifier: true, timestamp: true, value: true},
		"DELETE_CELLS":  {qualifier: true, times: true},
		"DELETE_FAMILY": {},
	}[e.Kind]
	for _, f := range []struct {
		at
		takes, needs bool
		word         string
	}{
		{doc.Qualifier.at, takes.qualifier, takes.qualifier, "qualifier"},
		{doc.Timestamp.at, takes.timestamp, takes.timestamp, "timestamp"},
		{doc.Value.at, takes.value, takes.value, "value"},
	} {
		switch {
		case !doc.Kind.ok():
		case f.given() && !f.takes:
			b.fail(f.at, "does not go with %s", e.Kind)
		case !f.given() && f.needs:
			b.fail(f.at, "is missing: %s has one", e.Kind)
		}
	}
	if doc.Range != nil && doc.Kind.ok() && !takes.times {
		b.fail(doc.Range.at, "goes with DELETE_CELLS only")
	}
	return e
}

// testCells resolves the columns that a test writes out; kind is empty for the
// cells of a row that is read.
func (b *builder) testCells(doc *dict[dict[literal]], t *Table, kind MutationKind) []TestCell {
	var cells []TestCell
	for _, byFamily := range doc.entries {
		f := b.familyOf(t, byFamily.key, byFamily.at)
		if f == nil || kind != "" && !b.accepts(f, kind, byFamily.at) {
			continue
		}
		for _, c := range byFamily.value.entries {
			cells = append(cells, TestCell{
				Family: f, Qualifier: c.key, Encoding: inputEncoding(f, c.key, kind), Value: c.value.literal(),
			})
		}
	}
	return cells
}

func (b *builder) expect(test *testDoc) Expect {
	doc := &test.Expect
	e := Expect{Pos: doc.pos, Skipped: doc.Skipped.v}
	if !doc.ok() {
		return e
	}
	if !b.faulty(test.place) {
		b.expectFits(doc, test.Message != nil)
	}
	if doc.Rows != nil {
		for i := range *doc.Rows {
			e.Rows = append(e.Rows, b.expectRow(&(*doc.Rows)[i]))
		}
	}
	for i := range doc.Rejected {
		r := &doc.Rejected[i]
		e.Rejected = append(e.Rejected, ExpectRejected{Pos: r.pos, Mapping: r.Mapping.v, Place: r.At.v, Error: r.Error.v})
		b.knownMapping(r.Mapping)
	}
	if doc.Records != nil {
		for _, l := range *doc.Records {
			e.Records = append(e.Records, l.literal())
		}
	}
	return e
}

// expectFits checks that what is expected can come of the input.
func (b *builder) expectFits(doc *expectDoc, message bool) {
	switch {
	case doc.Rows == nil && doc.Rejected == nil && doc.Records == nil && !doc.Skipped.v:
		b.fail(doc.at, "expects nothing: write rows, rejected or skipped for a message, records for a row or change; [] where none may come")
	case message && doc.Records != nil:
		b.fail(doc.at, "records come of a row or change; a message makes rows")
	case !message && (doc.Rows != nil || doc.Skipped.given()):
		b.fail(doc.at, "rows and skipped come of a message; a row or change makes records")
	case doc.Skipped.v && (doc.Rows != nil || doc.Rejected != nil):
		b.fail(doc.Skipped.at, "stands beside rows or rejected: what is skipped makes neither")
	}
}

func (b *builder) knownMapping(t text) {
	if !t.ok() || b.p.Write == nil {
		return
	}
	known := names(b.p.Write.Mappings, func(m *Mapping) string { return m.Name })
	if !slices.Contains(known, t.v) {
		b.unknown(t, "write.mappings", known)
	}
}

func (b *builder) expectRow(doc *wantRowDoc) ExpectRow {
	r := ExpectRow{Pos: doc.pos, RowKey: doc.RowKey.literal(), Timestamp: doc.Timestamp.v}
	r.Table, r.TableID = b.writtenTable(doc.Table)
	for i := range doc.Mutations {
		r.Mutations = append(r.Mutations, b.expectMutation(&doc.Mutations[i], r.Table))
	}
	return r
}

// writtenTable finds the table of a row that a test expects: by its name, or by
// an id that a computed one may have.
func (b *builder) writtenTable(t text) (*Table, string) {
	if !t.ok() {
		return nil, ""
	}
	for _, table := range b.p.Tables {
		if table.Name != t.v && table.IDMatches != nil && table.IDMatches.MatchString(t.v) {
			return table, t.v
		}
	}
	return b.named(t), ""
}

func (b *builder) expectMutation(doc *wantMutationDoc, t *Table) ExpectMutation {
	m := ExpectMutation{
		Pos: doc.pos, Replace: Replace(doc.Replace.v), From: doc.From.v, To: doc.To.v,
		AllVersions: doc.Versions.v == "all", Tombstone: doc.Tombstone.v,
	}
	o := doc.operations()
	kind, _, cells := o.chosen()
	m.Kind = kind
	if cells != nil {
		m.Cells = b.testCells(cells, t, kind)
	}
	m.Columns, m.Families = o.deleted(b, kind, t)
	like := &Mutation{Kind: m.Kind, Columns: m.Columns, Tombstone: m.Tombstone}
	b.modifiers(like, doc.Replace.at, doc.From.at, doc.To.at, doc.Versions.at, doc.Tombstone.at)
	return m
}
