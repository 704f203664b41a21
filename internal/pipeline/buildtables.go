package pipeline

import (
	"math"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

func (b *builder) tables(doc *document) {
	for i := range doc.Tables.entries {
		e := &doc.Tables.entries[i]
		t := b.table(e, &doc.Bigtable)
		b.p.Tables = append(b.p.Tables, t)
		b.docs[t] = &e.value
	}
	seen := map[TableRef]*Table{}
	for _, t := range b.p.Tables {
		ref := t.Ref()
		if other := seen[ref]; t.ID != "" && other != nil {
			b.errs.add(t.Pos, child("tables", t.Name), "is the same Bigtable table as %q: one table has one schema", other.Name)
		}
		seen[ref] = t
	}
}

func (b *builder) table(e *entry[tableDoc], defaults *bigtableDoc) *Table {
	doc := &e.value
	meant := doc.ok() && !b.faultAt(e.at.place)
	t := &Table{
		Name: e.key, Pos: e.at.pos, ID: doc.ID.v, IDFrom: doc.IDFrom.v, IDMatches: doc.IDMatches.v, Key: doc.Key.v,
		AppProfile: doc.AppProfile.v, AuthorizedView: doc.View.v, Create: Create(doc.Create.v), NullString: doc.NullString.v,
	}
	t.Project = b.place(doc.Project, defaults.Project, b.options.Project, e.at, "project", "BIGTABLE_PROJECT")
	t.Instance = b.place(doc.Instance, defaults.Instance, b.options.Instance, e.at, "instance", "BIGTABLE_INSTANCE")
	switch {
	case doc.IDFrom.given() && doc.ID.given():
		b.fail(doc.ID.at, "stands beside idFrom: a table's id is either fixed or computed")
	case doc.IDFrom.given() && !doc.IDMatches.given():
		b.fail(doc.IDFrom.at, `needs idMatches beside it, the pattern of all ids that it may compute, as in ^orders-\d{4}$`)
	case !doc.IDFrom.given() && doc.IDMatches.given():
		b.fail(doc.IDMatches.at, "stands without idFrom: there is no computed id to match")
	case !doc.IDFrom.given() && !doc.ID.given():
		t.ID = t.Name
	}
	if doc.View.given() && t.Create == CreateIfNeeded {
		b.fail(doc.View.at, "stands beside create: if-needed: a view does not let anyone make tables or families")
	}
	if doc.Key.v.Kind == cell.JSON {
		b.fail(doc.Key.at, "json is no encoding for a row key: use string or bytes")
	}
	for i := range doc.Families.entries {
		t.Families = append(t.Families, b.family(&doc.Families.entries[i]))
	}
	b.unsure[t] = !meant || unsure[tableDoc](b, e.at.place, "key", "families")
	return t
}

// place returns a table's project or instance: its own, else the environment's,
// else the file's.
func (b *builder) place(own, file text, environment string, a at, what, variable string) string {
	switch {
	case own.given():
		return own.v
	case environment != "":
		return environment
	case file.given():
		return file.v
	}
	b.fail(a, "no %s: write bigtable: {%[1]s: …}, or set %s", what, variable)
	return ""
}

func (b *builder) family(e *entry[familyDoc]) *Family {
	doc := &e.value
	f := &Family{Name: e.key, Pos: e.at.pos, Aggregate: Aggregate(doc.Aggregate.v), AllowUndeclared: doc.Undeclared.v == "allow"}
	if doc.GC != nil && doc.GC.ok() {
		f.GC = b.gc(doc.GC)
	}
	if doc.Aggregate.ok() && doc.Columns.given() {
		b.fail(doc.Columns.at, "an aggregate family declares no columns: its inputs are int64")
	}
	if doc.Undeclared.given() && !doc.Columns.given() && !b.faulty(e.at.place) {
		b.fail(doc.Undeclared.at, "stands without columns: where a family declares none, any may be there")
	}
	for _, c := range doc.Columns.entries {
		if len(c.key) > maxQualifier {
			b.fail(c.at, "a qualifier of %d bytes: Bigtable takes at most %d", len(c.key), maxQualifier)
		}
		f.Columns = append(f.Columns, &Column{Qualifier: c.key, Pos: c.at.pos, Encoding: c.value.v})
	}
	return f
}

// maxQualifier is Bigtable's limit for a qualifier, in bytes.
const maxQualifier = 16 << 10

func (b *builder) gc(doc *gcDoc) *GCRule {
	r := &GCRule{MaxVersions: int(min(doc.MaxVersions.v, math.MaxInt32)), MaxAge: doc.MaxAge.v}
	r.Union = b.composite("union", doc.Union)
	r.Intersection = b.composite("intersection", doc.Intersection)
	return r
}

func (b *builder) composite(word string, rules []gcDoc) []*GCRule {
	if len(rules) == 1 {
		b.fail(rules[0].at, "takes two rules or more; write a single one without %s", word)
	}
	var rs []*GCRule
	for i := range rules {
		rs = append(rs, b.gc(&rules[i]))
	}
	return rs
}

// named returns the table that a field names, or nil where that is reported.
func (b *builder) named(t text) *Table {
	if !t.ok() {
		return nil
	}
	names := make([]string, len(b.p.Tables))
	for i, table := range b.p.Tables {
		if table.Name == t.v {
			return table
		}
		names[i] = table.Name
	}
	if !b.faulty("tables") || len(names) > 0 {
		b.fail(t.at, "no table %q in tables%s", t.v, didYouMean(t.v, names))
	}
	return nil
}

// fixed is named for what cannot work on a computed table.
func (b *builder) fixed(t text, why string) *Table {
	table := b.named(t)
	if table != nil && b.docs[table].IDFrom.given() {
		b.fail(t.at, "the id of table %q is computed: %s", t.v, why)
		return nil
	}
	return table
}

// familyOf returns the family of a table, or nil where that is reported.
func (b *builder) familyOf(t *Table, name string, a at) *Family {
	if t == nil {
		return nil
	}
	if f := t.Family(name); f != nil {
		return f
	}
	if families := &b.docs[t].Families; !families.ok() {
		return nil
	}
	names := make([]string, len(t.Families))
	for i, f := range t.Families {
		names[i] = f.Name
	}
	b.fail(a, "table %q declares no family %q%s", t.Name, name, didYouMean(name, names))
	return nil
}
