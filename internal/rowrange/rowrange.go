// Package rowrange guarantees exact arithmetic on ranges of row keys: what is
// merged, cut or subtracted holds the same keys as before, none twice and none
// missing. Row keys are non-empty strings of bytes in unsigned lexicographic
// order; a range is never empty by accident: IsEmpty knows every spelling of it.
package rowrange

import (
	"slices"
	"strings"
)

// Range is a range of row keys; its zero value holds all of them. Two ranges may
// hold the same keys and differ, as (k, *) and [k\x00, *) do: compare with Equal.
type Range struct {
	Start     string // the lower bound; empty: from the first key
	End       string // the upper bound; empty: to the last key
	StartOpen bool   // Start is not in the range itself
	EndClosed bool   // End is in the range itself
}

// Closed returns the range of one key.
func Closed(key string) Range { return Range{Start: key, End: key, EndClosed: true} }

// Prefix returns the range of the keys that start with p: all of them for an
// empty p. A prefix of 0xFF bytes alone runs to the last key.
func Prefix(p string) Range {
	end := []byte(p)
	for len(end) > 0 && end[len(end)-1] == 0xFF {
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
	}
	return Range{Start: p, End: string(end)}
}

// place is a gap between two neighbouring keys: before key, or just after it.
type place struct {
	key   string
	after bool
}

func compare(a, b place) int {
	switch {
	case a.after == b.after:
		return strings.Compare(a.key, b.key)
	case b.after:
		return -compare(b, a)
	case a.key >= b.key:
		return 1
	case len(b.key) == len(a.key)+1 && b.key[len(a.key)] == 0 && b.key[:len(a.key)] == a.key:
		return 0 // nothing lies between k and k\x00
	}
	return -1
}

// low is where r starts. No key is empty, so the first place is after the empty one.
func (r Range) low() place { return place{r.Start, r.StartOpen || r.Start == ""} }

// high is where r ends; bounded is false where it ends with the last key.
func (r Range) high() (p place, bounded bool) { return place{r.End, r.EndClosed}, r.End != "" }

// compareHigh orders ranges by their ends.
func compareHigh(a, b Range) int {
	x, xBounded := a.high()
	y, yBounded := b.high()
	switch {
	case xBounded && yBounded:
		return compare(x, y)
	case xBounded:
		return -1
	case yBounded:
		return 1
	}
	return 0
}

// IsEmpty reports whether no key is in r, so that a read of it must not be sent.
func (r Range) IsEmpty() bool {
	high, bounded := r.high()
	return bounded && compare(r.low(), high) >= 0
}

// Equal reports whether r and o hold the same keys.
func (r Range) Equal(o Range) bool {
	if r.IsEmpty() || o.IsEmpty() {
		return r.IsEmpty() && o.IsEmpty()
	}
	return compare(r.low(), o.low()) == 0 && compareHigh(r, o) == 0
}

// Contains reports whether key is in r.
func (r Range) Contains(key string) bool {
	at := place{key, false}
	if key == "" || compare(at, r.low()) < 0 {
		return false
	}
	high, bounded := r.high()
	return !bounded || compare(at, high) < 0
}

// After returns what of r lies after key: r itself where key is below it.
func (r Range) After(key string) Range {
	if compare(place{key, true}, r.low()) <= 0 {
		return r
	}
	r.Start, r.StartOpen = key, true
	return r
}

// Intersect returns the keys that are in both a and b, and whether there are any.
func Intersect(a, b Range) (Range, bool) {
	r := a
	if compare(b.low(), a.low()) > 0 {
		r.Start, r.StartOpen = b.Start, b.StartOpen
	}
	if compareHigh(b, a) < 0 {
		r.End, r.EndClosed = b.End, b.EndClosed
	}
	return r, !r.IsEmpty()
}

// Merge returns the fewest ranges that hold the keys of rs: in key order, apart
// from one another, none empty.
func Merge(rs []Range) []Range {
	sorted := slices.DeleteFunc(slices.Clone(rs), Range.IsEmpty)
	slices.SortStableFunc(sorted, func(a, b Range) int { return compare(a.low(), b.low()) })
	var merged []Range
	for _, r := range sorted {
		if len(merged) == 0 {
			merged = append(merged, r)
			continue
		}
		last := &merged[len(merged)-1]
		if high, bounded := last.high(); bounded && compare(r.low(), high) > 0 {
			merged = append(merged, r)
		} else if compareHigh(r, *last) > 0 {
			last.End, last.EndClosed = r.End, r.EndClosed
		}
	}
	return merged
}

// Cut cuts r before each of the keys that lies strictly inside it, which leaves
// keys on both sides of every cut. The keys may come in any order, more than once.
func Cut(r Range, keys []string) []Range {
	if r.IsEmpty() {
		return nil
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	var pieces []Range
	for _, key := range slices.Compact(sorted) {
		high, bounded := r.high()
		cut := place{key, false}
		if key == "" || compare(cut, r.low()) <= 0 || bounded && compare(cut, high) >= 0 {
			continue
		}
		pieces = append(pieces, Range{Start: r.Start, StartOpen: r.StartOpen, End: key})
		r.Start, r.StartOpen = key, false
	}
	return append(pieces, r)
}

// Subtract returns what of r is in none of rs, in key order, none empty.
func Subtract(r Range, rs []Range) []Range {
	var left []Range
	for _, hole := range Merge(rs) {
		if compare(hole.low(), r.low()) > 0 {
			before := Range{Start: r.Start, StartOpen: r.StartOpen, End: hole.Start, EndClosed: hole.StartOpen}
			if piece, some := Intersect(r, before); some {
				left = append(left, piece)
			}
		}
		high, bounded := hole.high()
		if !bounded {
			return left
		}
		if compare(high, r.low()) > 0 {
			r.Start, r.StartOpen = hole.End, hole.EndClosed
		}
	}
	if !r.IsEmpty() {
		left = append(left, r)
	}
	return left
}

// Covers reports whether every key of r is in one of rs.
func Covers(rs []Range, r Range) bool { return len(Subtract(r, rs)) == 0 }
