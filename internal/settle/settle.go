// Package settle applies the rows that a message was mapped to, and guarantees that each is
// settled once: applied, rejected by the service alone, or needless because its contribution
// was applied before. The rows of one key go in their order, as many in a request as may go
// together; rows that are rejected together are taken apart until the guilty row or record
// stands alone.
package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// Writer applies entries to Bigtable. The result has an error for each entry: nil
// if it is applied, a *retry.Rejected if it can never be, and any other if it is
// not known to be. Entries of one row are applied in order.
type Writer interface {
	Apply(ctx context.Context, entries []writer.Entry) []error
}

// Rejected is a row with the service's verdict on it.
type Rejected struct {
	Row    *mapping.Row
	Reason *retry.Rejected
}

// Settler settles the rows of one message. It is for one goroutine.
type Settler struct {
	Writer   Writer
	MaxBytes int // of rows that go together; a larger row goes alone
	// Counted holds the tokens of the applied contributions that another record of the
	// message may bring again.
	Counted map[string]struct{}

	Applied  int // rows that are applied, or needless
	Rejected []Rejected
}

// lane holds the rows that are left to apply to one row key, in order. Rows of different
// segments do not go together.
type lane struct {
	segments [][]*mapping.Row
}

// Apply settles rows. An error means that something is not known to be applied; it is the
// Writer's, wrapped.
func (s *Settler) Apply(ctx context.Context, rows []*mapping.Row) error {
	lanes := lanesOf(rows)
	heads := make([]head, 0, len(lanes))
	for {
		heads = heads[:0]
		left := lanes[:0]
		for _, l := range lanes {
			if next := s.next(l); len(next) > 0 {
				heads = append(heads, newHead(l, next))
				left = append(left, l)
			}
		}
		if lanes = left; len(lanes) == 0 {
			return nil
		}
		if err := s.send(ctx, heads); err != nil {
			return err
		}
	}
}

// lanesOf parts rows by their keys. The order of keys is that of their first rows.
func lanesOf(rows []*mapping.Row) []*lane {
	type key struct {
		table pipeline.TableRef
		row   string
	}
	all, segments := make([]lane, len(rows)), make([][]*mapping.Row, len(rows))
	lanes := make([]*lane, 0, len(rows))
	var at map[key]*lane
	if slices.ContainsFunc(rows, mayFollow) {
		at = make(map[key]*lane, len(rows))
	}
	for i, r := range rows {
		l := &all[i]
		if at != nil {
			k := key{r.Table, string(r.Entry.RowKey)}
			if before := at[k]; before != nil {
				before.segments[0] = append(before.segments[0], r)
				continue
			}
			at[k] = l
		}
		l.segments = segments[i : i+1 : i+1]
		l.segments[0] = rows[i : i+1 : i+1]
		lanes = append(lanes, l)
	}
	return lanes
}

// mayFollow reports whether a row may have another of its key before it. Rows that go
// last do not say so themselves.
func mayFollow(r *mapping.Row) bool { return r.Follows || r.Entry.Idempotency != nil }

// next returns the rows of the lane that go next, together. Contributions that are applied
// already are passed over.
func (s *Settler) next(l *lane) []*mapping.Row {
	for len(l.segments) > 0 {
		rows := l.segments[0]
		for len(rows) > 0 && s.isCounted(rows[0]) {
			s.Applied++
			rows = rows[1:]
		}
		if len(rows) > 0 {
			l.segments[0] = rows
			return rows[:s.together(rows)]
		}
		l.segments = l.segments[1:]
	}
	return nil
}

func (s *Settler) isCounted(r *mapping.Row) bool {
	if !r.Shared {
		return false
	}
	_, is := s.Counted[string(r.Token())]
	return is
}

// together returns how many of the first rows go together: conditional ones as long as one
// condition has room for all of their markers, commuting ones in any number, else one. No
// two of them are one contribution.
func (s *Settler) together(rows []*mapping.Row) int {
	first := rows[0]
	packs, commutes := packable(first), first.Commutes()
	if !packs && !commutes {
		return 1
	}
	var p pack
	tokens := map[string]bool{}
	for n, r := range rows {
		token := string(r.Token())
		if tokens[token] || packs && !p.takes(r, s.MaxBytes) || commutes && !r.Commutes() {
			return max(n, 1)
		}
		tokens[token] = true
	}
	return len(rows)
}

