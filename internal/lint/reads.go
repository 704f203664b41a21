package lint

import (
	"fmt"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// reads holds what a scan's expressions read of a row against what the scan reads, and
// against the columns that the table declares.
func (c *checker) reads(s *pipeline.Scan, emit *mapping.Emit) {
	for _, col := range s.Cells.Columns {
		c.declared(col.Pos, "scans."+s.Name+".cells.columns."+col.Family.Name, col.Family, col.Qualifier)
	}
	for _, p := range emit.Programs() {
		at, number := p.DecimalOrders()
		for i := range at {
			c.add(Warning, RuleDecimal, at[i], p.Source().Place, "orders a decimal as text, under which 9.50 comes after 10.00: write %s, and a number to compare it with", number[i])
		}
		for _, r := range p.Reads() {
			if fault := leftOut(s, r); fault != "" {
				c.add(Error, RuleLeftOut, r.Pos, p.Source().Place, "%s", fault)
				continue
			}
			if f := s.Table.Family(r.Family); f != nil && r.Column {
				c.declared(r.Pos, p.Source().Place, f, r.Qualifier)
			}
		}
	}
}

// leftOut says why a part of a row can never be there; "" where it can.
func leftOut(s *pipeline.Scan, r expr.Read) string {
	cells := &s.Cells
	switch {
	case cells.KeysOnly:
		return "reads cells, and cells.keysOnly leaves all of them out: read rowKey alone, or leave keysOnly out"
	case r.Family == "":
		return ""
	case cells.Families != nil:
		if !slices.ContainsFunc(cells.Families, func(f *pipeline.Family) bool { return f.Name == r.Family }) {
			return fmt.Sprintf("reads family %q, which cells leaves out, so that it is never there: add it to cells.families", r.Family)
		}
	case cells.Columns != nil:
		return leftOutColumn(cells.Columns, r)
	}
	return ""
}

func leftOutColumn(columns []*pipeline.ColumnRef, r expr.Read) string {
	family := false
	for _, col := range columns {
		if col.Family.Name != r.Family {
			continue
		}
		if family = true; !r.Column || col.Qualifier == r.Qualifier {
			return ""
		}
	}
	if !family {
		return fmt.Sprintf("reads family %q, which cells leaves out, so that it is never there: add what it reads to cells.columns", r.Family)
	}
	return fmt.Sprintf("reads column %q of family %q, which cells leaves out, so that it is never there: add it to cells.columns", r.Qualifier, r.Family)
}

// declared warns of a column that its family, which declares some, does not: it is bytes,
// or a name that nobody writes.
func (c *checker) declared(pos pipeline.Pos, place string, f *pipeline.Family, qualifier string) {
	c.undeclared(pos, place, f, qualifier, "which then reads as bytes")
}

// undeclared warns of a column that its family does not declare, and of the consequence.
func (c *checker) undeclared(pos pipeline.Pos, place string, f *pipeline.Family, qualifier, consequence string) {
	if !f.Undeclared(qualifier) {
		return
	}
	hint := ""
	if near := f.NearestColumn(qualifier); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	c.add(Warning, RuleUndeclared, pos, place, "family %q declares no column %q, %s: declare it, as bytes if it is, or write undeclaredColumns: allow in the family%s", f.Name, qualifier, consequence, hint)
}
