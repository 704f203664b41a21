package pipetest

import (
	"fmt"
	"strings"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// anyMicros stands for the row's time where the test leaves it open. No cell has it.
const anyMicros = -1

// step is one mutation that a test expects.
type step struct {
	m       *bigtablepb.Mutation
	anyTime bool // its time is the row's, and the test leaves that open
}

// is reports whether a mutation is the expected one.
func (s *step) is(m *bigtablepb.Mutation) bool {
	if s.anyTime {
		m = timeless(m)
	}
	return proto.Equal(s.m, m)
}

// line prints the step like a mutation.
func (s *step) line(schema *pipeline.Table) string {
	text := mapping.Lines(schema, &bigtablepb.MutateRowsRequest_Entry{Mutations: []*bigtablepb.Mutation{s.m}})[0]
	if s.anyTime {
		if at, ok := strings.CutSuffix(text, fmt.Sprint(" @ ", anyMicros)); ok {
			return at + " @ any time"
		}
		if to, ok := strings.CutSuffix(text, fmt.Sprint(" [.., ", anyMicros, "]")); ok {
			return to + " [.., the row's time]"
		}
	}
	return text
}

// timeless replaces the time of a mutation, and the end of a range that has no start,
// by that of steps whose time is open.
func timeless(m *bigtablepb.Mutation) *bigtablepb.Mutation {
	m = proto.Clone(m).(*bigtablepb.Mutation)
	switch c := m.Mutation.(type) {
	case *bigtablepb.Mutation_SetCell_:
		c.SetCell.TimestampMicros = anyMicros
	case *bigtablepb.Mutation_AddToCell_:
		c.AddToCell.Timestamp = rawTime(anyMicros)
	case *bigtablepb.Mutation_MergeToCell_:
		c.MergeToCell.Timestamp = rawTime(anyMicros)
	case *bigtablepb.Mutation_DeleteFromColumn_:
		if r := c.DeleteFromColumn.TimeRange; r.GetStartTimestampMicros() == 0 && r.GetEndTimestampMicros() != 0 {
			r.EndTimestampMicros = anyMicros + 1000
		}
	}
	return m
}

// wantedRow makes the steps of an expected row, those of one mutation of the test in
// one group: within a set or delete the columns have no order.
type wantedRow struct {
	row    *pipeline.ExpectRow
	key    []byte
	micros int64
	open   bool // the row's time
	groups [][]step
}

func newWantedRow(r *pipeline.ExpectRow) (*wantedRow, []Problem) {
	w := &wantedRow{row: r, open: r.Timestamp.IsZero(), micros: anyMicros}
	if !w.open {
		w.micros = r.Timestamp.UnixMicro()
	}
	var problems []Problem
	var err error
	if w.key, err = encode(r.Table.Key, r.RowKey, ""); err != nil {
		problems = append(problems, Problem{Pos: r.RowKey.Pos, Text: "the expected row key: " + err.Error()})
	}
	for i := range r.Mutations {
		group, problem := w.group(&r.Mutations[i])
		if problem != nil {
			problems = append(problems, *problem)
		}
		w.groups = append(w.groups, group)
	}
	return w, problems
}

func (w *wantedRow) group(m *pipeline.ExpectMutation) ([]step, *Problem) {
	var group []step
	switch m.Kind {
	case pipeline.Set, pipeline.Add, pipeline.Merge:
		for i := range m.Cells {
			steps, err := w.cell(m, &m.Cells[i])
			if err != nil {
				return nil, &Problem{Pos: m.Cells[i].Value.Pos, Text: "the expected value: " + err.Error()}
			}
			group = append(group, steps...)
		}
	case pipeline.DeleteColumns:
		for i := range m.Columns {
			steps, err := w.deleted(m, &m.Columns[i])
			if err != nil {
				return nil, &Problem{Pos: m.Pos, Text: "the expected tombstone: " + err.Error()}
			}
			group = append(group, steps...)
		}
	case pipeline.DeleteFamilies:
		for _, f := range m.Families {
			group = append(group, step{m: &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{
				DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: f.Name}}}})
		}
	case pipeline.DeleteRow:
		group = append(group, step{m: &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}})
	}
	return group, nil
}

// cell makes the steps of one cell of set, add or merge.
func (w *wantedRow) cell(m *pipeline.ExpectMutation, c *pipeline.TestCell) ([]step, error) {
	family, qualifier := c.Family.Name, []byte(c.Qualifier)
	switch m.Kind {
	case pipeline.Add:
		n, err := integer(c.Value)
		if err != nil {
			return nil, err
		}
		return []step{{&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
			FamilyName: family, ColumnQualifier: rawValue(qualifier), Timestamp: rawTime(w.micros),
			Input: &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: n}},
		}}}, w.open}}, nil
	case pipeline.Merge:
		b, err := accumulator(c.Value)
		if err != nil {
			return nil, err
		}
		return []step{{&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{
			FamilyName: family, ColumnQualifier: rawValue(qualifier), Timestamp: rawTime(w.micros),
			Input: &bigtablepb.Value{Kind: &bigtablepb.Value_BytesValue{BytesValue: b}},
		}}}, w.open}}, nil
	}
	value, err := encode(c.Encoding, c.Value, w.row.Table.NullString)
	if err != nil {
		return nil, err
	}
	var steps []step
	switch {
	case m.Replace == pipeline.ReplaceAll:
		steps = append(steps, step{m: deletion(family, qualifier, nil)})
	case m.Replace == pipeline.ReplaceOlder && w.open:
		steps = append(steps, step{deletion(family, qualifier, span(0, anyMicros+1000)), true})
	case m.Replace == pipeline.ReplaceOlder && w.micros > 0: // there is nothing older than 1970
		steps = append(steps, step{m: deletion(family, qualifier, span(0, w.micros))})
	}
	return append(steps, w.set(family, qualifier, value)), nil
}

func (w *wantedRow) set(family string, qualifier, value []byte) step {
	return step{&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: qualifier, TimestampMicros: w.micros, Value: value,
	}}}, w.open}
}

// deleted makes the steps of one column of deleteColumns.
func (w *wantedRow) deleted(m *pipeline.ExpectMutation, c *pipeline.ColumnRef) ([]step, error) {
	family, qualifier := c.Family.Name, []byte(c.Qualifier)
	var steps []step
	switch {
	case m.AllVersions:
		steps = append(steps, step{m: deletion(family, qualifier, nil)})
	case m.From.IsZero() && m.To.IsZero():
		steps = append(steps, step{deletion(family, qualifier, span(0, w.micros+1000)), w.open})
	default:
		var start, end int64
		if !m.From.IsZero() {
			start = m.From.UnixMicro()
		}
		if !m.To.IsZero() {
			end = m.To.UnixMicro()
		}
		steps = append(steps, step{m: deletion(family, qualifier, span(start, end))})
	}
	if !m.Tombstone {
		return steps, nil
	}
	null, err := encodingOf(c).Append(nil, nil, w.row.Table.NullString)
	return append(steps, w.set(family, qualifier, null)), err
}

func encodingOf(c *pipeline.ColumnRef) cell.Encoding { return c.Family.Encoding(c.Qualifier) }

// deletion removes the versions of a column within r; nil: all of them.
func deletion(family string, qualifier []byte, r *bigtablepb.TimestampRange) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: family, ColumnQualifier: qualifier, TimeRange: r,
	}}}
}

func span(start, end int64) *bigtablepb.TimestampRange {
	if start == 0 && end == 0 {
		return nil
	}
	return &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end}
}

func rawValue(b []byte) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: b}}
}

func rawTime(micros int64) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: micros}}
}
