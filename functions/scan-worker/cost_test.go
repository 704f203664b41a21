package scanworker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// What a scan costs in the ledger; docs/scans.md has the prices.
func TestWhatAScanReadsAndWritesInTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const splits = 64
		h := newHarness(t, ids).withSlowTable(&slowTable{n: splits * 10, each: time.Millisecond})
		meter := ledger.NewMeter(h.store)
		h.store = meter
		h.start()
		var ranges [][]rowrange.Range
		for i := range splits {
			ranges = append(ranges, []rowrange.Range{{Start: key(10 * i), End: key(10 * (i + 1))}})
		}
		h.plan(0, ranges...)
		planned := meter.Usage()
		h.run()
		work := meter.Usage().Minus(planned)
		if h.scan().State != ledger.ScanDone {
			t.Fatalf("the scan is %s", h.scan().State)
		}
		t.Logf("a plan of %d splits: %+v; reading them in one slice each: %+v", splits, planned, work)
		// Of the plan: the scan, each split once, and a list of them. The helpers of this
		// test read the scan twice more for every split.
		if planned.Writes > splits+2 || planned.Reads > 3*splits+10 {
			t.Errorf("a plan of %d splits: %+v", splits, planned)
		}
		// Of a split: its lease and its end, and its place in the tally of the scan.
		if perSplit := float64(work.Writes) / splits; perSplit > 3.2 {
			t.Errorf("%.2f writes for a split that is read in one slice", perSplit)
		}
		if perSplit := float64(work.Reads) / splits; perSplit > 2.5 {
			t.Errorf("%.2f reads for a split that is read in one slice", perSplit)
		}
	})
}

func TestALongSplitWritesOnceInFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 10_000 // 100 a second
		h := newHarness(t, ids).withSlowTable(&slowTable{n: rows, each: 10 * time.Millisecond})
		meter := ledger.NewMeter(h.store)
		h.store = meter
		h.start()
		h.plan(0, whole())
		before := meter.Usage()
		h.run()
		used := meter.Usage().Minus(before)
		t.Logf("100 s of reading: %+v", used)
		// Three slices: a lease and a return each, and a commit every five seconds.
		if used.Writes > 100/5+2*3+3 || used.Writes < 100/5 || used.Reads > 10 {
			t.Errorf("100 s of reading: %+v", used)
		}
	})
}
