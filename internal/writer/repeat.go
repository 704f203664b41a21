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
// applied, whatever else the row holds. It knows the filters that yield cells of a range of
// columns, those of a range of values among these, and interleaves of them; of any other it
// says no.
func writesWhatItTests(row *bigtablepb.MutateRowsRequest_Entry, filter *bigtablepb.RowFilter) bool {
	switch f := filter.GetFilter().(type) {
	case *bigtablepb.RowFilter_ColumnRangeFilter:
		return leaves(row, f.ColumnRangeFilter, nil)
	case *bigtablepb.RowFilter_Chain_:
		if all := f.Chain.GetFilters(); len(all) == 2 && all[0].GetColumnRangeFilter() != nil && all[1].GetValueRangeFilter() != nil {
			return leaves(row, all[0].GetColumnRangeFilter(), all[1].GetValueRangeFilter())
		}
	case *bigtablepb.RowFilter_Interleave_:
		for _, one := range f.Interleave.GetFilters() {
			if writesWhatItTests(row, one) {
				return true
			}
		}
	}
	return false
}

// leaves reports whether one of the columns has a cell with one of the values, or with any
// if values is nil, after the row's mutations, which are applied in their order. It is
// certain of yes only: a column that is written several times counts as its last cell.
func leaves(row *bigtablepb.MutateRowsRequest_Entry, columns *bigtablepb.ColumnRange, values *bigtablepb.ValueRange) bool {
	family := columns.GetFamilyName()
	there := map[string]bool{}
	for _, m := range row.GetMutations() {
		switch m := m.GetMutation().(type) {
		case *bigtablepb.Mutation_SetCell_:
			if q := m.SetCell.GetColumnQualifier(); m.SetCell.GetFamilyName() == family && holdsColumn(columns, q) {
				there[string(q)] = values == nil || holdsValue(values, m.SetCell.GetValue())
			}
		case *bigtablepb.Mutation_DeleteFromColumn_:
			if m.DeleteFromColumn.GetFamilyName() == family {
				delete(there, string(m.DeleteFromColumn.GetColumnQualifier()))
			}
		case *bigtablepb.Mutation_DeleteFromFamily_:
			if m.DeleteFromFamily.GetFamilyName() == family {
				clear(there)
			}
		case *bigtablepb.Mutation_DeleteFromRow_:
			clear(there)
		}
	}
	for _, matches := range there {
		if matches {
			return true
		}
	}
	return false
}

func holdsColumn(r *bigtablepb.ColumnRange, q []byte) bool {
	switch s := r.GetStartQualifier().(type) {
	case *bigtablepb.ColumnRange_StartQualifierClosed:
		if bytes.Compare(q, s.StartQualifierClosed) < 0 {
			return false
		}
	case *bigtablepb.ColumnRange_StartQualifierOpen:
		if bytes.Compare(q, s.StartQualifierOpen) <= 0 {
			return false
		}
	}
	switch e := r.GetEndQualifier().(type) {
	case *bigtablepb.ColumnRange_EndQualifierClosed:
		return bytes.Compare(q, e.EndQualifierClosed) <= 0
	case *bigtablepb.ColumnRange_EndQualifierOpen:
		return bytes.Compare(q, e.EndQualifierOpen) < 0
	}
	return true
}

func holdsValue(r *bigtablepb.ValueRange, v []byte) bool {
	switch s := r.GetStartValue().(type) {
	case *bigtablepb.ValueRange_StartValueClosed:
		if bytes.Compare(v, s.StartValueClosed) < 0 {
			return false
		}
	case *bigtablepb.ValueRange_StartValueOpen:
		if bytes.Compare(v, s.StartValueOpen) <= 0 {
			return false
		}
	}
	switch e := r.GetEndValue().(type) {
	case *bigtablepb.ValueRange_EndValueClosed:
		return bytes.Compare(v, e.EndValueClosed) <= 0
	case *bigtablepb.ValueRange_EndValueOpen:
		return bytes.Compare(v, e.EndValueOpen) < 0
	}
	return true
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
