package mapping

import (
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// overhead is an upper bound of what the wire format adds to a mutation's bytes.
const overhead = 64

func (r *made) add(m *bigtablepb.Mutation, size int) {
	r.mutations = append(r.mutations, m)
	r.bytes += size
}

// mutations evaluates the mapping's mutations in the file's order.
func (s *Session) mutations(m *mapping, micros int64, r *made) error {
	for i := range m.mutations {
		mu := &m.mutations[i]
		if mu.when != nil {
			applies, err := mu.when.Holds(&s.vars)
			if err != nil {
				return err
			}
			if !applies {
				continue
			}
		}
		if err := s.mutation(m, mu, micros, r); err != nil {
			return err
		}
		if err := s.charge(r); err != nil {
			return &placedError{"mutations", err}
		}
	}
	return nil
}

func (s *Session) mutation(m *mapping, mu *mutation, micros int64, r *made) error {
	switch mu.src.Kind {
	case pipeline.Set:
		return s.set(m, mu, micros, r)
	case pipeline.Add, pipeline.Merge:
		return s.aggregate(mu, micros, r)
	case pipeline.DeleteColumns:
		return s.deleteColumns(m, mu, micros, r)
	case pipeline.DeleteFamilies:
		for _, f := range mu.src.Families {
			r.add(deleteFamily(f.Name))
		}
	case pipeline.DeleteRow:
		r.add(deleteRow())
	default:
		return fmt.Errorf("no such mutation: %s", mu.src.Kind)
	}
	return nil
}

func (s *Session) set(m *mapping, mu *mutation, micros int64, r *made) error {
	for i := range mu.cells {
		c := &mu.cells[i]
		v, err := c.value.Eval(&s.vars)
		if err != nil {
			return err
		}
		if v == (expr.Absent{}) {
			continue
		}
		value, err := c.encoding.Append(nil, v, m.src.Table.NullString)
		if err != nil {
			return at(c.value, err)
		}
		if len(value) > s.w.limits.CellBytes {
			return at(c.value, fmt.Errorf("a cell of %d bytes; Bigtable takes at most %d", len(value), s.w.limits.CellBytes))
		}
		switch {
		case mu.src.Replace == pipeline.ReplaceAll:
			r.add(deleteVersions(c.family, c.qualifier, 0, 0))
		case mu.src.Replace == pipeline.ReplaceOlder && micros > 0: // an end of 0 would mean no end
			r.add(deleteVersions(c.family, c.qualifier, 0, micros))
		}
		r.add(setCell(c.family, c.qualifier, micros, value))
		if err := s.charge(r); err != nil {
			return at(c.value, err)
		}
	}
	return nil
}

func (s *Session) aggregate(mu *mutation, micros int64, r *made) error {
	for i := range mu.cells {
		c := &mu.cells[i]
		v, err := c.value.Eval(&s.vars)
		if err != nil {
			return err
		}
		if v == (expr.Absent{}) {
			continue
		}
		input := &bigtablepb.Value{}
		if mu.src.Kind == pipeline.Merge {
			accumulated, err := accumulator(v)
			if err != nil {
				return at(c.value, err)
			}
			// The service refuses an accumulator as raw_value (features.md, SNK-41).
			input.Kind = &bigtablepb.Value_BytesValue{BytesValue: accumulated}
			r.add(mergeToCell(c.family, c.qualifier, micros, input, len(accumulated)))
			continue
		}
		n, err := addend(v)
		if err != nil {
			return at(c.value, err)
		}
		input.Kind = &bigtablepb.Value_IntValue{IntValue: n}
		r.add(addToCell(c.family, c.qualifier, micros, input))
	}
	return nil
}

func (s *Session) deleteColumns(m *mapping, mu *mutation, micros int64, r *made) error {
	start, end, err := s.deleteRange(mu, micros)
	if err != nil {
		return err
	}
	for i := range mu.columns {
		c := &mu.columns[i]
		r.add(deleteVersions(c.family, c.qualifier, start, end))
		if mu.src.Tombstone {
			null, err := c.encoding.Append(nil, nil, m.src.Table.NullString)
			if err != nil {
				return &placedError{"mutations", err}
			}
			r.add(setCell(c.family, c.qualifier, micros, null))
		}
	}
	return nil
}

// deleteRange returns [start, end) in microseconds; an end of 0 is none.
func (s *Session) deleteRange(mu *mutation, micros int64) (start, end int64, err error) {
	switch {
	case mu.src.AllVersions:
		return 0, 0, nil
	case mu.from == nil && mu.to == nil:
		return 0, micros + 1000, nil // up to and with the record's own millisecond
	}
	if mu.from != nil {
		if start, err = s.micros(mu.from); err != nil {
			return 0, 0, err
		}
	}
	if mu.to != nil {
		if end, err = s.micros(mu.to); err != nil {
			return 0, 0, err
		}
		if end <= start {
			return 0, 0, at(mu.to, errors.New("the end of the deleted range is not after its start"))
		}
	}
	return start, end, nil
}

// check holds a row, which a marker may join, against the service's limits.
func (l *Limits) check(r *made, marked bool) error {
	n := len(r.mutations)
	if marked {
		n++
	}
	if n > l.Mutations {
		return fmt.Errorf("%d mutations of one row; Bigtable takes at most %d", n, l.Mutations)
	}
	if r.bytes <= l.EntryBytes {
		return nil
	}
	entry := &bigtablepb.MutateRowsRequest_Entry{RowKey: r.key, Mutations: r.mutations}
	if size := proto.Size(entry); size > l.EntryBytes {
		return fmt.Errorf("an entry of %d bytes; at most %d can be sent", size, l.EntryBytes)
	}
	return nil
}

// setCellMessages are the three messages of a SetCell, allocated as one.
type setCellMessages struct {
	mutation bigtablepb.Mutation
	choice   bigtablepb.Mutation_SetCell_
	set      bigtablepb.Mutation_SetCell
}

func setCell(family string, qualifier []byte, micros int64, value []byte) (*bigtablepb.Mutation, int) {
	m := &setCellMessages{}
	m.set.FamilyName, m.set.ColumnQualifier, m.set.TimestampMicros, m.set.Value = family, qualifier, micros, value
	m.choice.SetCell = &m.set
	m.mutation.Mutation = &m.choice
	return &m.mutation, overhead + len(family) + len(qualifier) + len(value)
}

// deleteVersions deletes the versions of a column in [start, end) microseconds; 0, 0
// deletes all, which the service is told by no range at all.
func deleteVersions(family string, qualifier []byte, start, end int64) (*bigtablepb.Mutation, int) {
	d := &bigtablepb.Mutation_DeleteFromColumn{FamilyName: family, ColumnQualifier: qualifier}
	if start != 0 || end != 0 {
		d.TimeRange = &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end}
	}
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: d}}, overhead + len(family) + len(qualifier)
}

func deleteFamily(family string) (*bigtablepb.Mutation, int) {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{
		DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: family},
	}}, overhead + len(family)
}

func deleteRow() (*bigtablepb.Mutation, int) {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}, overhead
}

func addToCell(family string, qualifier []byte, micros int64, input *bigtablepb.Value) (*bigtablepb.Mutation, int) {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
		FamilyName: family, ColumnQualifier: rawValue(qualifier), Timestamp: rawTime(micros), Input: input,
	}}}, overhead + len(family) + len(qualifier)
}

func mergeToCell(family string, qualifier []byte, micros int64, input *bigtablepb.Value, size int) (*bigtablepb.Mutation, int) {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{
		FamilyName: family, ColumnQualifier: rawValue(qualifier), Timestamp: rawTime(micros), Input: input,
	}}}, overhead + len(family) + len(qualifier) + size
}

func rawValue(b []byte) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: b}}
}

func rawTime(micros int64) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: micros}}
}
