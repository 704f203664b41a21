package writer

import (
	"hash/maphash"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// harmlessLate reports whether the entry, once it is applied, may be applied a second time
// at any time as long as nothing conflicts with it in between: sets with times of their
// own, which write the same cells; adds and merges under a token, and whatever stands under
// a marker that the entry writes, which the service does not apply twice. A delete is
// never harmless: late, it removes what has come since.
func harmlessLate(it *item) bool {
	if it.unless != nil {
		return it.repeat
	}
	if !it.repeat {
		return false
	}
	for _, m := range it.row.GetMutations() {
		switch m.GetMutation().(type) {
		case *bigtablepb.Mutation_SetCell_, *bigtablepb.Mutation_AddToCell_, *bigtablepb.Mutation_MergeToCell_:
		default:
			return false
		}
	}
	return true
}

// lateRows holds the entries that may still be applied late, by row key. Of their cells it
// holds hashes: if those of two cells are equal, an entry waits needlessly.
type lateRows struct {
	seed maphash.Seed
	rows map[string][]lateEntry
	next time.Time // when something may be forgotten
}

// lateEntry holds the cells that a late application would write: none for an entry under a
// token or a condition, which the service would apply again only after a delete.
type lateEntry struct {
	cells  map[uint64]uint64 // of family, qualifier and time → of the value
	unless *bigtablepb.RowFilter
	until  time.Time
}

// add remembers an entry whose call may be applied until then.
func (l *lateRows) add(it *item, until time.Time) {
	e := lateEntry{unless: it.unless, until: until}
	if it.unless == nil {
		for _, m := range it.row.GetMutations() {
			if set := m.GetSetCell(); set != nil {
				if e.cells == nil {
					e.cells = map[uint64]uint64{}
				}
				e.cells[l.cell(set)] = maphash.Bytes(l.seed, set.GetValue())
			}
		}
	}
	if l.rows == nil {
		l.rows = map[string][]lateEntry{}
	}
	key := string(it.row.GetRowKey())
	l.rows[key] = append(l.rows[key], e)
	if l.next.IsZero() || until.Before(l.next) {
		l.next = until
	}
}

// wait returns until when an entry must not be sent, because one that is applied late
// would undo it; zero: it may be sent.
func (l *lateRows) wait(row *bigtablepb.MutateRowsRequest_Entry, now time.Time) time.Time {
	var until time.Time
	l.forget(now)
	for _, e := range l.rows[string(row.GetRowKey())] {
		if e.until.After(until) && l.conflict(e, row) {
			until = e.until
		}
	}
	return until
}

// conflict reports whether applying e after the row leaves something else than applying
// it before: the row deletes, or sets one of its cells to another value. If e is conditional
// and the row leaves what its condition looks for, e is not applied after it.
func (l *lateRows) conflict(e lateEntry, row *bigtablepb.MutateRowsRequest_Entry) bool {
	if e.unless != nil && writesWhatItTests(row, e.unless) {
		return false
	}
	for _, m := range row.GetMutations() {
		switch m := m.GetMutation().(type) {
		case *bigtablepb.Mutation_DeleteFromColumn_, *bigtablepb.Mutation_DeleteFromFamily_, *bigtablepb.Mutation_DeleteFromRow_:
			return true
		case *bigtablepb.Mutation_SetCell_:
			if value, same := e.cells[l.cell(m.SetCell)]; same && value != maphash.Bytes(l.seed, m.SetCell.GetValue()) {
				return true
			}
		}
	}
	return false
}

// empty reports whether nothing can be applied late.
func (l *lateRows) empty(now time.Time) bool {
	l.forget(now)
	return len(l.rows) == 0
}

// forget drops the entries that cannot be applied any more.
func (l *lateRows) forget(now time.Time) {
	if now.Before(l.next) {
		return
	}
	l.next = time.Time{}
	for key, all := range l.rows {
		left := all[:0]
		for _, e := range all {
			if now.Before(e.until) {
				left = append(left, e)
				if l.next.IsZero() || e.until.Before(l.next) {
					l.next = e.until
				}
			}
		}
		if l.rows[key] = left; len(left) == 0 {
			delete(l.rows, key)
		}
	}
}

// cell is the hash of a cell's place.
func (l *lateRows) cell(set *bigtablepb.Mutation_SetCell) uint64 {
	return maphash.Comparable(l.seed, struct {
		family, qualifier string
		micros            int64
	}{set.GetFamilyName(), string(set.GetColumnQualifier()), set.GetTimestampMicros()})
}
