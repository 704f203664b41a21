package store

import (
	"fmt"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
)

// Limits bound what a mutation may carry. Zero fields do not exist: the
// emulator fills in its defaults.
type Limits struct {
	RowKeyBytes         int
	QualifierBytes      int
	CellBytes           int
	RowBytes            int64
	EntryMutations      int
	RequestMutations    int
	ReadRequestBytes    int
	FilterBytes         int
	FamiliesPerTable    int
	TableIDBytes        int
	IdempotencyTokenMin int
}

// Refusal says why the service does not take a mutation.
type Refusal struct {
	Code  codes.Code
	Index int // of the mutation in its list
	Text  string
}

// MissingFamily is the service's text for a family that the table lacks
// (GoogleCloudPlatform/cloud-bigtable-examples#290).
const MissingFamily = "Requested column family not found."

func invalid(i int, format string, args ...any) *Refusal {
	return &Refusal{Code: codes.InvalidArgument, Index: i, Text: fmt.Sprintf(format, args...)}
}

// Validate checks a list of mutations against schema and limits. What is
// wrong with the request itself is INVALID_ARGUMENT and found before
// families that the table lacks, which are NOT_FOUND.
func Validate(s *Schema, l *Limits, muts []*bigtablepb.Mutation) *Refusal {
	v := validator{schema: s, limits: l}
	for i, m := range muts {
		if r := v.mutation(i, m); r != nil {
			return r
		}
	}
	return v.missing
}

type validator struct {
	schema  *Schema
	limits  *Limits
	missing *Refusal
}

func (v *validator) mutation(i int, m *bigtablepb.Mutation) *Refusal {
	switch k := m.GetMutation().(type) {
	case *bigtablepb.Mutation_SetCell_:
		return v.setCell(i, m.TimestampOrigin, k.SetCell)
	case *bigtablepb.Mutation_AddToCell_:
		a := k.AddToCell
		f := v.family(i, a.GetFamilyName())
		if r := v.aggregateCell(i, f, a.GetColumnQualifier(), a.GetTimestamp(), m.TimestampOrigin); r != nil || f == nil {
			return r
		}
		if _, err := f.Aggregate.add(a.GetInput()); err != nil {
			return invalid(i, "Error in field 'input' : %v", err)
		}
	case *bigtablepb.Mutation_MergeToCell_:
		a := k.MergeToCell
		f := v.family(i, a.GetFamilyName())
		if r := v.aggregateCell(i, f, a.GetColumnQualifier(), a.GetTimestamp(), m.TimestampOrigin); r != nil || f == nil {
			return r
		}
		if _, err := f.Aggregate.state(a.GetInput()); err != nil {
			return invalid(i, "Error in field 'input' : %v", err)
		}
	case *bigtablepb.Mutation_DeleteFromColumn_:
		return v.deleteFromColumn(i, k.DeleteFromColumn)
	case *bigtablepb.Mutation_DeleteFromFamily_:
		v.family(i, k.DeleteFromFamily.GetFamilyName())
	case *bigtablepb.Mutation_DeleteFromRow_:
	default:
		return invalid(i, "No mutation was specified")
	}
	return nil
}

// family is the named family, nil after noting that the table lacks it.
func (v *validator) family(i int, name string) *Family {
	f := v.schema.Families[name]
	if f == nil && v.missing == nil {
		v.missing = &Refusal{Code: codes.NotFound, Index: i, Text: MissingFamily}
	}
	return f
}

func (v *validator) setCell(i int, origin bigtablepb.Mutation_TimestampOrigin, c *bigtablepb.Mutation_SetCell) *Refusal {
	if f := v.family(i, c.GetFamilyName()); f != nil && f.Aggregate != nil {
		return invalid(i, "SetCell cannot write to the aggregate family '%s'; use AddToCell or MergeToCell", f.Name)
	}
	if r := v.qualifier(i, len(c.GetColumnQualifier())); r != nil {
		return r
	}
	if n := len(c.GetValue()); n > v.limits.CellBytes {
		return invalid(i, "Cell value size %d exceeds the limit of %d bytes", n, v.limits.CellBytes)
	}
	if c.GetTimestampMicros() == -1 {
		return nil
	}
	return v.timestamp(i, c.GetTimestampMicros(), origin)
}

func (v *validator) qualifier(i, n int) *Refusal {
	if n > v.limits.QualifierBytes {
		return invalid(i, "Column qualifier size %d exceeds the limit of %d bytes", n, v.limits.QualifierBytes)
	}
	return nil
}

func (v *validator) timestamp(i int, ts int64, origin bigtablepb.Mutation_TimestampOrigin) *Refusal {
	if ts < -1 {
		return invalid(i, "Timestamps must be >= -1")
	}
	if origin == bigtablepb.Mutation_CLIENT_AUTO_GENERATED && ts >= 0 {
		return nil // truncated by apply, as data.proto says of timestamp_origin
	}
	return v.granularity(i, ts)
}

func (v *validator) granularity(i int, ts int64) *Refusal {
	if v.schema.Unit > 1 && ts%v.schema.Unit != 0 {
		return invalid(i, "Timestamp granularity mismatch. Expected a multiple of %d (millisecond granularity), but got %d", v.schema.Unit, ts)
	}
	return nil
}

func (v *validator) aggregateCell(i int, f *Family, qualifier, timestamp *bigtablepb.Value, origin bigtablepb.Mutation_TimestampOrigin) *Refusal {
	if f != nil && f.Aggregate == nil {
		return invalid(i, "The family '%s' is not an aggregate family", f.Name)
	}
	q, ok := qualifier.GetKind().(*bigtablepb.Value_RawValue)
	if !ok {
		return invalid(i, "Error in field 'column_qualifier' : must be a raw_value")
	}
	if r := v.qualifier(i, len(q.RawValue)); r != nil {
		return r
	}
	ts, ok := timestamp.GetKind().(*bigtablepb.Value_RawTimestampMicros)
	if !ok {
		return invalid(i, "Error in field 'timestamp' : must be a raw_timestamp_micros")
	}
	if ts.RawTimestampMicros < 0 {
		return invalid(i, "Error in field 'timestamp' : must be >= 0")
	}
	return v.timestamp(i, ts.RawTimestampMicros, origin)
}

func (v *validator) deleteFromColumn(i int, d *bigtablepb.Mutation_DeleteFromColumn) *Refusal {
	v.family(i, d.GetFamilyName())
	if r := v.qualifier(i, len(d.GetColumnQualifier())); r != nil {
		return r
	}
	start, end := d.GetTimeRange().GetStartTimestampMicros(), d.GetTimeRange().GetEndTimestampMicros()
	if start < 0 || end < 0 {
		return invalid(i, "Error in field 'time_range' : timestamps must be >= 0")
	}
	if end != 0 && start >= end {
		return invalid(i, "Error in field 'time_range' : start_timestamp_micros must be less than end_timestamp_micros")
	}
	if r := v.granularity(i, start); r != nil {
		return r
	}
	return v.granularity(i, end)
}
