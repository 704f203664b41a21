package emulator

import (
	"fmt"
	"slices"
	"sort"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// Tablet is a contiguous part of a table's keys.
type Tablet struct {
	ID    uint64 `json:"id"`    // new whenever the tablet splits, merges, shifts or moves
	Start []byte `json:"start"` // inclusive; empty: from the first key
	End   []byte `json:"end"`   // exclusive; empty: to the last key
	Bytes int64  `json:"bytes"` // estimated size of its rows
}

type tablet struct {
	id    uint64
	start string
	size  int64
	part  *logPart
}

func (t *table) newTablet(start string) *tablet {
	t.tabletID++
	return &tablet{id: t.tabletID, start: start, part: &logPart{}}
}

// tabletAt is the index of the tablet that holds a key.
func (t *table) tabletAt(key string) int {
	if len(t.tablets) == 1 {
		return 0
	}
	return sort.Search(len(t.tablets), func(i int) bool { return t.tablets[i].start > key }) - 1
}

func (t *table) tabletEnd(i int) string {
	if i+1 < len(t.tablets) {
		return t.tablets[i+1].start
	}
	return ""
}

func (t *table) tabletRange(i int) keyRange { return keyRange{t.tablets[i].start, t.tabletEnd(i)} }

func (t *table) tabletRef(i int) tabletRef { return tabletRef{t.tablets[i].id, t.tabletRange(i)} }

// resize notes that the row of a key grew by delta bytes, and splits its
// tablet when that has grown too large.
func (s *session) resize(key string, delta int64) {
	i := s.t.tabletAt(key)
	s.t.tablets[i].size += delta
	if limit := s.e.opts.TabletBytes; !s.replaying && delta > 0 && limit > 0 && s.t.tablets[i].size > limit {
		if middle := s.t.middle(i); middle != "" {
			s.retile(i, 1, s.t.tablets[i].start, middle)
		}
	}
}

// sizeBetween estimates the bytes of the rows from start up to end.
func (t *table) sizeBetween(start, end string) int64 {
	size := int64(0)
	t.rows.Ascend(&store.Row{Key: start}, func(r *store.Row) bool {
		if end != "" && r.Key >= end {
			return false
		}
		size += r.Size
		return true
	})
	return size
}

// middle is the key that halves a tablet's bytes, "" if none can.
func (t *table) middle(i int) string {
	tab, end, size, key := t.tablets[i], t.tabletEnd(i), int64(0), ""
	t.rows.Ascend(&store.Row{Key: tab.start}, func(r *store.Row) bool {
		if end != "" && r.Key >= end {
			return false
		}
		if size > 0 && r.Key > tab.start {
			key = r.Key
			if size >= tab.size/2 {
				return false
			}
		}
		size += r.Size
		return true
	})
	return key
}

// retile replaces n tablets from index i by new ones with the given starts.
func (s *session) retile(i, n int, starts ...string) {
	s.record(change{kind: changeTablets, tablets: s.t.retile(i, n, starts)})
}

func (t *table) retile(i, n int, starts []string) *tabletChange {
	c := &tabletChange{}
	end, rest, dropped := t.tabletEnd(i+n-1), int64(0), uint64(0)
	for j := i; j < i+n; j++ {
		tab := t.tablets[j]
		c.closed = append(c.closed, t.tabletRef(j))
		rest, dropped = rest+tab.size, max(dropped, tab.part.dropped)
		t.log.end(tab.part, t.tabletRange(j))
	}
	opened := make([]*tablet, len(starts))
	for j, start := range starts {
		stop := end
		opened[j] = t.newTablet(start)
		opened[j].size, opened[j].part.dropped = rest, dropped
		if j+1 < len(starts) {
			stop = starts[j+1]
			opened[j].size = t.sizeBetween(start, stop)
			rest -= opened[j].size
		}
		c.opened = append(c.opened, tabletRef{opened[j].id, keyRange{start, stop}})
	}
	t.tablets = slices.Replace(t.tablets, i, i+n, opened...)
	return c
}

// Tablets lists the tablets of a table, in order. The table is named in full:
// projects/p/instances/i/tables/t.
func (e *Emulator) Tablets(table string) ([]Tablet, error) {
	t, err := e.table(table)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Tablet, len(t.tablets))
	for i, tab := range t.tablets {
		out[i] = Tablet{ID: tab.id, Start: []byte(tab.start), End: []byte(t.tabletEnd(i)), Bytes: tab.size}
	}
	return out, nil
}

// SplitTablet splits the tablet that holds key in two, the second of which
// starts at key. It is an error if one starts there already.
func (e *Emulator) SplitTablet(table string, key []byte) error {
	return e.changeTablets(table, func(s *session) error {
		i := s.t.tabletAt(string(key))
		if len(key) == 0 || s.t.tablets[i].start == string(key) {
			return errNoTablet("a tablet starts at the key already")
		}
		s.retile(i, 1, s.t.tablets[i].start, string(key))
		return nil
	})
}

// MergeTablets joins the tablet that starts at key with the one before it.
func (e *Emulator) MergeTablets(table string, key []byte) error {
	return e.changeTablets(table, func(s *session) error {
		i, err := s.t.boundary(key)
		if err != nil {
			return err
		}
		s.retile(i-1, 2, s.t.tablets[i-1].start)
		return nil
	})
}

// ShiftTablets moves the boundary between two tablets from one key to
// another, which must lie strictly within the two.
func (e *Emulator) ShiftTablets(table string, from, to []byte) error {
	return e.changeTablets(table, func(s *session) error {
		i, err := s.t.boundary(from)
		if err != nil {
			return err
		}
		before, end := s.t.tablets[i-1].start, s.t.tabletEnd(i)
		if string(to) <= before || end != "" && string(to) >= end || string(to) == string(from) {
			return errNoTablet("the new boundary must lie within the two tablets and differ from the old one")
		}
		s.retile(i-1, 2, before, string(to))
		return nil
	})
}

// MoveTablet moves the tablet that holds key to another server: it ends and
// begins again with the same keys.
func (e *Emulator) MoveTablet(table string, key []byte) error {
	return e.changeTablets(table, func(s *session) error {
		i := s.t.tabletAt(string(key))
		s.retile(i, 1, s.t.tablets[i].start)
		return nil
	})
}

func (e *Emulator) changeTablets(table string, f func(s *session) error) error {
	if err := e.change(table, f); err != nil {
		return fmt.Errorf("changing tablets: %w", err)
	}
	return nil
}

func errNoTablet(why string) error { return status.Error(codes.FailedPrecondition, why) }

// boundary is the index of the tablet that starts at key and is not the first.
func (t *table) boundary(key []byte) (int, error) {
	if i := t.tabletAt(string(key)); i > 0 && t.tablets[i].start == string(key) {
		return i, nil
	}
	return 0, errNoTablet("no two tablets meet at the key")
}
