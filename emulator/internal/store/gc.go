package store

import (
	"errors"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
)

// maxGCRule is the largest serialized GC rule, in bytes (table.proto,
// ColumnFamily.gc_rule).
const maxGCRule = 500

func validateGC(r *adminpb.GcRule) error {
	if proto.Size(r) > maxGCRule {
		return errors.New("a gc_rule must serialize to at most 500 bytes")
	}
	return validateGCRule(r)
}

func validateGCRule(r *adminpb.GcRule) error {
	switch k := r.GetRule().(type) {
	case *adminpb.GcRule_MaxNumVersions:
		if k.MaxNumVersions < 1 {
			return errors.New("max_num_versions must be positive")
		}
	case *adminpb.GcRule_MaxAge:
		if k.MaxAge.AsDuration().Milliseconds() < 1 {
			return errors.New("max_age must be at least one millisecond")
		}
	case *adminpb.GcRule_Union_:
		return validateGCRules(k.Union.GetRules())
	case *adminpb.GcRule_Intersection_:
		return validateGCRules(k.Intersection.GetRules())
	}
	return nil
}

func validateGCRules(rules []*adminpb.GcRule) error {
	for _, r := range rules {
		if err := validateGCRule(r); err != nil {
			return err
		}
	}
	return nil
}

// Collect finds what the families' GC rules delete from a row at a time given
// in microseconds, as one DeleteFromColumn per column that loses cells; none
// if nothing expires. The rules look at a cell's age and its rank among the
// versions of its column, so they always take the oldest versions.
func Collect(s *Schema, r *Row, now int64) []*bigtablepb.Mutation {
	var muts []*bigtablepb.Mutation
	for lo := 0; lo < len(r.Cells); {
		hi := lo + 1
		for hi < len(r.Cells) && CompareColumns(&r.Cells[lo], &r.Cells[hi]) == 0 {
			hi++
		}
		column := r.Cells[lo:hi]
		if f := s.Families[column[0].Family]; f != nil && f.GC != nil {
			if keep := survivors(f.GC, column, now); keep < len(column) {
				muts = append(muts, deleteOlder(&column[keep], s.Unit))
			}
		}
		lo = hi
	}
	return muts
}

func deleteOlder(newest *Cell, unit int64) *bigtablepb.Mutation {
	end := newest.Timestamp + unit
	if end < 0 { // past the last timestamp there is: no upper bound
		end = 0
	}
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{
		DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
			FamilyName:      newest.Family,
			ColumnQualifier: []byte(newest.Qualifier),
			TimeRange:       &bigtablepb.TimestampRange{EndTimestampMicros: end},
		},
	}}
}

// survivors is how many of a column's cells, newest first, a rule keeps.
func survivors(r *adminpb.GcRule, column []Cell, now int64) int {
	switch k := r.GetRule().(type) {
	case *adminpb.GcRule_MaxNumVersions:
		return min(len(column), int(k.MaxNumVersions))
	case *adminpb.GcRule_MaxAge:
		cutoff := now - k.MaxAge.AsDuration().Microseconds()
		for i := range column {
			if column[i].Timestamp < cutoff {
				return i
			}
		}
	case *adminpb.GcRule_Union_:
		keep := len(column)
		for _, sub := range k.Union.GetRules() {
			keep = min(keep, survivors(sub, column, now))
		}
		return keep
	case *adminpb.GcRule_Intersection_:
		if len(k.Intersection.GetRules()) == 0 {
			break
		}
		keep := 0
		for _, sub := range k.Intersection.Rules {
			keep = max(keep, survivors(sub, column, now))
		}
		return keep
	}
	return len(column)
}
