package scanshare

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// part is a split of the keys k000000 and on, from and to a number, at a position.
func part(from, to, rows int, state ledger.SplitState, sections ...ledger.Section) *ledger.Split {
	s := &ledger.Split{Ranges: []rowrange.Range{{Start: numbered(from), End: numbered(to)}}, State: state, Sections: sections}
	if s.Rows = int64(rows); rows > 0 {
		s.Position = numbered(from + rows - 1)
	}
	s.Bytes = 40 * s.Rows // of 100 that the service stores for each
	return s
}

func numbered(i int) string { return fmt.Sprintf("k%06d", i) }

func TestTheShareOfASplitIsThatOfItsRows(t *testing.T) {
	const n = 100_000
	size := func(to int, rows int) ledger.Section {
		return ledger.Section{End: numbered(to), Bytes: 100 * int64(rows)}
	}
	quarters := func(from int) []ledger.Section {
		return []ledger.Section{size(from+n/4, n/4), size(from+n/2, n/4), size(from+3*n/4, n/4), size(from+n, n/4)}
	}
	for name, c := range map[string]struct {
		splits []*ledger.Split
		want   []float64 // negative: not known
		within float64
	}{
		"each a third read, in sections": {
			[]*ledger.Split{
				part(0, n, n/3, ledger.SplitOpen, quarters(0)...), part(n, 2*n, n/3, ledger.SplitOpen, quarters(n)...), part(2*n, 3*n, n/3, ledger.SplitOpen, quarters(2*n)...),
			}, []float64{1. / 3, 1. / 3, 1. / 3}, 0.1,
		},
		"a third of one section, beside one that is done": {
			[]*ledger.Split{part(0, n, n, ledger.SplitDone, size(n, n)), part(n, 2*n, n/3, ledger.SplitOpen, size(2*n, n))}, []float64{1, 1. / 3}, 0.001,
		},
		"a third of one section, by the bytes read": {
			[]*ledger.Split{part(0, n, n/3, ledger.SplitOpen, size(n, n*4/10))}, []float64{1. / 3}, 0.001,
		},
		"not more than the section": {
			[]*ledger.Split{part(0, n, n/5, ledger.SplitOpen, ledger.Section{End: numbered(n / 4), Bytes: 10}, size(n, n))}, []float64{0}, 0.001,
		},
		"not begun":       {[]*ledger.Split{part(0, n, 0, ledger.SplitOpen, size(n, n)), part(0, n, 0, ledger.SplitOpen)}, []float64{0, 0}, 0},
		"nothing sampled": {[]*ledger.Split{part(0, n, n/3, ledger.SplitOpen), part(0, n, n/3, ledger.SplitOpen, ledger.Section{})}, []float64{-1, -1}, 0},
	} {
		perRow := BytesPerRow(c.splits)
		for i, s := range c.splits {
			share, known := OfSplit(s, perRow)
			if known != (c.want[i] >= 0) || known && math.Abs(share-c.want[i]) > c.within {
				t.Errorf("%s: split %d is %.3f read (known: %t), want %.3f", name, i, share, known, c.want[i])
			}
		}
	}
}

func TestTheShareOfAScanIsBetweenNothingAndAllAndDoneOnlyAtItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var splits []*ledger.Split
		for i := range rapid.IntRange(0, 4).Draw(t, "splits") {
			var sections []ledger.Section
			for j := range rapid.IntRange(0, 3).Draw(t, "sections") {
				sections = append(sections, ledger.Section{End: numbered(1000*i + 100*j), Bytes: rapid.Int64Range(0, 1<<40).Draw(t, "bytes")})
			}
			state := rapid.SampledFrom([]ledger.SplitState{ledger.SplitOpen, ledger.SplitDone, ledger.SplitFailed, ledger.SplitWaiting}).Draw(t, "state")
			splits = append(splits, part(1000*i, 1000*i+1000, rapid.IntRange(0, 500).Draw(t, "rows"), state, sections...))
		}
		scan := &ledger.Scan{State: ledger.ScanRunning, Limit: rapid.SampledFrom([]int64{0, 0, 700}).Draw(t, "limit")}
		if s := Of(scan, splits); math.IsNaN(s) || s < 0 || s > 1 {
			t.Fatalf("the scan is %f read", s)
		}
		scan.State = ledger.ScanDone
		if s := Of(scan, splits); s != 1 {
			t.Fatalf("a scan that is done is %f read", s)
		}
	})
}
