// Package store holds what a Bigtable row is and how mutations change it.
//
// Everything here is pure: a Row is never changed after it was made, Apply
// returns another one, all or nothing, and time comes in as an argument.
package store

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// Cell is one version of one column. Its value is shared with whoever made
// it and must not be written to.
type Cell struct {
	Family    string
	Qualifier string
	Timestamp int64 // microseconds since the epoch, never negative
	Value     []byte
}

// Row is an immutable row: its cells are sorted by family, qualifier and
// descending timestamp, and no two share all three. A Row has at least one
// cell; a row without cells does not exist.
type Row struct {
	Key   string
	Cells []Cell
	Size  int64 // bytes, see CellOverhead
}

// CellOverhead is what a cell is counted beyond its family, qualifier and
// value: an estimate, for tablet sizes and SampleRowKeys offsets only.
const CellOverhead = 16

// NewRow makes a row of cells that are sorted already, nil if there are none.
func NewRow(key string, cells []Cell) *Row {
	if len(cells) == 0 {
		return nil
	}
	size := int64(len(key))
	for i := range cells {
		c := &cells[i]
		size += int64(len(c.Family)+len(c.Qualifier)+len(c.Value)) + CellOverhead
	}
	return &Row{Key: key, Cells: cells, Size: size}
}

// SizeOf is the size of a row that may be nil, in bytes.
func SizeOf(r *Row) int64 {
	if r == nil {
		return 0
	}
	return r.Size
}

// CellsOf are the cells of a row that may be nil.
func CellsOf(r *Row) []Cell {
	if r == nil {
		return nil
	}
	return r.Cells
}

// CompareColumns orders cells by family and qualifier.
func CompareColumns(a, b *Cell) int {
	if c := strings.Compare(a.Family, b.Family); c != 0 {
		return c
	}
	return strings.Compare(a.Qualifier, b.Qualifier)
}

// CompareCells is the order of cells in a row: family, qualifier, newest first.
func CompareCells(a, b *Cell) int {
	if c := CompareColumns(a, b); c != 0 {
		return c
	}
	return cmp.Compare(b.Timestamp, a.Timestamp)
}

// Families are the names of the families that hold data, in order.
func (r *Row) Families() []string {
	var names []string
	for i := range r.Cells {
		if i == 0 || r.Cells[i].Family != r.Cells[i-1].Family {
			names = append(names, r.Cells[i].Family)
		}
	}
	return names
}

// Column is the part of cells that belongs to one column, newest first.
func Column(cells []Cell, family, qualifier string) []Cell {
	lo := sort.Search(len(cells), func(i int) bool {
		c := strings.Compare(cells[i].Family, family)
		return c > 0 || c == 0 && cells[i].Qualifier >= qualifier
	})
	hi := lo
	for hi < len(cells) && cells[hi].Qualifier == qualifier && cells[hi].Family == family {
		hi++
	}
	return cells[lo:hi:hi]
}

// WithoutFamily is the row without the cells of one family: the same row if
// it has none of them, nil if it has no others.
func (r *Row) WithoutFamily(family string) *Row {
	if !slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Family == family }) {
		return r
	}
	rest := make([]Cell, 0, len(r.Cells))
	for _, c := range r.Cells {
		if c.Family != family {
			rest = append(rest, c)
		}
	}
	return NewRow(r.Key, rest)
}
