package mapping

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// tokenBytes is the length of an idempotency token; the service asks for at least 8.
const tokenBytes = 16

// token identifies an application of the mapping to a row, the same in every
// delivery: SHA-256 of the length-prefixed pipeline name, table, row key and
// dedupeId, cut to 16 bytes. nil without dedupe.
func (b *builder) token(m *mapping, table pipeline.TableRef, key []byte) ([]byte, error) {
	if m.src.Dedupe != pipeline.DedupeWindow && m.src.Dedupe != pipeline.DedupeMarker {
		return nil, nil
	}
	id := b.vars.Message.ID
	if m.dedupeID != nil {
		v, err := m.dedupeID.Eval(&b.vars)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case string:
			id = v
		case int64:
			id = strconv.FormatInt(v, 10)
		case uint64:
			id = strconv.FormatUint(v, 10)
		default:
			return nil, at(m.dedupeID, errors.New("a dedupeId is text or an integer: convert with string(…)"))
		}
		if id == "" {
			return nil, at(m.dedupeID, errors.New("an empty dedupeId: two different records would count as one"))
		}
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(b.w.name), []byte(table.String()), key, []byte(id)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)[:tokenBytes], nil
}

// partToken is the token of the i-th part of a row that is taken apart, the same in every
// delivery.
func partToken(token []byte, p Part, i int) []byte {
	h := sha256.New()
	h.Write(token)
	var n [16]byte
	binary.BigEndian.PutUint64(n[:8], uint64(p.Record))
	binary.BigEndian.PutUint64(n[8:], uint64(i))
	h.Write(n[:])
	return h.Sum(nil)[:tokenBytes]
}

// merge adds a row to the result: into the newest row of its key where the service
// takes both as one entry, as a row of its own otherwise.
func (b *builder) merge(i int, m *mapping, r *made) {
	window := m.src.Dedupe == pipeline.DedupeWindow
	id := rowID{r.table, string(r.key), window}
	if into := b.open[id]; into != nil && b.mergeable(into, m, r) {
		into.Entry.Mutations = append(into.Entry.Mutations, r.mutations...)
		into.Parts = append(into.Parts, Part{i, m.src, len(into.Entry.Mutations)})
		into.bytes += r.bytes
		return
	}
	row := &Row{
		Table: r.table, Schema: m.src.Table,
		Entry: &bigtablepb.MutateRowsRequest_Entry{RowKey: r.key, Mutations: r.mutations},
		Parts: []Part{{i, m.src, len(r.mutations)}},
		bytes: r.bytes,
	}
	switch m.src.Dedupe {
	case pipeline.DedupeWindow:
		row.Entry.Idempotency = &bigtablepb.Idempotency{Token: r.token}
		b.result.Last = append(b.result.Last, row)
	case pipeline.DedupeMarker:
		row.Unless = markerFilter(m.src.MarkerFamily.Name, r.token)
		b.result.Rows = append(b.result.Rows, row)
	default:
		b.result.Rows = append(b.result.Rows, row)
	}
	if b.open == nil {
		b.open = map[rowID]*Row{}
	}
	b.open[id] = row
}

// mergeable errs on the side of two entries: sizes are upper bounds.
func (b *builder) mergeable(into *Row, m *mapping, r *made) bool {
	return into.Unless == nil && m.src.Dedupe != pipeline.DedupeMarker &&
		bytes.Equal(into.Entry.GetIdempotency().GetToken(), r.token) &&
		len(into.Entry.Mutations)+len(r.mutations) <= b.w.limits.Mutations &&
		into.bytes+r.bytes <= b.w.limits.EntryBytes
}

// markerFilter matches the marker cell, whatever its time or value.
func markerFilter(family string, token []byte) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{
		FamilyName:     family,
		StartQualifier: &bigtablepb.ColumnRange_StartQualifierClosed{StartQualifierClosed: token},
		EndQualifier:   &bigtablepb.ColumnRange_EndQualifierClosed{EndQualifierClosed: token},
	}}}
}
