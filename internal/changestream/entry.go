package changestream

import "cloud.google.com/go/bigtable/apiv2/bigtablepb"

// entryReader reads mutations.
type entryReader struct {
	qualifier string // the last one: neighbours often share it
}

// read reads one whole mutation. A kind that is not known here is an error: leaving it
// out would lose a change.
func (r *entryReader) read(m *bigtablepb.Mutation) (Entry, error) {
	switch m := m.GetMutation().(type) {
	case *bigtablepb.Mutation_SetCell_:
		return r.setCell(m.SetCell)
	case *bigtablepb.Mutation_DeleteFromFamily_:
		return withFamily(Entry{Kind: DeleteFamily, Family: m.DeleteFromFamily.GetFamilyName()})
	case *bigtablepb.Mutation_DeleteFromColumn_:
		return deleteCells(m.DeleteFromColumn)
	case *bigtablepb.Mutation_AddToCell_:
		c := m.AddToCell
		return aggregate(AddToCell, c.GetFamilyName(), c.GetColumnQualifier(), c.GetTimestamp(), c.GetInput())
	case *bigtablepb.Mutation_MergeToCell_:
		c := m.MergeToCell
		return aggregate(MergeToCell, c.GetFamilyName(), c.GetColumnQualifier(), c.GetTimestamp(), c.GetInput())
	case *bigtablepb.Mutation_DeleteFromRow_:
		return Entry{}, protocolError("a deleted row, which comes as deleted families")
	}
	return Entry{}, protocolError("a mutation of no known kind")
}

func withFamily(e Entry) (Entry, error) {
	if e.Family == "" {
		return Entry{}, protocolError("a mutation without a family")
	}
	return e, nil
}

func (r *entryReader) setCell(c *bigtablepb.Mutation_SetCell) (Entry, error) {
	if q := c.GetColumnQualifier(); string(q) != r.qualifier {
		r.qualifier = string(q)
	}
	return withFamily(Entry{
		Kind: SetCell, Family: c.GetFamilyName(), Qualifier: r.qualifier, Timestamp: c.GetTimestampMicros(), Value: c.GetValue(),
	})
}

// deleteCells reads a deleted column. Both bounds are optional on the wire, and a missing
// one is 0: of the end that means no end.
func deleteCells(c *bigtablepb.Mutation_DeleteFromColumn) (Entry, error) {
	e := Entry{
		Kind: DeleteCells, Family: c.GetFamilyName(), Qualifier: string(c.GetColumnQualifier()),
		Start: c.GetTimeRange().GetStartTimestampMicros(), End: c.GetTimeRange().GetEndTimestampMicros(),
	}
	if e.Start < 0 || e.End < 0 || e.End != 0 && e.End < e.Start {
		return Entry{}, protocolError("a range of deleted cell times from %d to %d", e.Start, e.End)
	}
	return withFamily(e)
}

// aggregate reads what is added to or merged into an aggregate cell. The qualifier, the
// time and the input are values of which several forms exist; each known form has one
// meaning.
func aggregate(kind Kind, family string, qualifier, at, input *bigtablepb.Value) (Entry, error) {
	e := Entry{Kind: kind, Family: family}
	q, ok := bytesOf(qualifier)
	if !ok {
		return Entry{}, protocolError("the qualifier of %s is no bytes", kind)
	}
	e.Qualifier = string(q)
	switch v := at.GetKind().(type) {
	case *bigtablepb.Value_RawTimestampMicros:
		e.Timestamp = v.RawTimestampMicros
	case *bigtablepb.Value_TimestampValue:
		if !v.TimestampValue.IsValid() {
			return Entry{}, protocolError("the time of %s is no time", kind)
		}
		e.Timestamp = v.TimestampValue.AsTime().UnixMicro()
	default:
		return Entry{}, protocolError("the time of %s is of no known form", kind)
	}
	if n, ok := input.GetKind().(*bigtablepb.Value_IntValue); ok {
		e.Number, e.IsNumber = n.IntValue, true
		return withFamily(e)
	}
	if e.Value, ok = bytesOf(input); !ok {
		return Entry{}, protocolError("the input of %s is of no known form", kind)
	}
	return withFamily(e)
}

func bytesOf(v *bigtablepb.Value) ([]byte, bool) {
	switch v := v.GetKind().(type) {
	case *bigtablepb.Value_RawValue:
		return v.RawValue, true
	case *bigtablepb.Value_BytesValue:
		return v.BytesValue, true
	}
	return nil, false
}
