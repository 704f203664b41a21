package mapping

import (
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// ErrUnmatched is why a record that no mapping takes is not written.
var ErrUnmatched = errors.New("no mapping takes the record")

// entry takes an entry that a message carries ready-made (format: mutation), where it
// is for one of the file's tables and the service would take it.
func (s *Session) entry(i int, r *record.Record) {
	row, err := s.w.Entry(r.Entry)
	if err != nil {
		s.result.Rejected = append(s.result.Rejected, &Rejection{Record: i, Err: err})
		return
	}
	// It comes from no mapping of this file, and a name in the message is not repeated.
	row.Parts = []Part{{i, &pipeline.Mapping{Table: row.Schema}, len(row.Entry.Mutations)}}
	if row.Entry.Idempotency != nil {
		s.result.Last = append(s.result.Last, row)
		return
	}
	s.place(rowID{row.Table, string(row.Entry.RowKey)}, row)
}

// Entry makes a row of an entry that was made before, where it is for one of the file's
// tables, writes to declared families and keeps the service's limits. The error says
// which of these it breaks, and quotes nothing of it.
func (w *Write) Entry(e *record.Entry) (*Row, error) {
	ref, schema, err := w.Table(e.Table)
	if err != nil {
		return nil, err
	}
	if n := len(e.Row.RowKey); n == 0 || n > w.limits.KeyBytes {
		return nil, fmt.Errorf("a row key of %d bytes; Bigtable takes 1 to %d", n, w.limits.KeyBytes)
	}
	if n := len(e.Row.Mutations); n == 0 || n > w.limits.Mutations {
		return nil, fmt.Errorf("%d mutations of one row; Bigtable takes 1 to %d", n, w.limits.Mutations)
	}
	for i, m := range e.Row.Mutations {
		if err := w.limits.mutation(schema, m); err != nil {
			return nil, fmt.Errorf("mutations[%d]: %w", i, err)
		}
	}
	size := proto.Size(e.Row)
	if size > w.limits.EntryBytes {
		return nil, fmt.Errorf("an entry of %d bytes; at most %d can be sent", size, w.limits.EntryBytes)
	}
	if e.Unless != nil {
		c := e.Unless.GetColumnRangeFilter()
		if c == nil || schema.Family(c.FamilyName) == nil {
			return nil, errors.New("its condition is on no column of a family that the table declares")
		}
	}
	row := &Row{Table: ref, Schema: schema, Entry: e.Row, Unless: e.Unless, bytes: size}
	row.Shared = row.Token() != nil
	return row, nil
}

// Table finds the file's table of a full resource name, which an entry that was made
// before carries.
func (w *Write) Table(name string) (pipeline.TableRef, *pipeline.Table, error) {
	ref, ok := pipeline.ParseTableRef(name)
	if !ok {
		return pipeline.TableRef{}, nil, errors.New("the entry's table is no name as projects/P/instances/I/tables/T")
	}
	for _, t := range w.tables {
		if t.Project == ref.Project && t.Instance == ref.Instance &&
			(t.ID == ref.Table || t.IDMatches != nil && t.IDMatches.MatchString(ref.Table)) {
			return ref, t, nil
		}
	}
	return ref, nil, errors.New("the entry is for a table that the pipeline file does not have")
}

// mutation holds a ready-made mutation against the declared families and the limits.
func (l *Limits) mutation(t *pipeline.Table, m *bigtablepb.Mutation) error {
	switch m := m.Mutation.(type) {
	case *bigtablepb.Mutation_SetCell_:
		c := m.SetCell
		if len(c.Value) > l.CellBytes {
			return fmt.Errorf("a cell of %d bytes; Bigtable takes at most %d", len(c.Value), l.CellBytes)
		}
		return errors.Join(family(t, c.FamilyName, false), l.qualifier(c.ColumnQualifier), cellTime(c.TimestampMicros))
	case *bigtablepb.Mutation_AddToCell_:
		c := m.AddToCell
		return errors.Join(family(t, c.FamilyName, true), l.qualifier(c.ColumnQualifier.GetRawValue()), cellTime(c.Timestamp.GetRawTimestampMicros()))
	case *bigtablepb.Mutation_MergeToCell_:
		c := m.MergeToCell
		return errors.Join(family(t, c.FamilyName, true), l.qualifier(c.ColumnQualifier.GetRawValue()), cellTime(c.Timestamp.GetRawTimestampMicros()))
	case *bigtablepb.Mutation_DeleteFromColumn_:
		c := m.DeleteFromColumn
		return errors.Join(anyFamily(t, c.FamilyName), l.qualifier(c.ColumnQualifier), deletedTimes(c.TimeRange))
	case *bigtablepb.Mutation_DeleteFromFamily_:
		return anyFamily(t, m.DeleteFromFamily.FamilyName)
	case *bigtablepb.Mutation_DeleteFromRow_:
		return nil
	}
	return errors.New("a mutation of a kind that is not known here")
}

func anyFamily(t *pipeline.Table, name string) error {
	if t.Family(name) == nil {
		return fmt.Errorf("a family that table %s does not declare", t.Name)
	}
	return nil
}

func family(t *pipeline.Table, name string, aggregate bool) error {
	f := t.Family(name)
	switch {
	case f == nil:
		return anyFamily(t, name)
	case aggregate && f.Aggregate == pipeline.NoAggregate:
		return fmt.Errorf("family %s is no aggregate, and nothing can be added to it", name)
	case !aggregate && f.Aggregate != pipeline.NoAggregate:
		return fmt.Errorf("family %s is an aggregate, and its cells are not set", name)
	}
	return nil
}

func (l *Limits) qualifier(q []byte) error {
	if len(q) > l.QualifierBytes {
		return fmt.Errorf("a qualifier of %d bytes; Bigtable takes at most %d", len(q), l.QualifierBytes)
	}
	return nil
}

// cellTime refuses the time that the service would choose, too: each delivery would
// write another version.
func cellTime(micros int64) error {
	if micros < 0 || micros%1000 != 0 {
		return errors.New("a cell time that is not a whole number of milliseconds since 1970")
	}
	return nil
}

func deletedTimes(r *bigtablepb.TimestampRange) error {
	start, end := r.GetStartTimestampMicros(), r.GetEndTimestampMicros()
	if start < 0 || start%1000 != 0 || end < 0 || end%1000 != 0 || end != 0 && end <= start {
		return errors.New("a range of deleted times that is none of whole milliseconds since 1970")
	}
	return nil
}
