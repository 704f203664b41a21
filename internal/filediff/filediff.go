// Package filediff says what a new version of a pipeline file changes, and guarantees to name each
// difference of the topics, subscriptions, schedules and roles, and of what decides about rows,
// tokens and ids. Of a difference that harms messages, counts or positions that are on their way
// while the new version is deployed, it says how.
//
// What the tests of both files make under both versions shows what the differences come to. Their
// texts hold the tests' data: they are for the user's eyes, and for no log.
package filediff

import (
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Part is what a difference is about.
type Part string

// Values of Part, in the order in which differences come.
const (
	Name          Part = "name"
	Tables        Part = "tables"
	Rows          Part = "rows"
	Tokens        Part = "tokens"
	Delivery      Part = "delivery" // what becomes of messages that are no rows
	Scans         Part = "scans"
	IDs           Part = "ids" // of records, and where positions are kept
	Streams       Part = "changes"
	Services      Part = "services"
	Topics        Part = "topics"
	Subscriptions Part = "subscriptions"
	Schedules     Part = "schedules"
	Grants        Part = "grants"
)

// Difference is one thing that the new version has otherwise. Old is empty if the old version lacks
// it, New if the new one does.
type Difference struct {
	Part  Part   `json:"part"`
	Place string `json:"place"` // as in write.mappings.order.rowKey
	Old   string `json:"old"`
	New   string `json:"new"`
	// Harm says what the difference does to what is on its way. It is empty if it does nothing.
	Harm string `json:"harm,omitempty"`
}

// Example is what a test of one of the files makes under each version.
type Example struct {
	Test string   `json:"test"`
	Old  []string `json:"old"` // what only the old version makes, a line each
	New  []string `json:"new"`
}

// Report is all that a new version changes.
type Report struct {
	Differences []Difference `json:"differences"`
	Examples    []Example    `json:"examples"`
}

// Compare compares two versions of a file.
func Compare(old, new *lint.Loaded) (*Report, error) {
	d := differ{old: old.Pipeline, new: new.Pipeline, out: []Difference{}}
	if d.old.Name != d.new.Name {
		d.add(Name, "name", d.old.Name, d.new.Name, "it is another pipeline: new topics, services and accounts, an empty ledger (scans and change streams begin anew), and new tokens (what dedupe has counted counts again); what waits in the old topics stays there")
	}
	d.tables()
	d.writes()
	d.scans()
	d.changes()
	d.resources(&old.Report.Resources, &new.Report.Resources)
	d.grants(old.Report.Grants, new.Report.Grants)
	examples, err := examples(old, new)
	if err != nil {
		return nil, err
	}
	order := []Part{Name, Tables, Rows, Tokens, Delivery, Scans, IDs, Streams, Services, Topics, Subscriptions, Schedules, Grants}
	slices.SortStableFunc(d.out, func(a, b Difference) int { return slices.Index(order, a.Part) - slices.Index(order, b.Part) })
	return &Report{Differences: d.out, Examples: examples}, nil
}

// differ collects differences.
type differ struct {
	old, new *pipeline.Pipeline
	out      []Difference
}

func (d *differ) add(part Part, place, old, new, harm string) {
	d.out = append(d.out, Difference{part, place, old, new, harm})
}

// field adds a difference if old and new are not the same.
func (d *differ) field(part Part, place, old, new, harm string) bool {
	if old == new {
		return false
	}
	d.add(part, place, old, new, harm)
	return true
}

// pairs returns the elements of old and new by name: nil where one has none. Those of old come
// first, in its order.
func pairs[T any](old, new []*T, name func(*T) string) (out [][2]*T) {
	find := func(in []*T, n string) *T {
		if i := slices.IndexFunc(in, func(x *T) bool { return name(x) == n }); i >= 0 {
			return in[i]
		}
		return nil
	}
	for _, o := range old {
		out = append(out, [2]*T{o, find(new, name(o))})
	}
	for _, n := range new {
		if find(old, name(n)) == nil {
			out = append(out, [2]*T{nil, n})
		}
	}
	return out
}
