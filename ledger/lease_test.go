package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// bubble runs a test with a ledger of its own on a simulated clock.
func bubble(t *testing.T, test func(t *testing.T, l *ledger.Ledger)) {
	synctest.Test(t, func(t *testing.T) { test(t, ledger.New(storetest.NewMemory(), "p", ledger.Options{})) })
}

// held expects the split to be held for left more.
func held(t *testing.T, l *ledger.Ledger, task ledger.Task, left time.Duration) {
	t.Helper()
	_, err := l.Acquire(t.Context(), task, "another")
	var e *ledger.HeldError
	if !errors.As(err, &e) || e.Left != left || e.Task != task {
		t.Fatalf("acquiring a split that is held: %v, want held for %v", err, left)
	}
}

func at(position string, rows int64) ledger.Progress {
	return ledger.Progress{Position: position, Counts: ledger.Counts{Rows: rows}}
}

func TestACommitRenewsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		first := task(planned(t, l, 2, 0), 0)
		lease := acquire(t, l, first)
		held(t, l, first, ledger.LeaseTime)
		time.Sleep(ledger.LeaseTime - time.Second)
		held(t, l, first, time.Second)
		if err := lease.Commit(t.Context(), at(row(3), 4)); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(lease.Deadline()); got != ledger.LeaseTime {
			t.Errorf("the deadline is in %v, want %v", got, ledger.LeaseTime)
		}
		held(t, l, first, ledger.LeaseTime)
		time.Sleep(ledger.LeaseTime)
		if got := acquire(t, l, first); got.Fence() != 2 || got.Split().Position != row(3) {
			t.Errorf("taken under fence %d at %q, want 2 at %q", got.Fence(), got.Split().Position, row(3))
		}
	})
}

// covers: SC-23
func TestAReleasedSplitIsTakenAtOnceWhereItStands(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		first := task(planned(t, l, 2, 0), 0)
		lease := acquire(t, l, first)
		if err := lease.Release(t.Context(), at(row(3), 4), ledger.Cause{Err: errors.New("the sink is full")}); err != nil {
			t.Fatal(err)
		}
		if err := lease.Commit(t.Context(), at(row(4), 5)); err == nil {
			t.Error("a commit under a lease that was given back succeeded")
		}
		got := acquire(t, l, first).Split()
		if got.Position != row(3) || got.Rows != 4 || got.LastError != "the sink is full" || got.Holder != "worker" {
			t.Errorf("taken at %q after %d rows with error %q by %q", got.Position, got.Rows, got.LastError, got.Holder)
		}
	})
}

func TestAPausedHolderThatWasOvertakenCannotCommit(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		first := task(planned(t, l, 2, 0), 0)
		paused := acquire(t, l, first)
		time.Sleep(ledger.LeaseTime)
		lively := acquire(t, l, first)
		if err := lively.Commit(t.Context(), at(row(1), 2)); err != nil {
			t.Fatal(err)
		}
		for name, try := range map[string]func() error{
			"commit":  func() error { return paused.Commit(t.Context(), at(row(5), 6)) },
			"release": func() error { return paused.Release(t.Context(), at(row(5), 6), ledger.Cause{}) },
			"finish":  func() error { _, err := paused.Finish(t.Context(), at(row(5), 6)); return err },
			"fail":    func() error { _, err := paused.Fail(t.Context(), at(row(5), 6), errors.New("x")); return err },
		} {
			if err := try(); !errors.Is(err, ledger.ErrLost) {
				t.Errorf("%s: %v, want %v", name, err, ledger.ErrLost)
			}
		}
		if _, err := lively.Finish(t.Context(), at(row(9), 10)); err != nil {
			t.Fatal(err)
		}
		if err := acquireErr(t, l, first); !errors.Is(err, ledger.ErrFinished) {
			t.Errorf("acquiring a finished split: %v, want %v", err, ledger.ErrFinished)
		}
		if got := split(t, l, fetched(t, l), 0); got.Rows != 10 || got.State != ledger.SplitDone {
			t.Errorf("the split is %s with %d rows, want done with the 10 of its holder", got.State, got.Rows)
		}
	})
}

func acquireErr(t *testing.T, l *ledger.Ledger, task ledger.Task) error {
	_, err := l.Acquire(t.Context(), task, "worker")
	return err
}

func TestAnExpiredLeaseThatNobodyTookStillCommits(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		first := task(planned(t, l, 2, 0), 0)
		lease := acquire(t, l, first)
		time.Sleep(10 * ledger.LeaseTime) // one batch in a slow sink
		if err := lease.Commit(t.Context(), at(row(3), 4)); err != nil {
			t.Fatalf("nobody has taken the split: %v", err)
		}
		held(t, l, first, ledger.LeaseTime)
	})
}