// head is the rows that go next of one lane. packed says that they are one entry; otherwise
// each is an entry of its own.
type head struct {
	lane   *lane
	rows   []*mapping.Row
	packed bool
}

func newHead(l *lane, rows []*mapping.Row) head {
	return head{lane: l, rows: rows, packed: len(rows) > 1 && packable(rows[0])}
}

// entries is how many entries the rows make.
func (h *head) entries() int {
	if h.packed {
		return 1
	}
	return len(h.rows)
}

// appendTo appends the entries of the rows.
func (h *head) appendTo(entries []writer.Entry) []writer.Entry {
	if h.packed {
		return append(entries, packed(h.rows))
	}
	for _, row := range h.rows {
		entries = append(entries, writer.Entry{Table: row.Table, Row: row.Entry, Unless: row.Unless, Unordered: len(h.rows) > 1})
	}
	return entries
}

// send sends the heads of all lanes at once and takes the settled rows out of their lanes.
func (s *Settler) send(ctx context.Context, heads []head) error {
	entries := make([]writer.Entry, 0, len(heads))
	for i := range heads {
		entries = heads[i].appendTo(entries)
	}
	outcomes := s.Writer.Apply(ctx, entries)
	unknown := 0
	var first error
	for i := range heads {
		n := heads[i].entries()
		own := outcomes[:n]
		outcomes = outcomes[n:]
		for _, err := range own {
			if !writer.Settled(err) {
				if unknown++; first == nil {
					first = err
				}
			}
		}
		if first == nil {
			s.settle(&heads[i], own)
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("applying %d rows, %d not known to be applied: %w", len(entries), unknown, first)
}

// settle takes a head with these outcomes out of its lane, and puts back in pieces the rows
// that are to be sent again.
func (s *Settler) settle(h *head, outcomes []error) {
	l, rows := h.lane, h.rows
	l.segments[0] = l.segments[0][len(rows):]
	if !h.packed {
		for i, r := range slices.Backward(rows) { // the last first: each is put before all others
			s.settleRow(l, r, outcomes[i])
		}
		return
	}
	var present *writer.Present
	switch {
	case outcomes[0] == nil:
		for _, r := range rows {
			s.isApplied(r)
		}
	case errors.As(outcomes[0], &present):
		l.before(s.without(rows, present))
	default: // rejected together
		l.before(rows[len(rows)/2:])
		l.before(rows[:len(rows)/2])
	}
}

// settleRow settles a row with an entry of its own.
func (s *Settler) settleRow(l *lane, r *mapping.Row, outcome error) {
	if outcome == nil {
		s.isApplied(r)
		return
	}
	var verdict *retry.Rejected
	switch {
	case !errors.As(outcome, &verdict):
		s.isApplied(r)
	case len(r.Parts) > 1:
		first, last := r.Halves()
		l.before([]*mapping.Row{last})
		l.before([]*mapping.Row{first})
	default:
		s.Rejected = append(s.Rejected, Rejected{r, verdict})
	}
}

// before puts a segment before all others of the lane.
func (l *lane) before(rows []*mapping.Row) {
	l.segments = append([][]*mapping.Row{rows}, l.segments...)
}

func (s *Settler) isApplied(r *mapping.Row) {
	s.Applied++
	if r.Shared {
		if s.Counted == nil {
			s.Counted = map[string]struct{}{}
		}
		s.Counted[string(r.Token())] = struct{}{}
	}
}

// without counts the rows whose markers are there as applied and returns the others.
func (s *Settler) without(rows []*mapping.Row, markers *writer.Present) []*mapping.Row {
	there := make(map[string]bool, len(markers.Columns))
	for _, c := range markers.Columns {
		there[c.Qualifier] = true
	}
	var left []*mapping.Row
	for _, r := range rows {
		if there[string(r.Token())] {
			s.isApplied(r)
		} else {
			left = append(left, r)
		}
	}
	return left
}
