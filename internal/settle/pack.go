package settle

import (
	"bytes"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// maxFilterBytes is the largest filter that the service takes, 20,480 bytes
// (docs/protocol.md, limits), less the bytes around the parts of a pack's condition.
const maxFilterBytes = 20_000

// packable reports whether a row may share a conditional entry with others: it is applied
// unless its marker is there, and it writes that marker last. Two markers must be of one
// family, so that a read that finds them names them by their qualifiers alone.
func packable(r *mapping.Row) bool {
	token := r.Token()
	if r.Unless == nil || token == nil {
		return false
	}
	last := r.Entry.Mutations[len(r.Entry.Mutations)-1].GetSetCell()
	return last.GetFamilyName() == r.Unless.GetColumnRangeFilter().GetFamilyName() && bytes.Equal(last.GetColumnQualifier(), token)
}

// pack measures rows that are to go together.
type pack struct {
	family string // of the markers
	rows   int
	filter int
	bytes  int
	muts   int
}

// takes reports whether the pack has room for one more row, and counts it.
func (p *pack) takes(r *mapping.Row, maxBytes int) bool {
	if !packable(r) {
		return false
	}
	const perFilter = 8 // tag and length within the interleave
	family := r.Unless.GetColumnRangeFilter().GetFamilyName()
	filter, size, muts := p.filter+proto.Size(r.Unless)+perFilter, p.bytes+proto.Size(r.Entry), p.muts+len(r.Entry.Mutations)
	if p.rows > 0 && (family != p.family || filter > maxFilterBytes || size > maxBytes || muts > writer.MaxMutations) {
		return false
	}
	p.family, p.rows, p.filter, p.bytes, p.muts = family, p.rows+1, filter, size, muts
	return true
}

// packed makes one entry of several contributions to one row: it is applied unless one of
// their markers is there, and then tells which are.
func packed(rows []*mapping.Row) writer.Entry {
	filters := make([]*bigtablepb.RowFilter, len(rows))
	muts := 0
	for i, r := range rows {
		filters[i], muts = r.Unless, muts+len(r.Entry.Mutations)
	}
	entry := &bigtablepb.MutateRowsRequest_Entry{RowKey: rows[0].Entry.RowKey, Mutations: make([]*bigtablepb.Mutation, 0, muts)}
	for _, r := range rows {
		entry.Mutations = append(entry.Mutations, r.Entry.Mutations...)
	}
	return writer.Entry{Table: rows[0].Table, Row: entry, Tell: true, Unless: &bigtablepb.RowFilter{
		Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{Filters: filters}},
	}}
}
