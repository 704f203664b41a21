package scanplanner

import (
	"cmp"
	"encoding/base64"
	"slices"
	"sort"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// splitBytes is how much of a table one split holds at least, where its tablets
	// allow and nobody asks for more parallelism: a few minutes of reading.
	splitBytes = 256 << 20
	// maxRequest bounds a split's part of a ReadRows request, in bytes. Bigtable takes
	// 512 KiB (googleapis/google-cloud-python#6836), of which the filter may have 20
	// and a range's start may grow to a key of 4.
	maxRequest = 384 << 10
	// maxDocument bounds what the ranges of a split take in the ledger.
	maxDocument = 600_000
	// maxSections bounds the sections that are kept of a split.
	maxSections = 16
)

// piece is a range within one tablet.
type piece struct {
	rowrange.Range
	bytes  int64 // about
	weight int64 // at least 1
}

// cut cuts the ranges, which are in key order and apart, at every boundary of a tablet
// strictly inside them. The keys sampled may never have been rows, may lie outside, and
// may be none at all.
func cut(ranges []rowrange.Range, samples []btrpc.Sample) []piece {
	keys, weights := tablets(samples)
	var pieces []piece
	in := make([]int64, len(weights)) // pieces in each tablet
	var tabletOf []int
	for _, r := range ranges {
		first := sort.Search(len(keys), func(i int) bool { return reaches(r, rowrange.Range{End: keys[i]}) })
		inside := sort.Search(len(keys)-first, func(i int) bool { return !reaches(r, rowrange.Range{Start: keys[first+i]}) })
		for i, part := range rowrange.Cut(r, keys[first:first+inside]) {
			pieces, tabletOf = append(pieces, piece{Range: part}), append(tabletOf, first+i)
			in[first+i]++
		}
	}
	for i := range pieces {
		pieces[i].bytes = weights[tabletOf[i]] / in[tabletOf[i]]
	}
	return pieces
}

// reaches reports whether a key of r lies in other.
func reaches(r, other rowrange.Range) bool {
	_, some := rowrange.Intersect(r, other)
	return some
}

// tablets returns the boundaries between tablets, in order, and the bytes of each.
func tablets(samples []btrpc.Sample) (keys []string, weights []int64) {
	end := int64(0) // of the table
	inner := slices.DeleteFunc(slices.Clone(samples), func(s btrpc.Sample) bool {
		end = max(end, s.Bytes)
		return s.Key == ""
	})
	slices.SortStableFunc(inner, func(a, b btrpc.Sample) int { return cmp.Compare(a.Key, b.Key) })
	before := int64(0)
	for _, s := range inner {
		if len(keys) > 0 && keys[len(keys)-1] == s.Key {
			continue
		}
		keys, weights = append(keys, s.Key), append(weights, max(0, s.Bytes-before))
		before = max(before, s.Bytes)
	}
	return keys, append(weights, max(0, end-before))
}

// group makes splits of neighbouring pieces. If parallelism is 0, a piece that is large
// enough is a split of its own, and small ones share one. Otherwise group makes that many
// splits of about the same size, if there are as many pieces and each split fits into a
// request.
func group(pieces []piece, parallelism int) []*bundle {
	rest := int64(0) // of the splits from the last on
	for i := range pieces {
		pieces[i].weight = max(1, pieces[i].bytes) // an empty tablet too may hold a row by now
		rest += pieces[i].weight
	}
	var groups []*bundle
	left := parallelism // splits from the last on
	for i, p := range pieces {
		var last *bundle
		if len(groups) > 0 {
			last = groups[len(groups)-1]
		}
		switch {
		case last == nil:
		case parallelism == 0 && last.weight+p.weight <= splitBytes && last.add(p):
			continue
		case parallelism > 0 && !last.isWhole(p, rest, left, len(pieces)-i) && last.add(p):
			continue
		default:
			rest -= last.weight
			left = max(1, left-1)
		}
		groups = append(groups, newBundle(p))
	}
	return groups
}

// isWhole reports whether the split is complete, so that the next piece begins another one:
// with half of the piece it would be over its share of rest, or too few of the pieces that
// are left would remain for the other splits.
func (b *bundle) isWhole(next piece, rest int64, left, pieces int) bool {
	return left > 1 && (pieces < left || b.weight+next.weight/2 > rest/int64(left))
}

// bundle is a split as it grows.
type bundle struct {
	ranges            []rowrange.Range
	sections          []ledger.Section
	weight            int64
	request, document int // bytes
}

func newBundle(p piece) *bundle {
	b := &bundle{ranges: []rowrange.Range{p.Range}, weight: p.weight, sections: []ledger.Section{p.section()}}
	b.count(p.Range, 1)
	return b
}

// add takes the next piece in key order, if it fits.
func (b *bundle) add(p piece) bool {
	last := &b.ranges[len(b.ranges)-1]
	grown := *b
	joined := rowrange.Merge([]rowrange.Range{*last, p.Range})
	if len(joined) == 1 {
		grown.count(*last, -1)
		grown.count(joined[0], 1)
	} else {
		grown.count(p.Range, 1)
	}
	if grown.weight += p.weight; grown.request > maxRequest || grown.document > maxDocument {
		return false
	}
	grown.sections = append(fewer(b.sections), p.section())
	if len(joined) == 1 {
		*last = joined[0]
	} else {
		grown.ranges = append(b.ranges, p.Range)
	}
	*b = grown
	return true
}

// count adds what a range takes: tags and lengths in a request, names and base64 in a
// document.
func (b *bundle) count(r rowrange.Range, times int) {
	b.request += times * (len(r.Start) + len(r.End) + 16)
	b.document += times * (base64.StdEncoding.EncodedLen(len(r.Start)) + base64.StdEncoding.EncodedLen(len(r.End)) + 64)
}

func (p piece) section() ledger.Section { return ledger.Section{End: p.End, Bytes: p.bytes} }

// fewer joins sections in pairs if there are as many as may be kept.
func fewer(sections []ledger.Section) []ledger.Section {
	if len(sections) < maxSections {
		return sections
	}
	var out []ledger.Section
	for i := 0; i+1 < len(sections); i += 2 {
		out = append(out, ledger.Section{End: sections[i+1].End, Bytes: sections[i].Bytes + sections[i+1].Bytes})
	}
	return out
}
