package lint

import (
	"encoding/base64"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// written looks at the columns that a mapping writes and deletes, and at nulls in them.
func (c *checker) written(m *mapping.Static) {
	values := map[string]*expr.Program{}
	for _, p := range m.All {
		values[p.Source().Place] = p
	}
	for _, mu := range m.Source.Mutations {
		for _, a := range mu.Cells {
			if mu.Kind != pipeline.Set {
				continue
			}
			c.undeclared(a.Value.Pos, a.Value.Place, a.Family, a.Qualifier, "which is then written as bytes")
			c.null(m, a, values[a.Value.Place])
		}
		for _, col := range mu.Columns {
			c.undeclared(col.Pos, placeOf(m, ""), col.Family, col.Qualifier, "so that there may be nothing to delete")
		}
	}
}

// null warns of a value that is null in every record.
func (c *checker) null(m *mapping.Static, a pipeline.Assignment, value *expr.Program) {
	if value == nil {
		return
	}
	if v, known := value.Sample(); !known || v != nil {
		return
	}
	what := "an empty cell"
	if a.Encoding.String() == "string" {
		what = "the text of nullString"
	}
	c.add(Warning, RuleNull, a.Value.Pos, a.Value.Place,
		"is always null, which writes %s: to write nothing leave the column out, to delete it use deleteColumns", what)
}

// keyOrder warns of a key encoding under which numbers do not sort.
func (c *checker) keyOrder(t *pipeline.Table) {
	place := "tables." + t.Name + ".key"
	switch t.Key.Kind.String() {
	case "int8", "int16", "int32", "int64":
		c.add(Warning, RuleNegative, t.Pos, place, "keys of type %s sort as bytes, negative numbers after all others: where there may be some, use text of pad(…), or add an offset", t.Key)
	case "decimal":
		c.add(Warning, RuleNegative, t.Pos, place, "keys of type %s do not sort as numbers, for their length differs: use text of a fixed width", t.Key)
	}
}

// policies warns of a policy that is left at fail.
func (c *checker) policies() {
	w := c.p.Write
	if w == nil {
		return
	}
	for _, name := range w.Unsaid {
		record := "that can never be written"
		if name == "onUnmatched" {
			if w.Format == pipeline.FormatMutation || slices.ContainsFunc(w.Mappings, func(m *pipeline.Mapping) bool { return m.When.IsZero() }) {
				continue // no record is unmatched
			}
			record = "that no mapping takes"
		}
		c.add(Warning, RulePolicy, w.Pos, "write."+name,
			"is left at fail: a message with a record %s is delivered %d times, all of it, and then held in %s: write dead-letter to hold that record alone, another policy, or fail where this is meant", record, attempts, c.undelivered())
	}
}

// patterns warns of the patterns of a change stream that match none of the names that its
// table declares, so that they let nothing through, and of those that match a qualifier as
// the file writes it, and not in base64.
func (c *checker) patterns(ch *pipeline.Change) {
	place := "changes." + ch.Name + ".filter."
	var families, encoded, plain []string
	open := false // a family may have other columns
	for _, f := range ch.Table.Families {
		families = append(families, f.Name)
		open = open || len(f.Columns) == 0 || f.AllowUndeclared
		for _, col := range f.Columns {
			encoded = append(encoded, f.Name+":"+base64.StdEncoding.EncodeToString([]byte(col.Qualifier)))
			plain = append(plain, f.Name+":"+col.Qualifier)
		}
	}
	for _, p := range ch.Filter.Families.Include { // a family may be excluded before it is there
		if !slices.ContainsFunc(families, p.MatchString) {
			c.add(Warning, RuleName, ch.Pos, place+"families", "pattern %s matches no family that table %q declares", pipeline.PatternText(p), ch.Table.Name)
		}
	}
	for _, p := range slices.Concat(ch.Filter.Qualifiers.Include, ch.Filter.Qualifiers.Exclude) {
		if slices.ContainsFunc(encoded, p.MatchString) {
			continue
		}
		included := slices.Contains(ch.Filter.Qualifiers.Include, p)
		if i := slices.IndexFunc(plain, p.MatchString); i >= 0 {
			c.add(Warning, RuleName, ch.Pos, place+"qualifiers", "pattern %s is held against family:base64(qualifier) and matches none: column %s is %s there", pipeline.PatternText(p), plain[i], encoded[i])
		} else if included && !open {
			c.add(Warning, RuleName, ch.Pos, place+"qualifiers", "pattern %s matches no column that table %q declares, as family:base64(qualifier)", pipeline.PatternText(p), ch.Table.Name)
		}
	}
}
