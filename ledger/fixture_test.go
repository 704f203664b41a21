package ledger_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// row is a key of the tests' table, in order.
func row(i int) string { return fmt.Sprintf("k%05d", i) }

// pieces cuts the rows from 0 to n*each into n splits.
func pieces(n, each int) [][]rowrange.Range {
	splits := make([][]rowrange.Range, n)
	for i := range splits {
		splits[i] = []rowrange.Range{{Start: row(i * each), End: row((i + 1) * each)}}
	}
	return splits
}

// planned returns the running scan "s" of n splits of 10 rows each.
func planned(t *testing.T, l *ledger.Ledger, n int, limit int64) *ledger.Scan {
	t.Helper()
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(n, 10), Limit: limit, Table: "projects/p/instances/i/tables/t"})
	if err != nil {
		t.Fatal(err)
	}
	return scan
}

func task(scan *ledger.Scan, index int) ledger.Task {
	return ledger.Task{Scan: scan.ID, Attempt: scan.Attempt, Index: index}
}

func acquire(t *testing.T, l *ledger.Ledger, task ledger.Task) *ledger.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), task, "worker")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func finish(t *testing.T, l *ledger.Ledger, task ledger.Task, rows int64) ledger.FollowUp {
	t.Helper()
	next, err := acquire(t, l, task).Finish(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: rows}})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func fetched(t *testing.T, l *ledger.Ledger) *ledger.Scan {
	t.Helper()
	scan, err := l.Scan(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	return scan
}

// split returns one split as a list shows it.
func split(t *testing.T, l *ledger.Ledger, scan *ledger.Scan, index int) *ledger.Split {
	t.Helper()
	var found *ledger.Split
	err := l.Splits(t.Context(), scan, func(s *ledger.Split) error {
		if s.Index == index {
			found = s
		}
		return nil
	})
	if err != nil || found == nil {
		t.Fatalf("split %d: %v, %v", index, found, err)
	}
	return found
}

// checkInBubble checks a property on a simulated clock.
func checkInBubble(t *testing.T, property func(*rapid.T)) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, property) // a *testing.T has a deadline, on the real clock
	})
}
