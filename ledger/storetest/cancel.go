package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// A scan is cancelled while workers read it: whatever they were about to do, afterwards
// the scan has failed, no split can be leased, and the counts are those of the splits.
func cancelledScan(t *testing.T, f *fixture) {
	for _, limit := range []int64{0, 100} {
		l := ledger.New(f, f.pipeline, ledger.Options{})
		id := fmt.Sprintf("limit-%d", limit)
		scan := f.planned(t, l, id, 8, limit)
		held, err := l.Acquire(t.Context(), ledger.Task{Scan: id, Attempt: scan.Attempt, Index: 0}, "holder")
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Commit(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: 3}}); err != nil {
			t.Fatal(err)
		}
		var workers sync.WaitGroup
		for i := 1; i < 8; i++ {
			workers.Go(func() {
				lease, err := l.Acquire(t.Context(), ledger.Task{Scan: id, Attempt: scan.Attempt, Index: i}, ledger.Holder(fmt.Sprint("worker-", i)))
				if err == nil {
					_, err = lease.Finish(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: 1}})
				}
				if err != nil && !errors.Is(err, ledger.ErrFinished) && !errors.Is(err, ledger.ErrWaiting) {
					t.Errorf("split %d: %v", i, err)
				}
			})
		}
		got, err := l.Cancel(t.Context(), id)
		workers.Wait()
		if err != nil || got.State != ledger.ScanFailed || got.Error != ledger.Cancelled {
			t.Fatalf("%+v, %v, want a scan that has failed because it was cancelled", got, err)
		}
		if err := held.Commit(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: 5}}); !errors.Is(err, ledger.ErrFinished) {
			t.Errorf("its holder commits: %v, want %v", err, ledger.ErrFinished)
		}
		if again, err := l.Cancel(t.Context(), id); err != nil || again.Counts != got.Counts || !again.FinishedAt.Equal(got.FinishedAt) {
			t.Errorf("cancelled again: %+v, %v, want %+v", again, err, got)
		}
		assertCancelled(t, l, id)
	}
}

func assertCancelled(t *testing.T, l *ledger.Ledger, id string) {
	t.Helper()
	scan, err := l.Scan(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	failed := 0
	if err := l.Splits(t.Context(), scan, func(s *ledger.Split) error {
		rows += s.Rows
		if s.State == ledger.SplitFailed && s.LastError == ledger.Cancelled {
			failed++
		} else if s.State != ledger.SplitDone {
			t.Errorf("split %d is %s", s.Index, s.State)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if rows != scan.Rows || failed != scan.Failed || failed == 0 || rows < 3 || scan.State != ledger.ScanFailed {
		t.Errorf("the scan is %s with %d rows and %d failed splits; its splits have %d and %d", scan.State, scan.Rows, scan.Failed, rows, failed)
	}
	if next, err := l.FollowUp(t.Context(), ledger.Task{Scan: id, Attempt: scan.Attempt, Index: 0}); err != nil || next.Scan == nil || next.Next != nil {
		t.Errorf("what follows is %+v, %v, want the scan's completion event", next, err)
	}
	if tasks, err := l.Unfinished(t.Context(), scan); err != nil || len(tasks) > 0 {
		t.Errorf("tasks %v, %v, want none", tasks, err)
	}
}