func TestProgressIsSinceTheLeaseWasAcquired(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		first := task(planned(t, l, 2, 0), 0)
		lease := acquire(t, l, first)
		for _, p := range []ledger.Progress{at(row(1), 2), at(row(1), 2), at("", 2), at(row(3), 4)} {
			if err := lease.Commit(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if err := lease.Commit(t.Context(), at(row(2), 3)); err == nil {
			t.Error("the position moved backwards")
		}
		if err := lease.Release(t.Context(), at(row(3), 4), ledger.Cause{}); err != nil {
			t.Fatal(err)
		}
		if _, err := acquire(t, l, first).Finish(t.Context(), at(row(9), 6)); err != nil {
			t.Fatal(err)
		}
		if got := split(t, l, fetched(t, l), 0); got.Rows != 10 || got.Position != row(9) {
			t.Errorf("%d rows up to %q, want 4 + 6 up to %q", got.Rows, got.Position, row(9))
		}
	})
}

// covers: SC-05, SC-08
func TestRemainingIsWhatLiesPastTheLastAcknowledgedRow(t *testing.T) {
	split := ledger.Split{Ranges: []rowrange.Range{rowrange.Prefix("a"), rowrange.Closed("b1"), {Start: "c", End: "c9"}}}
	for position, want := range map[string][]rowrange.Range{
		"":         split.Ranges,
		"a\xff":    {{Start: "a\xff", StartOpen: true, End: "b"}, rowrange.Closed("b1"), {Start: "c", End: "c9"}},
		"b":        {rowrange.Closed("b1"), {Start: "c", End: "c9"}},
		"b1":       {{Start: "c", End: "c9"}},
		"c5":       {{Start: "c5", StartOpen: true, End: "c9"}},
		"c8\xff":   {{Start: "c8\xff", StartOpen: true, End: "c9"}},
		"c9":       nil,
		"c9\x00zz": nil,
	} {
		split.Position = position
		if got := split.Remaining(); !slices.Equal(got, want) {
			t.Errorf("after %q: %v, want %v", position, got, want)
		}
	}
}

func TestASplitGivenBackTwentyTimesOnAVerdictFails(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 2, 0)
		first := task(scan, 0)
		if err := acquire(t, l, first).Release(t.Context(), at(row(0), 1), verdict(0)); err != nil {
			t.Fatal(err)
		}
		for i := range ledger.MaxFruitless {
			if err := acquire(t, l, first).Release(t.Context(), at("", 0), verdict(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := acquireErr(t, l, first); !errors.Is(err, ledger.ErrFinished) {
			t.Fatalf("acquiring once more: %v, want %v", err, ledger.ErrFinished)
		}
		want := "leased 20 times without progress, last error: refused, time 19"
		if got := split(t, l, scan, 0); got.State != ledger.SplitFailed || got.LastError != want || got.Rows != 1 {
			t.Errorf("the split is %s with %d rows and %q, want failed with 1 and %q", got.State, got.Rows, got.LastError, want)
		}
		if next := finish(t, l, task(scan, 1), 10); next.Scan == nil {
			t.Fatal("the scan is not complete")
		}
		got := fetched(t, l)
		if got.State != ledger.ScanFailed || got.Failed != 1 || got.Rows != 11 || got.Error != "1 of 2 splits failed, the first of them split 0: "+want {
			t.Errorf("the scan is %s with %d failed, %d rows, %q", got.State, got.Failed, got.Rows, got.Error)
		}
	})
}

func verdict(i int) ledger.Cause {
	return ledger.Cause{Err: fmt.Errorf("refused, time %d", i), Fruitless: true}
}

func TestProgressEndsTheCountOfFruitlessLeases(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		first := task(planned(t, l, 2, 0), 0)
		for i := range 3 * ledger.MaxFruitless {
			p := ledger.Progress{}
			if i%ledger.MaxFruitless == ledger.MaxFruitless-1 {
				p.Position = row(i)
			}
			if err := acquire(t, l, first).Release(t.Context(), p, verdict(i)); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, l, first)
	})
}

func TestWhatPassesByItselfNeverFailsASplit(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 1, 0)
		first := task(scan, 0)
		for i := range 5 * ledger.MaxFruitless {
			lease := acquire(t, l, first)
			if i%2 == 0 {
				time.Sleep(ledger.LeaseTime) // its holder died
				continue
			}
			if err := lease.Release(t.Context(), ledger.Progress{}, ledger.Cause{Err: errors.New("no answer")}); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, l, first)
		if got := split(t, l, scan, 0); got.State != ledger.SplitOpen || got.Fruitless != 0 || got.Deaths != ledger.ManyDeaths {
			t.Errorf("the split is %s, %d fruitless, %d deaths", got.State, got.Fruitless, got.Deaths)
		}
	})
}

