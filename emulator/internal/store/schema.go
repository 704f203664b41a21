package store

import (
	"maps"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/protobuf/proto"
)

// Family is a column family as the table's schema declares it.
type Family struct {
	Name      string
	GC        *adminpb.GcRule
	ValueType *adminpb.Type // nil: raw bytes
	Aggregate *Aggregate    // nil: an ordinary family
}

// Schema is an immutable table schema.
type Schema struct {
	Families map[string]*Family
	Unit     int64 // microseconds that every timestamp is a multiple of: 1000, or 1 for a MICROS table
}

// With is a copy of the schema with one family added or replaced.
func (s *Schema) With(f *Family) *Schema {
	families := maps.Clone(s.Families)
	if families == nil {
		families = map[string]*Family{}
	}
	families[f.Name] = f
	return &Schema{Families: families, Unit: s.Unit}
}

// Without is a copy of the schema that lacks one family.
func (s *Schema) Without(name string) *Schema {
	families := maps.Clone(s.Families)
	delete(families, name)
	return &Schema{Families: families, Unit: s.Unit}
}

// NewFamily reads a family from its admin form. Errors are the texts of an
// INVALID_ARGUMENT.
func NewFamily(name string, p *adminpb.ColumnFamily) (*Family, error) {
	f := &Family{Name: name, GC: p.GetGcRule()}
	if err := validateGC(f.GC); err != nil {
		return nil, err
	}
	if p.GetValueType() == nil {
		return f, nil
	}
	f.ValueType = proto.Clone(p.ValueType).(*adminpb.Type)
	if f.ValueType.GetAggregateType() == nil {
		return f, checkValueType(f.ValueType)
	}
	agg, err := newAggregate(f.ValueType)
	if err != nil {
		return nil, err
	}
	f.Aggregate = agg
	return f, nil
}

// Proto is the family's admin form, with the output-only state type filled in.
func (f *Family) Proto() *adminpb.ColumnFamily {
	return &adminpb.ColumnFamily{GcRule: f.GC, ValueType: f.ValueType}
}
