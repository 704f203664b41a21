package pipetest

import (
	"bytes"
	"slices"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// checkRows pairs each expected row with the first of its table and key that came.
// Rows of one key have an order, others have none.
func checkRows(t *pipeline.Test, got []*mapping.Row) []Problem {
	var problems []Problem
	left := slices.Clone(got)
	for i := range t.Expect.Rows {
		want := &t.Expect.Rows[i]
		w, faults := newWantedRow(want)
		if len(faults) > 0 {
			problems = append(problems, faults...)
		}
		at := slices.IndexFunc(left, w.same)
		if at < 0 {
			problems = append(problems, Problem{Pos: want.Pos, Text: "the row is not written", Lines: w.lines()})
			continue
		}
		if lines := w.difference(left[at]); lines != nil && len(faults) == 0 {
			problems = append(problems, Problem{Pos: want.Pos, Text: "the row differs", Lines: lines})
		}
		left = slices.Delete(left, at, at+1)
	}
	for _, r := range left {
		problems = append(problems, Problem{Pos: t.Expect.Pos, Text: "a row that the test does not expect", Lines: rowLines("+ ", r)})
	}
	return problems
}

// same reports whether a row is the expected one by its name.
func (w *wantedRow) same(r *mapping.Row) bool {
	return r.Schema == w.row.Table && (w.row.TableID == "" || w.row.TableID == r.Table.Table) && bytes.Equal(r.Entry.RowKey, w.key)
}

// lines prints an expected row.
func (w *wantedRow) lines() []string {
	id := w.row.TableID
	if id == "" {
		id = w.row.Table.Name
	}
	out := []string{"- " + id + " " + mapping.Key(w.row.Table, w.key)}
	for _, s := range slices.Concat(w.groups...) {
		out = append(out, "-   "+s.line(w.row.Table))
	}
	return out
}

// difference prints both rows, mutation by mutation; nil where they are equal.
func (w *wantedRow) difference(r *mapping.Row) []string {
	want, got := slices.Concat(w.groups...), written(r)
	aligned := align(want, w.arrange(got))
	fewest := differing(aligned)
	if fewest == 0 {
		return nil
	}
	// Where mutations are missing, windows slip: columns put in order over the whole row
	// read better then, unless they hide that the order is what differs.
	sorted := slices.Clone(got)
	sortLike(want, sorted)
	if loose := align(want, sorted); differing(loose) > 0 && differing(loose) < fewest {
		aligned = loose
	}
	out := []string{"  " + rowName(r)}
	for _, d := range aligned {
		switch {
		case d.got == nil:
			out = append(out, "-   "+d.want.line(r.Schema))
		case d.want == nil:
			out = append(out, "+   "+mutationLine(r.Schema, d.got))
		default:
			out = append(out, "    "+mutationLine(r.Schema, d.got))
		}
	}
	return out
}

func differing(pairs []pair) int {
	n := 0
	for _, p := range pairs {
		if p.want == nil || p.got == nil {
			n++
		}
	}
	return n
}

func mutationLine(schema *pipeline.Table, m *bigtablepb.Mutation) string {
	return mapping.Lines(schema, &bigtablepb.MutateRowsRequest_Entry{Mutations: []*bigtablepb.Mutation{m}})[0]
}

// written returns the mutations that the mapping says: not the marker that goes with
// the entry.
func written(r *mapping.Row) []*bigtablepb.Mutation {
	all := r.Entry.Mutations
	if r.Unless != nil && r.Parts[0].Mapping.MarkerFamily != nil { // the last mutation, whatever it was merged of
		return all[:len(all)-1]
	}
	return all
}

// column is what a mutation changes; of other mutations than those of a column, zero.
type column struct{ family, qualifier string }

func columnOf(m *bigtablepb.Mutation) column {
	switch c := m.Mutation.(type) {
	case *bigtablepb.Mutation_SetCell_:
		return column{c.SetCell.FamilyName, string(c.SetCell.ColumnQualifier)}
	case *bigtablepb.Mutation_DeleteFromColumn_:
		return column{c.DeleteFromColumn.FamilyName, string(c.DeleteFromColumn.ColumnQualifier)}
	case *bigtablepb.Mutation_AddToCell_:
		return column{c.AddToCell.FamilyName, string(c.AddToCell.ColumnQualifier.GetRawValue())}
	case *bigtablepb.Mutation_MergeToCell_:
		return column{c.MergeToCell.FamilyName, string(c.MergeToCell.ColumnQualifier.GetRawValue())}
	case *bigtablepb.Mutation_DeleteFromFamily_:
		return column{family: c.DeleteFromFamily.FamilyName}
	}
	return column{}
}

// arrange puts the mutations that stand where a group is expected in the group's order
// of columns: one set or delete of the file says no order. What one column undergoes
// stays in order.
func (w *wantedRow) arrange(got []*bigtablepb.Mutation) []*bigtablepb.Mutation {
	got = slices.Clone(got)
	rest := got
	for _, group := range w.groups {
		window := rest[:min(len(group), len(rest))]
		rest = rest[len(window):]
		sortLike(group, window)
	}
	return got
}

// sortLike sorts mutations by where their column first stands in a group; those of
// other columns come last.
func sortLike(group []step, mutations []*bigtablepb.Mutation) {
	place := map[column]int{}
	for i, s := range group {
		if _, seen := place[columnOf(s.m)]; !seen {
			place[columnOf(s.m)] = i
		}
	}
	index := func(m *bigtablepb.Mutation) int {
		if i, ok := place[columnOf(m)]; ok {
			return i
		}
		return len(group)
	}
	slices.SortStableFunc(mutations, func(a, b *bigtablepb.Mutation) int { return index(a) - index(b) })
}

// pair is a line of a difference: both where they are equal, else one.
type pair struct {
	want *step
	got  *bigtablepb.Mutation
}

// maxAligned bounds the table of alignMiddle; what is longer is printed one after the other.
const maxAligned = 4 << 20

// align pairs what is equal, so that few lines differ.
func align(want []step, got []*bigtablepb.Mutation) []pair {
	var before, after []pair
	for len(want) > 0 && len(got) > 0 && want[0].is(got[0]) {
		before = append(before, pair{&want[0], got[0]})
		want, got = want[1:], got[1:]
	}
	for len(want) > 0 && len(got) > 0 && want[len(want)-1].is(got[len(got)-1]) {
		after = append(after, pair{&want[len(want)-1], got[len(got)-1]})
		want, got = want[:len(want)-1], got[:len(got)-1]
	}
	slices.Reverse(after)
	return slices.Concat(before, alignMiddle(want, got), after)
}

// alignMiddle finds the longest common subsequence.
func alignMiddle(want []step, got []*bigtablepb.Mutation) []pair {
	if (len(want)+1)*(len(got)+1) > maxAligned {
		return unaligned(want, got)
	}
	length := make([][]int, len(want)+1) // of the common subsequence of want[i:] and got[j:]
	for i := range length {
		length[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i].is(got[j]) {
				length[i][j] = 1 + length[i+1][j+1]
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var out []pair
	i, j := 0, 0
	for i < len(want) && j < len(got) {
		switch {
		case want[i].is(got[j]):
			out = append(out, pair{&want[i], got[j]})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			out = append(out, pair{want: &want[i]})
			i++
		default:
			out = append(out, pair{got: got[j]})
			j++
		}
	}
	return append(out, unaligned(want[i:], got[j:])...)
}

func unaligned(want []step, got []*bigtablepb.Mutation) []pair {
	var out []pair
	for i := range want {
		out = append(out, pair{want: &want[i]})
	}
	for _, m := range got {
		out = append(out, pair{got: m})
	}
	return out
}