// Deaths say how small the steps should be. Whoever kills a holder before it has begun
// says nothing about the rows; several deaths while they arrive do.
func TestDeathsAtOnePositionAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 1, 0)
		first := task(scan, 0)
		die := func(trying bool) {
			t.Helper()
			lease := acquire(t, l, first)
			if trying {
				if err := lease.Try(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(ledger.LeaseTime)
		}
		deaths := func(want int) {
			t.Helper()
			lease := acquire(t, l, first)
			if got := lease.Split().Deaths; got != want {
				t.Fatalf("%d deaths, want %d", got, want)
			}
			if err := lease.Release(t.Context(), ledger.Progress{}, ledger.Cause{}); err != nil {
				t.Fatal(err)
			}
		}
		die(false)
		deaths(1)
		for range 10 {
			die(false)
		}
		deaths(ledger.ManyDeaths)
		die(true)
		die(false)
		die(true)
		deaths(ledger.ManyDeaths + 2)
		if err := acquire(t, l, first).Release(t.Context(), at(row(1), 1), ledger.Cause{}); err != nil {
			t.Fatal(err)
		}
		deaths(0)
		if err := l.Break(t.Context(), first, acquire(t, l, first).Fence()); err != nil {
			t.Fatal(err)
		}
		deaths(1)
	})
}

func TestAFailedSplitFailsTheScanOnceTheOthersHaveFinished(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 3, 0)
		next, err := acquire(t, l, task(scan, 2)).Fail(t.Context(), at(row(21), 2), errors.New("no such family"))
		if err != nil || next.Scan != nil {
			t.Fatalf("completed: %v, %v, want not yet", next.Scan, err)
		}
		finish(t, l, task(scan, 0), 10)
		if got := fetched(t, l); got.State != ledger.ScanRunning {
			t.Fatalf("the scan is %s, want running", got.State)
		}
		next = finish(t, l, task(scan, 1), 10)
		if next.Scan == nil || next.Scan.State != ledger.ScanFailed || next.Scan.Rows != 22 ||
			next.Scan.Error != "1 of 3 splits failed, the first of them split 2: no such family" {
			t.Errorf("completed: %+v", next.Scan)
		}
	})
}

func TestAFailedSplitOfALimitedScanFailsItAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 3, 100)
		if next := finish(t, l, task(scan, 0), 10); next.Next == nil || *next.Next != task(scan, 1) {
			t.Fatalf("next: %v, want the second split", next.Next)
		}
		next, err := acquire(t, l, task(scan, 1)).Fail(t.Context(), at(row(11), 2), errors.New("no such family"))
		if err != nil || next.Scan == nil || next.Scan.State != ledger.ScanFailed || next.Scan.Rows != 12 {
			t.Errorf("completed: %+v, %v, want failed with 12 rows", next.Scan, err)
		}
	})
}

// covers: SC-21
func TestALimitedScanEndsWithItsLastSplitToo(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 2, 100)
		finish(t, l, task(scan, 0), 10)
		if next := finish(t, l, task(scan, 1), 10); next.Scan == nil || next.Scan.State != ledger.ScanDone || next.Scan.Rows != 20 {
			t.Errorf("completed: %+v, want done with 20 rows", next.Scan)
		}
	})
}

func TestCompletionIsToldAgainUntilItIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 2, 0)
		finish(t, l, task(scan, 0), 10)
		if next, err := l.FollowUp(t.Context(), task(scan, 0)); err != nil || next != (ledger.FollowUp{}) {
			t.Fatalf("after one of two splits: %+v, %v, want nothing due", next, err)
		}
		if err := l.MarkPublished(t.Context(), "s"); err == nil {
			t.Error("the completion of a running scan was published")
		}
		finish(t, l, task(scan, 1), 10)
		for i := range 2 { // whichever split's task comes again
			if next, err := l.FollowUp(t.Context(), task(scan, i)); err != nil || next.Scan == nil || next.Scan.Rows != 20 {
				t.Fatalf("after split %d: %+v, %v, want the finished scan", i, next, err)
			}
		}
		for range 2 {
			if err := l.MarkPublished(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
		}
		if next, err := l.FollowUp(t.Context(), task(scan, 1)); err != nil || next != (ledger.FollowUp{}) {
			t.Errorf("after publishing: %+v, %v, want nothing due", next, err)
		}
	})
}

func TestAHolderNeedsANameAndASplitToHold(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 1, 0)
		if _, err := l.Acquire(t.Context(), task(scan, 0), ""); err == nil {
			t.Error("nobody holds the split")
		}
		if err := acquireErr(t, l, task(scan, 1)); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("a split that was not planned: %v, want %v", err, ledger.ErrNotFound)
		}
	})
}

func ExampleHeldError() {
	err := &ledger.HeldError{Task: ledger.Task{Scan: "daily", Index: 3}, Left: 42 * time.Second}
	fmt.Println(err)
	// Output: split 3 of scan "daily" is held by another worker for up to 42s
}
