package writer

import (
	"hash/maphash"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

type mutation = bigtablepb.Mutation

func setColumn(family, qualifier string, micros int64, value string) *mutation {
	return &mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte(qualifier), TimestampMicros: micros, Value: []byte(value),
	}}}
}

func deleteColumn(family, qualifier string) *mutation {
	return &mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: family, ColumnQualifier: []byte(qualifier),
	}}}
}

// atLeast yields the cells of a family whose values are not below one.
func atLeast(family, value string) *bigtablepb.RowFilter {
	return chain(
		&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{FamilyName: family}}},
		&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRangeFilter{ValueRangeFilter: &bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueClosed{StartValueClosed: []byte(value)},
		}}},
	)
}

func chain(filters ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: filters}}}
}

// What is sent again after an ambiguous end is found by its condition once it is applied: each
// "yes" is held against the service's own filter.
func TestAnEntryIsRepeatableIfItWritesWhatItTests(t *testing.T) {
	strict := atLeast("cf", "b")
	strict.GetChain().Filters[1].GetValueRangeFilter().StartValue = &bigtablepb.ValueRange_StartValueOpen{StartValueOpen: []byte("b")}
	bounded := atLeast("cf", "b")
	bounded.GetChain().Filters[1].GetValueRangeFilter().EndValue = &bigtablepb.ValueRange_EndValueOpen{EndValueOpen: []byte("d")}
	for name, c := range map[string]struct {
		unless    *bigtablepb.RowFilter
		mutations []*mutation
		want      bool
	}{
		"a column":                      {column("cf", "q"), []*mutation{setColumn("cf", "q", 1000, "x")}, true},
		"another column":                {column("cf", "q"), []*mutation{setColumn("cf", "p", 1000, "x")}, false},
		"the value":                     {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "b")}, true},
		"a larger value":                {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "ba")}, true},
		"a smaller value":               {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "az")}, false},
		"the value, which is left out":  {strict, []*mutation{setColumn("cf", "q", 1000, "b")}, false},
		"a value between":               {bounded, []*mutation{setColumn("cf", "q", 1000, "c")}, true},
		"the end":                       {bounded, []*mutation{setColumn("cf", "q", 1000, "d")}, false},
		"another family":                {atLeast("cf", "b"), []*mutation{setColumn("sum", "q", 1000, "c")}, false},
		"after a delete":                {atLeast("cf", "b"), []*mutation{deleteColumn("cf", "q"), setColumn("cf", "q", 1000, "c")}, true},
		"before a delete":               {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "c"), deleteColumn("cf", "q")}, false},
		"before a delete of another":    {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "c"), deleteColumn("cf", "p")}, true},
		"before a delete of its family": {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "c"), deleteFamily("cf")}, false},
		"written over by a smaller one": {atLeast("cf", "b"), []*mutation{setColumn("cf", "q", 1000, "c"), setColumn("cf", "q", 1000, "a")}, false},
		"a third filter":                {chain(atLeast("cf", "b"), column("cf", "q")), []*mutation{setColumn("cf", "q", 1000, "c")}, false},
		"one of several":                {&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{Filters: []*bigtablepb.RowFilter{column("sum", "q"), strict}}}}, []*mutation{setColumn("cf", "q", 1000, "c")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			row := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: c.mutations}
			if got := repeatableEntry(&Entry{Row: row, Unless: c.unless}); got != c.want {
				t.Fatalf("%v, want %v", got, c.want)
			}
			if !c.want {
				return
			}
			b := newBigtable(t)
			b.create()
			w := b.writer()
			for i, want := range []bool{true, false} { // applied, found
				err := w.Apply(t.Context(), []Entry{{Table: orders, Row: row, Unless: c.unless, Tell: true}})[0]
				if (err == nil) != want || err != nil && !isPresent(err) {
					t.Errorf("application %d: %v", i+1, err)
				}
			}
		})
	}
}

// An entry that waits for a hung call does not, if the late application would find what the
// entry has written.
func TestAConditionThatFindsTheLaterEntryNeedsNoWait(t *testing.T) {
	l := lateRows{seed: maphash.MakeSeed()}
	now := time.Now()
	hung := &item{row: &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: []*mutation{deleteColumn("cf", "q"), setColumn("cf", "q", 1000, "c")}}, unless: atLeast("cf", "c")}
	l.add(hung, now.Add(time.Minute))
	for value, waits := range map[string]bool{"b": true, "d": false} {
		later := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: []*mutation{deleteFamily("sum"), deleteColumn("cf", "q"), setColumn("cf", "q", 2000, value)}}
		if got := !l.wait(later, now).IsZero(); got != waits {
			t.Errorf("an entry that writes %q waits: %v, want %v", value, got, waits)
		}
	}
}
