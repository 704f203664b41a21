package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// What each step reads and writes, as Firestore bills it. docs gives the prices.
func TestWhatAScanReadsAndWrites(t *testing.T) {
	meter := ledger.NewMeter(storetest.NewMemory())
	l := ledger.New(meter, "p", ledger.Options{})
	spent := func(doing string, want ledger.Usage, run func() error) {
		t.Helper()
		before := meter.Usage()
		if err := run(); err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
		if got := meter.Usage().Minus(before); got != want {
			t.Errorf("%s: %+v, want %+v", doing, got, want)
		}
	}
	var scan *ledger.Scan
	spent("begin", ledger.Usage{Reads: 1, Writes: 1, Calls: 2}, func() error {
		_, err := l.Begin(t.Context(), "s", "archive", nil)
		return err
	})
	spent("plan 40 splits", ledger.Usage{Reads: 2, Writes: 41, Calls: 4}, func() (err error) {
		scan, err = l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(40, 10)})
		return err
	})
	spent("a redelivered request", ledger.Usage{Reads: 41, Calls: 2}, func() error {
		if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
			return err
		}
		_, err := l.Unfinished(t.Context(), scan)
		return err
	})
	var lease *ledger.Lease
	spent("acquire", ledger.Usage{Reads: 1, Writes: 1, Calls: 2}, func() (err error) {
		lease, err = l.Acquire(t.Context(), task(scan, 0), "w")
		return err
	})
	spent("find it held", ledger.Usage{Reads: 1, Calls: 1}, func() error {
		var held *ledger.HeldError
		if err := acquireErr(t, l, task(scan, 0)); !errors.As(err, &held) {
			return fmt.Errorf("%v, want held", err)
		}
		return nil
	})
	spent("commit", ledger.Usage{Writes: 1, Calls: 1}, func() error { return lease.Commit(t.Context(), at(row(1), 2)) })
	spent("release", ledger.Usage{Writes: 1, Calls: 1}, func() error { return lease.Release(t.Context(), at(row(2), 3), ledger.Cause{}) })
	for i := range 38 {
		spent("a whole split", ledger.Usage{Reads: 2, Writes: 3, Calls: 4}, func() error {
			finish(t, l, task(scan, i), 10)
			return nil
		})
	}
	spent("the split that fills the first of two tallies", ledger.Usage{Reads: 3, Writes: 4, Calls: 5}, func() error {
		finish(t, l, task(scan, 38), 10)
		return nil
	})
	spent("the last split", ledger.Usage{Reads: 4, Writes: 5, Calls: 6}, func() error {
		finish(t, l, task(scan, 39), 10)
		return nil
	})
	spent("publish", ledger.Usage{Reads: 1, Writes: 1, Calls: 2}, func() error { return l.MarkPublished(t.Context(), "s") })
	spent("a list of nothing", ledger.Usage{Reads: 1, Calls: 1}, func() error {
		_, err := ledger.New(meter, "another", ledger.Options{}).Scans(t.Context())
		return err
	})
}
