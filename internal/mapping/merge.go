package mapping

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// tokenBytes is the length of an idempotency token; the service asks for at least 8.
const tokenBytes = 16

// token identifies a contribution, the same in every delivery: SHA-256 of the
// length-prefixed names of the pipeline and the table, the row key, the mapping's name and
// the dedupeId, cut to 16 bytes. The default dedupeId is the message's id and the record's
// place in it. nil without dedupe.
func (s *Session) token(i int, m *mapping, table pipeline.TableRef, key []byte) ([]byte, error) {
	if m.src.Dedupe != pipeline.DedupeWindow && m.src.Dedupe != pipeline.DedupeMarker {
		return nil, nil
	}
	id, err := s.dedupeID(i, m)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(s.w.name), []byte(table.String()), key, []byte(m.src.Name), []byte(id)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)[:tokenBytes], nil
}

// dedupeID tells the contributions of one mapping to one row apart. The place of a record
// is the same in every delivery, whatever becomes of its neighbours.
func (s *Session) dedupeID(i int, m *mapping) (string, error) {
	if m.dedupeID == nil {
		return s.vars.Message.ID + "/" + strconv.Itoa(i), nil
	}
	v, err := m.dedupeID.Eval(&s.vars)
	if err != nil {
		return "", err
	}
	id, err := identifier(v)
	if err != nil {
		return "", at(m.dedupeID, err)
	}
	return id, nil
}

// gather puts together the mutations that the items of one record bring to one row: they
// are one contribution, or one part of a row, which is never split. A single item is the
// common case.
func (s *Session) gather() {
	if len(s.made) < 2 {
		return
	}
	type place struct {
		row   rowID
		token string
	}
	first := make(map[place]int, len(s.made))
	kept := s.made[:0]
	for _, r := range s.made {
		at := place{rowID{r.table, string(r.key)}, string(r.token)}
		if k, known := first[at]; known {
			kept[k].mutations = append(kept[k].mutations, r.mutations...)
			kept[k].bytes += r.bytes
			continue
		}
		first[at] = len(kept)
		kept = append(kept, r)
	}
	s.made = kept
}

// merge adds a row to the result: into one that it makes one entry with where the
// service takes both, as a row of its own otherwise.
func (s *Session) merge(i int, m *mapping, r *made) {
	id := rowID{r.table, string(r.key)}
	if len(r.token) == 0 {
		into := s.open[id]
		if into != nil && into.Entry.Idempotency == nil && into.Unless == nil && s.fits(into, r) {
			into.take(i, m, r)
			return
		}
		s.place(id, newRow(i, m, r))
		return
	}
	row := newRow(i, m, r)
	row.Shared = m.dedupeID != nil
	if m.src.Dedupe == pipeline.DedupeWindow {
		row.Entry.Idempotency = &bigtablepb.Idempotency{Token: r.token}
		s.result.Last = append(s.result.Last, row)
		return
	}
	row.mark(m.src.MarkerFamily.Name, r.token, s.now)
	s.place(id, row)
}

func newRow(i int, m *mapping, r *made) *Row {
	return &Row{
		Table: r.table, Schema: m.src.Table,
		Entry: &bigtablepb.MutateRowsRequest_Entry{RowKey: r.key, Mutations: r.mutations},
		Parts: []Part{{i, m.src, len(r.mutations)}},
		bytes: r.bytes,
	}
}

// place adds a row, into which the next records of its key may be merged.
func (s *Session) place(id rowID, row *Row) {
	row.Follows = s.open[id] != nil
	s.open[id] = row
	s.result.Rows = append(s.result.Rows, row)
}

// take adds what one more record contributes.
func (r *Row) take(i int, m *mapping, more *made) {
	r.Entry.Mutations = append(r.Entry.Mutations, more.mutations...)
	r.Parts = append(r.Parts, Part{i, m.src, len(r.Entry.Mutations)})
	r.bytes += more.bytes
}

// mark makes the row conditional on its marker, and adds the marker to it.
func (r *Row) mark(family string, token []byte, now time.Time) {
	marker, size := setCell(family, token, now.UnixMilli()*1000, nil)
	r.Entry.Mutations = append(r.Entry.Mutations, marker)
	r.bytes += size
	r.Unless = markerFilter(family, token)
}

// fits errs on the side of two entries: sizes are upper bounds.
func (s *Session) fits(into *Row, r *made) bool {
	return len(into.Entry.Mutations)+len(r.mutations) <= s.w.limits.Mutations && into.bytes+r.bytes <= s.w.limits.EntryBytes
}

// markerFilter matches the marker cell, whatever its time or value.
func markerFilter(family string, token []byte) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{
		FamilyName:     family,
		StartQualifier: &bigtablepb.ColumnRange_StartQualifierClosed{StartQualifierClosed: token},
		EndQualifier:   &bigtablepb.ColumnRange_EndQualifierClosed{EndQualifierClosed: token},
	}}}
}
