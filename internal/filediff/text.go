package filediff

import (
	"fmt"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

const absent = "absent"

// source is an expression as it stands in the file.
func source(e pipeline.Expr) string {
	if e.IsZero() {
		return absent
	}
	return e.Source
}

// tableText names the table or tables of an entry of tables.
func tableText(t *pipeline.Table) string {
	if t.IDFrom.IsZero() {
		return t.Ref().String()
	}
	return fmt.Sprintf("projects/%s/instances/%s, by %s", t.Project, t.Instance, t.IDFrom.Source)
}

func column(f *pipeline.Family, qualifier string) string {
	return fmt.Sprintf("%s:%q", f.Name, qualifier)
}

// mutationText is a mutation on one line, with everything that decides what it writes.
func mutationText(m *pipeline.Mutation) string {
	var parts []string
	for _, c := range m.Cells {
		parts = append(parts, column(c.Family, c.Qualifier)+" = "+c.Value.Source)
	}
	for _, c := range m.Columns {
		parts = append(parts, column(c.Family, c.Qualifier))
	}
	for _, f := range m.Families {
		parts = append(parts, f.Name)
	}
	out := string(m.Kind)
	if len(parts) > 0 {
		out += " " + strings.Join(parts, ", ")
	}
	if m.Replace != pipeline.ReplaceNothing {
		out += ", replace: " + string(m.Replace)
	}
	if !m.From.IsZero() || !m.To.IsZero() {
		out += fmt.Sprintf(", from %s to %s", source(m.From), source(m.To))
	}
	if m.AllVersions {
		out += ", all versions"
	}
	if m.Tombstone {
		out += ", with a tombstone"
	}
	if !m.When.IsZero() {
		out += ", when " + m.When.Source
	}
	return out
}

func mutationsText(all []*pipeline.Mutation) string {
	out := make([]string, len(all))
	for i, m := range all {
		out[i] = mutationText(m)
	}
	return strings.Join(out, "; ")
}

// familyText is what a family declares.
func familyText(f *pipeline.Family) string {
	if f.Aggregate != "" {
		return "aggregate: " + string(f.Aggregate)
	}
	out := make([]string, 0, len(f.Columns)+1)
	for _, c := range f.Columns {
		out = append(out, fmt.Sprintf("%q: %s", c.Qualifier, c.Encoding))
	}
	return "columns: {" + strings.Join(out, ", ") + "}"
}
