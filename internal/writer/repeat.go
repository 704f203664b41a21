package writer

import (
	"bytes"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// repeatableEntry reports whether an entry may be sent again after an ambiguous end. A
// condition alone does not make it so: only if the entry itself writes what the
// condition looks for does a second application find it and do nothing.
func repeatableEntry(e *Entry) bool {
	if e.Unless != nil {
		return writesWhatItTests(e.Row, e.Unless)
	}
	return repeatable(e.Row)
}

// writesWhatItTests reports whether the filter yields a cell of the row once the entry is
// applied, whatever else the row holds. It knows the filters that look for one column, and
// interleaves of them; of any other it says no.
func writesWhatItTests(row *bigtablepb.MutateRowsRequest_Entry, filter *bigtablepb.RowFilter) bool {
	switch f := filter.GetFilter().(type) {
	case *bigtablepb.RowFilter_ColumnRangeFilter:
		r := f.ColumnRangeFilter
		from, fromClosed := r.GetStartQualifier().(*bigtablepb.ColumnRange_StartQualifierClosed)
		to, toClosed := r.GetEndQualifier().(*bigtablepb.ColumnRange_EndQualifierClosed)
		return fromClosed && toClosed && bytes.Equal(from.StartQualifierClosed, to.EndQualifierClosed) &&
			leaves(row, r.GetFamilyName(), from.StartQualifierClosed)
	case *bigtablepb.RowFilter_Interleave_:
		for _, one := range f.Interleave.GetFilters() {
			if writesWhatItTests(row, one) {
				return true
			}
		}
	}
	return false
}

// leaves reports whether the column has a cell after the row's mutations, which are
// applied in their order.
func leaves(row *bigtablepb.MutateRowsRequest_Entry, family string, qualifier []byte) bool {
	there := false
	for _, m := range row.GetMutations() {
		switch m := m.GetMutation().(type) {
		case *bigtablepb.Mutation_SetCell_:
			there = there || m.SetCell.GetFamilyName() == family && bytes.Equal(m.SetCell.GetColumnQualifier(), qualifier)
		case *bigtablepb.Mutation_DeleteFromColumn_:
			if m.DeleteFromColumn.GetFamilyName() == family && bytes.Equal(m.DeleteFromColumn.GetColumnQualifier(), qualifier) {
				there = false
			}
		case *bigtablepb.Mutation_DeleteFromFamily_:
			there = there && m.DeleteFromFamily.GetFamilyName() != family
		case *bigtablepb.Mutation_DeleteFromRow_:
			there = false
		}
	}
	return there
}

// repeatable reports whether applying the row's mutations twice is the same as once.
func repeatable(row *bigtablepb.MutateRowsRequest_Entry) bool {
	token := len(row.GetIdempotency().GetToken()) >= 8 // shorter ones are not honoured
	for _, m := range row.GetMutations() {
		switch m := m.GetMutation().(type) {
		case *bigtablepb.Mutation_SetCell_:
			if m.SetCell.GetTimestampMicros() < 0 { // the service's clock
				return false
			}
		case *bigtablepb.Mutation_DeleteFromColumn_, *bigtablepb.Mutation_DeleteFromFamily_, *bigtablepb.Mutation_DeleteFromRow_:
		case *bigtablepb.Mutation_AddToCell_, *bigtablepb.Mutation_MergeToCell_:
			if !token {
				return false
			}
		default:
			return false
		}
	}
	return true
}
