package writer

import (
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Declared returns the schema's families as the administration API wants them.
func (s Schema) Declared() map[string]*adminpb.ColumnFamily {
	out := map[string]*adminpb.ColumnFamily{}
	for _, f := range s.Families {
		out[f.Name] = &adminpb.ColumnFamily{GcRule: gcRule(f.GC), ValueType: aggregateType(f.Aggregate)}
	}
	return out
}

// gcRule converts a rule; nil collects nothing.
func gcRule(r *pipeline.GCRule) *adminpb.GcRule {
	switch {
	case r == nil:
		return nil
	case r.MaxVersions > 0:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: int32(r.MaxVersions)}}
	case r.MaxAge > 0:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: durationpb.New(r.MaxAge)}}
	case len(r.Union) > 0:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Union_{Union: &adminpb.GcRule_Union{Rules: gcRules(r.Union)}}}
	default:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Intersection_{Intersection: &adminpb.GcRule_Intersection{Rules: gcRules(r.Intersection)}}}
	}
}

func gcRules(rules []*pipeline.GCRule) []*adminpb.GcRule {
	out := make([]*adminpb.GcRule, len(rules))
	for i, r := range rules {
		out[i] = gcRule(r)
	}
	return out
}

// aggregateType returns the type of an aggregate family of 8-byte big-endian integers;
// nil for an ordinary family.
func aggregateType(a pipeline.Aggregate) *adminpb.Type {
	t := &adminpb.Type_Aggregate{InputType: &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{
		Encoding: &adminpb.Type_Int64_Encoding{Encoding: &adminpb.Type_Int64_Encoding_BigEndianBytes_{
			BigEndianBytes: &adminpb.Type_Int64_Encoding_BigEndianBytes{},
		}},
	}}}}
	switch a {
	case pipeline.AggregateSum:
		t.Aggregator = &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}
	case pipeline.AggregateMin:
		t.Aggregator = &adminpb.Type_Aggregate_Min_{Min: &adminpb.Type_Aggregate_Min{}}
	case pipeline.AggregateMax:
		t.Aggregator = &adminpb.Type_Aggregate_Max_{Max: &adminpb.Type_Aggregate_Max{}}
	case pipeline.AggregateHLL:
		t.Aggregator = &adminpb.Type_Aggregate_HllppUniqueCount{HllppUniqueCount: &adminpb.Type_Aggregate_HyperLogLogPlusPlusUniqueCount{}}
	default:
		return nil
	}
	return &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: t}}
}

// absentFamily returns the first family that the row names and the table lacks.
func absentFamily(row *bigtablepb.MutateRowsRequest_Entry, has map[string]*adminpb.ColumnFamily) (string, bool) {
	for _, m := range row.GetMutations() {
		name, ok := familyOf(m)
		if !ok {
			continue
		}
		if _, there := has[name]; !there {
			return name, true
		}
	}
	return "", false
}

func familyOf(m *bigtablepb.Mutation) (string, bool) {
	switch m := m.GetMutation().(type) {
	case *bigtablepb.Mutation_SetCell_:
		return m.SetCell.GetFamilyName(), true
	case *bigtablepb.Mutation_AddToCell_:
		return m.AddToCell.GetFamilyName(), true
	case *bigtablepb.Mutation_MergeToCell_:
		return m.MergeToCell.GetFamilyName(), true
	case *bigtablepb.Mutation_DeleteFromColumn_:
		return m.DeleteFromColumn.GetFamilyName(), true
	case *bigtablepb.Mutation_DeleteFromFamily_:
		return m.DeleteFromFamily.GetFamilyName(), true
	}
	return "", false
}
