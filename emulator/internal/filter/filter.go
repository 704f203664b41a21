// Package filter runs Bigtable row filters. It is pure but for the random
// numbers that a row sample draws, which the caller passes in.
package filter

import (
	"slices"
	"sort"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// Out is a cell that a filter lets through, with what transformers did to it.
type Out struct {
	*store.Cell
	Label string // "": none
	Strip bool   // the value is replaced by an empty one
}

// Size is the bytes of a row's key and of its cells that passed, counted as the
// size of a store.Row is. A value that was stripped counts nothing.
func Size(key string, out []Out) int64 {
	size := int64(len(key))
	for i := range out {
		o := &out[i]
		size += int64(len(o.Family)+len(o.Qualifier)+len(o.value())) + store.CellOverhead
	}
	return size
}

// Filter is a compiled filter. A nil Filter passes every cell. It holds no
// state, so one may run on many rows at once.
type Filter struct {
	root   node
	random func() float64
}

// Run appends to buf the cells of a row that pass, in order; buf must be
// empty and is only there to be used again.
func (f *Filter) Run(r *store.Row, buf []Out) []Out {
	for i := range r.Cells {
		buf = append(buf, Out{Cell: &r.Cells[i]})
	}
	if f == nil {
		return buf
	}
	x := run{key: r.Key, random: f.random}
	out := f.root.apply(&x, buf)
	if len(x.sunk) > 0 {
		out = append(slices.Clone(out), x.sunk...)
		sortOut(out)
	}
	return out
}

// Matches reports whether any cell of a row, nil for none, passes.
func (f *Filter) Matches(r *store.Row) bool {
	return r != nil && len(f.Run(r, nil)) > 0
}

func sortOut(out []Out) {
	slices.SortStableFunc(out, func(a, b Out) int { return store.CompareCells(a.Cell, b.Cell) })
}

// run is one row on its way through the filter.
type run struct {
	key    string
	random func() float64
	sunk   []Out // what sinks send straight to the output
}

// node filters the cells of a row. It owns the slice it is given and may
// return it, changed.
type node interface {
	apply(x *run, in []Out) []Out
}

type pass struct{}

func (pass) apply(_ *run, in []Out) []Out { return in }

type block struct{}

func (block) apply(*run, []Out) []Out { return nil }

type sink struct{}

func (sink) apply(x *run, in []Out) []Out {
	x.sunk = append(x.sunk, in...)
	return nil
}

type chain []node

func (c chain) apply(x *run, in []Out) []Out {
	for _, n := range c {
		if len(in) == 0 {
			return nil
		}
		in = n.apply(x, in)
	}
	return in
}

type interleave []node

func (n interleave) apply(x *run, in []Out) []Out {
	var out []Out
	for _, sub := range n {
		if s, ok := sub.(span); ok { // a span changes nothing of in
			out = append(out, s.of(in)...)
			continue
		}
		out = append(out, sub.apply(x, slices.Clone(in))...)
	}
	sortOut(out)
	return out
}

type condition struct{ predicate, yes, no node }

func (c condition) apply(x *run, in []Out) []Out {
	if len(c.predicate.apply(x, slices.Clone(in))) > 0 {
		return c.yes.apply(x, in)
	}
	return c.no.apply(x, in)
}

// row keeps or drops the whole row.
type row struct{ keep func(x *run) bool }

func (n row) apply(x *run, in []Out) []Out {
	if n.keep(x) {
		return in
	}
	return nil
}

// cells keeps some cells, whatever came before them.
type cells struct{ keep func(o *Out) bool }

func (n cells) apply(_ *run, in []Out) []Out {
	out := in[:0]
	for i := range in {
		if n.keep(&in[i]) {
			out = append(out, in[i])
		}
	}
	return out
}

// span keeps the columns of one family from one qualifier to another. It finds them by
// halving: conditions on hundreds of columns meet rows of many thousands.
type span struct {
	family        string
	after, before func(qualifier string) bool // at or after the start, at or before the end
}

func (n span) apply(_ *run, in []Out) []Out { return n.of(in) }

// of returns the part of in, which is in the order of columns.
func (n span) of(in []Out) []Out {
	from := sort.Search(len(in), func(i int) bool {
		return in[i].Family > n.family || in[i].Family == n.family && n.after(in[i].Qualifier)
	})
	in = in[from:]
	to := sort.Search(len(in), func(i int) bool { return in[i].Family != n.family || !n.before(in[i].Qualifier) })
	return in[:to]
}

// transform changes every cell.
type transform struct{ change func(o *Out) }

func (n transform) apply(_ *run, in []Out) []Out {
	for i := range in {
		n.change(&in[i])
	}
	return in
}

type rowOffset int

func (n rowOffset) apply(_ *run, in []Out) []Out { return in[min(int(n), len(in)):] }

type rowLimit int

func (n rowLimit) apply(_ *run, in []Out) []Out { return in[:min(int(n), len(in))] }

type columnLimit int

func (n columnLimit) apply(_ *run, in []Out) []Out {
	out, count := in[:0], 0
	var last *store.Cell
	for i := range in {
		if last == nil || store.CompareColumns(last, in[i].Cell) != 0 {
			count = 0
		}
		last = in[i].Cell
		if count++; count <= int(n) {
			out = append(out, in[i])
		}
	}
	return out
}
