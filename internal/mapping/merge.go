package mapping

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// tokenBytes is the length of an idempotency token; the service asks for at least 8.
const tokenBytes = 16

// token identifies an application of the mapping to a row, the same in every
// delivery: SHA-256 of the length-prefixed pipeline name, table, row key and
// dedupeId, cut to 16 bytes. nil without dedupe.
func (s *Session) token(m *mapping, table pipeline.TableRef, key []byte) ([]byte, error) {
	if m.src.Dedupe != pipeline.DedupeWindow && m.src.Dedupe != pipeline.DedupeMarker {
		return nil, nil
	}
	id := s.vars.Message.ID
	if m.dedupeID != nil {
		v, err := m.dedupeID.Eval(&s.vars)
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
	for _, part := range [][]byte{[]byte(s.w.name), []byte(table.String()), key, []byte(id)} {
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

// extraToken is the token of the n-th row that one identity needs because the service
// does not take all its records as one.
func extraToken(token []byte, n int) []byte {
	h := sha256.New()
	h.Write([]byte("extra"))
	h.Write(token)
	var count [8]byte
	binary.BigEndian.PutUint64(count[:], uint64(n))
	h.Write(count[:])
	return h.Sum(nil)[:tokenBytes]
}

// identity is one event's contribution to one row, told by its token, over the whole
// message: the service would take its second entry for a repeat of the first.
type identity struct {
	row   *Row // to merge into; nil when that one is given away
	made  bool // a row was made
	extra int  // rows made after it, under tokens of their own
}

// merge adds a row to the result: into one that it makes one entry with where the
// service takes both, as a row of its own otherwise.
func (s *Session) merge(i int, m *mapping, r *made) {
	if len(r.token) > 0 {
		s.mergeIdentity(i, m, r)
		return
	}
	id := rowID{r.table, string(r.key)}
	into := s.open[id]
	if into != nil && into.Entry.Idempotency == nil && into.Unless == nil && s.fits(into, r) {
		into.take(i, m, r)
		return
	}
	s.place(id, newRow(i, m, r))
}

// mergeIdentity adds a row under dedupe: all that one message brings under one identity
// is one contribution.
func (s *Session) mergeIdentity(i int, m *mapping, r *made) {
	known := s.identities[string(r.token)]
	if known == nil {
		known = &identity{}
		s.identities[string(r.token)] = known
	}
	id := rowID{r.table, string(r.key)}
	inOrder := m.src.Dedupe == pipeline.DedupeWindow || s.open[id] == known.row
	if known.row != nil && inOrder && s.fits(known.row, r) {
		known.row.take(i, m, r)
		return
	}
	if known.made {
		known.extra++
		r.token = extraToken(r.token, known.extra)
	}
	row := newRow(i, m, r)
	known.row, known.made = row, true
	if m.src.Dedupe == pipeline.DedupeWindow {
		row.Entry.Idempotency = &bigtablepb.Idempotency{Token: r.token}
		s.last = append(s.last, row)
		return
	}
	row.mark(m.src.MarkerFamily.Name, r.token, s.now)
	s.marked = append(s.marked, known)
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

// place adds a row after those of its key.
func (s *Session) place(id rowID, row *Row) {
	if before := s.open[id]; before != nil {
		row.Turn = before.Turn + 1
	}
	s.open[id] = row
	s.result.Rows = append(s.result.Rows, row)
}

// take adds what one more record contributes, before the marker where there is one.
func (r *Row) take(i int, m *mapping, more *made) {
	end := len(r.Entry.Mutations)
	if r.marker != "" {
		end--
	}
	r.Entry.Mutations = slices.Insert(r.Entry.Mutations, end, more.mutations...)
	r.Parts = append(r.Parts, Part{i, m.src, end + len(more.mutations)})
	r.bytes += more.bytes
}

// mark makes the row conditional on its marker, and adds the marker to it.
func (r *Row) mark(family string, token []byte, now time.Time) {
	marker, size := setCell(family, token, now.UnixMilli()*1000, nil)
	r.Entry.Mutations = append(r.Entry.Mutations, marker)
	r.bytes += size
	r.marker = family
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
