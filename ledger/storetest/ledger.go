package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// runLedger proves what a ledger promises where the store has a say in it.
func runLedger(t *testing.T, open func(t *testing.T) ledger.Store) {
	for name, test := range map[string]func(*testing.T, *fixture){
		"of many contenders one gets the lease":               contenders,
		"a lease ends by the store's clock":                   overtaken,
		"a broken lease is anyone's, but not its holder's":    broken,
		"of breakers and holder at once none loses a row":     breakers,
		"a break whose reply is lost happens once":            lostBreak,
		"of two planners at once one plan is selected":        planners,
		"workers at once finish a scan":                       finishers,
		"a lost reply anywhere changes nothing":               lostReplies,
		"a plan larger than a request comes back":             largePlan,
		"pipelines that share a store do not meet":            twoPipelines,
		"a scan with a limit hands it on from split to split": limited,
		"a cancelled scan ends whatever its workers do":       cancelledScan,
		"splits that nobody writes are found, once in a time": lapsedSplits,
		"a lease needs no position":                           leasedDocument,
		"only its holder moves a lease's clock":               holdersClock,
		"a document is deleted once, whatever reply is lost":  lostDelete,
		"a permanent document outlives the retention":         permanentDocument,
		"a partition splits, merges and moves":                closes,
		"a holder of an earlier incarnation changes nothing":  pausedHolder,
		"of parents that close at once the last opens":        merging,
		"a partition closes into hundreds":                    manySuccessors,
		"a lost reply to a close loses no key":                lostClose,
		"a recovery is void when a parent has closed":         recoveries,
		"a refreshed position is nobody else's":               refreshed,
		"what is leased is watched":                           watched,
		"a completed range is not missing":                    completedRange,
		"of two that close at once the holder is believed":    racingCloses,
		"bounds shift over three partitions":                  shifted,
		"a partition that is lost is opened once":             lostPartition,
		"a first tick may die anywhere":                       killedInit,
		"an expired position is restarted":                    restarted,
		"after a restore all from before it lose":             restored,
		"an epoch begins whatever reply is lost":              lostEpoch,
		"a restore over a ledger in use is refused":           restoredOver,
	} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, open)) })
	}
}

// planned begins scan id and plans it with n splits of one row each, k00000 and on.
func (f *fixture) planned(t *testing.T, l *ledger.Ledger, id string, n int, limit int64) *ledger.Scan {
	t.Helper()
	if _, err := l.Begin(t.Context(), id, "s", nil); err != nil {
		t.Fatal(err)
	}
	scan, err := l.Plan(t.Context(), id, ledger.Draft{Splits: pieces(n), Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	if scan.State != ledger.ScanRunning || scan.Splits != n {
		t.Fatalf("planned scan is %s with %d splits, want running with %d", scan.State, scan.Splits, n)
	}
	return scan
}

func pieces(n int) [][]rowrange.Range {
	splits := make([][]rowrange.Range, n)
	for i := range splits {
		splits[i] = []rowrange.Range{rowrange.Closed(row(i))}
	}
	return splits
}

func row(i int) string { return fmt.Sprintf("k%05d", i) }

// one is the progress of a split of one row, read whole.
func one(task ledger.Task) ledger.Progress {
	return ledger.Progress{Position: row(task.Index), Counts: ledger.Counts{Rows: 1, Records: 2}}
}

func contenders(t *testing.T, f *fixture) {
	const n = 12
	scan := f.planned(t, ledger.New(f, f.pipeline, ledger.Options{}), "s", 1, 0)
	task := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt}
	var won atomic.Int32
	f.together(t, n, func(i int, store ledger.Store) error {
		lease, err := ledger.New(store, f.pipeline, ledger.Options{}).Acquire(t.Context(), task, ledger.Holder(fmt.Sprint(i)))
		var held *ledger.HeldError
		switch {
		case errors.As(err, &held) && held.Left > 0 && held.Left <= ledger.LeaseTime:
			return nil
		case err != nil:
			return err
		case lease.Fence() != 1:
			return fmt.Errorf("fence %d, want 1", lease.Fence())
		}
		won.Add(1)
		return lease.Commit(t.Context(), one(task))
	})
	if won.Load() != 1 {
		t.Errorf("%d of %d contenders got the lease, want one", won.Load(), n)
	}
}

// await returns when the store's clock has passed what it showed at the start by d.
func (f *fixture) await(t *testing.T, d time.Duration) {
	t.Helper()
	key := f.key("clock", "none")
	for start := f.get(t, key).ReadAt; f.get(t, key).ReadAt.Sub(start) <= d; {
	}
}

func overtaken(t *testing.T, f *fixture) {
	const lease = 50 * time.Millisecond
	first := ledger.New(f, f.pipeline, ledger.Options{Lease: lease})
	second := ledger.New(f.open(), f.pipeline, ledger.Options{Lease: lease})
	scan := f.planned(t, first, "s", 1, 0)
	task := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt}
	paused, err := first.Acquire(t.Context(), task, "paused")
	if err != nil {
		t.Fatal(err)
	}
	f.await(t, lease)
	lively, err := second.Acquire(t.Context(), task, "lively")
	if err != nil {
		t.Fatalf("the lease is over by the store's clock: %v", err)
	}
	if lively.Fence() != paused.Fence()+1 {
		t.Errorf("fence %d after %d, want it one higher", lively.Fence(), paused.Fence())
	}
	if err := paused.Commit(t.Context(), one(task)); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("commit of the overtaken holder: %v, want %v", err, ledger.ErrLost)
	}
	if _, err := paused.Finish(t.Context(), one(task)); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("finish of the overtaken holder: %v, want %v", err, ledger.ErrLost)
	}
	if _, err := lively.Finish(t.Context(), one(task)); err != nil {
		t.Errorf("finish of the holder: %v", err)
	}
}

func broken(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	scan := f.planned(t, l, "s", 2, 0)
	task := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt}
	dead, err := l.Acquire(t.Context(), task, "dead")
	if err != nil {
		t.Fatal(err)
	}
	breakLease := func(fence int64) {
		t.Helper()
		if err := ledger.New(f.open(), f.pipeline, ledger.Options{}).Break(t.Context(), task, fence); err != nil {
			t.Fatal(err)
		}
	}
	var held *ledger.HeldError
	breakLease(dead.Fence() - 1) // as of a holder before this one: not meant
	if _, err := l.Acquire(t.Context(), task, "other"); !errors.As(err, &held) {
		t.Fatalf("after a break under another fence: %v, want it held", err)
	}
	breakLease(dead.Fence())
	if err := dead.Commit(t.Context(), one(task)); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("commit under a lease that was broken, nobody holding the split: %v, want %v", err, ledger.ErrLost)
	}
	lively, err := l.Acquire(t.Context(), task, "lively")
	if err != nil {
		t.Fatalf("the lease was broken: %v", err)
	}
	breakLease(dead.Fence()) // told again, too late
	if err := lively.Commit(t.Context(), one(task)); err != nil {
		t.Errorf("commit of the new holder: %v", err)
	}
	if _, err := lively.Finish(t.Context(), one(task)); err != nil {
		t.Fatal(err)
	}
	breakLease(lively.Fence())
	if split := f.split(t, l, scan, 0); split.State != ledger.SplitDone || split.Fence != lively.Fence() || split.Rows != 1 {
		t.Errorf("a finished split is %s under fence %d with %d rows after a break", split.State, split.Fence, split.Rows)
	}
	if err := l.Break(t.Context(), ledger.Task{Scan: "gone"}, 1); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("breaking a lease of no split: %v, want %v", err, ledger.ErrNotFound)
	}
}

// split returns a split as a list shows it.
func (f *fixture) split(t *testing.T, l *ledger.Ledger, scan *ledger.Scan, index int) (found *ledger.Split) {
	t.Helper()
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

// breakers break one lease all at once while its holder, which is not dead, commits. All that
// it was told to have committed is there for the next holder of the split.
func breakers(t *testing.T, f *fixture) {
	scan := f.planned(t, ledger.New(f, f.pipeline, ledger.Options{}), "s", 1, 0)
	task := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt}
	holder, err := ledger.New(f, f.pipeline, ledger.Options{}).Acquire(t.Context(), task, "holder")
	if err != nil {
		t.Fatal(err)
	}
	committed := int64(0)
	f.together(t, 5, func(i int, store ledger.Store) error {
		if i > 0 {
			return ledger.New(store, f.pipeline, ledger.Options{}).Break(t.Context(), task, holder.Fence())
		}
		for {
			p := ledger.Progress{Position: row(int(committed)), Counts: ledger.Counts{Rows: committed + 1}}
			switch err := holder.Commit(t.Context(), p); {
			case errors.Is(err, ledger.ErrLost):
				return nil
			case err != nil:
				return err
			}
			committed++
		}
	})
	next, err := ledger.New(f, f.pipeline, ledger.Options{}).Acquire(t.Context(), task, "next")
	if err != nil {
		t.Fatal(err)
	}
	if next.Fence() != holder.Fence()+2 || next.Split().Rows != committed {
		t.Errorf("taken under fence %d with %d rows, want %d (one break, one lease) with the %d committed",
			next.Fence(), next.Split().Rows, holder.Fence()+2, committed)
	}
}

func lostBreak(t *testing.T, f *fixture) {
	for _, fault := range []Fault{FaultLost, FaultReplyLost, FaultRepeated} {
		l := ledger.New(f, f.pipeline, ledger.Options{})
		scan := f.planned(t, l, fmt.Sprint("s", fault), 1, 0)
		task := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt}
		lease, err := l.Acquire(t.Context(), task, "dead")
		if err != nil {
			t.Fatal(err)
		}
		befallen := false
		faulty := &Faulty{Store: f.Store, Next: func(commit bool) Fault {
			if !commit || befallen {
				return FaultNone
			}
			befallen = true
			return fault
		}}
		if err := ledger.New(faulty, f.pipeline, ledger.Options{}).Break(t.Context(), task, lease.Fence()); err != nil || !befallen {
			t.Fatalf("break with fault %d (befallen: %t): %v", fault, befallen, err)
		}
		if split := f.split(t, l, scan, 0); split.Holder != "" || split.Fence != lease.Fence()+1 {
			t.Errorf("after fault %d %q holds the split under fence %d, want nobody under %d", fault, split.Holder, split.Fence, lease.Fence()+1)
		}
	}
}

func planners(t *testing.T, f *fixture) {
	if _, err := ledger.New(f, f.pipeline, ledger.Options{}).Begin(t.Context(), "s", "s", nil); err != nil {
		t.Fatal(err)
	}
	const n = 4
	var attempts [n]string
	f.together(t, n, func(i int, store ledger.Store) error {
		l := ledger.New(store, f.pipeline, ledger.Options{})
		if _, err := l.Begin(t.Context(), "s", "s", nil); err != nil {
			return err
		}
		scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(3 + i)})
		if err != nil {
			return err
		}
		attempts[i] = scan.Attempt
		tasks, err := l.Unfinished(t.Context(), scan)
		if err == nil && len(tasks) != scan.Splits {
			err = fmt.Errorf("%d tasks of a plan of %d splits", len(tasks), scan.Splits)
		}
		return err
	})
	for i := range attempts {
		if attempts[i] == "" || attempts[i] != attempts[0] {
			t.Fatalf("planners were given the plans %q, want one", attempts)
		}
	}
}

func finishers(t *testing.T, f *fixture) {
	const splits, workers = 70, 4
	l := ledger.New(f, f.pipeline, ledger.Options{})
	scan := f.planned(t, l, "s", splits, 0)
	var completed atomic.Int32
	f.together(t, workers, func(worker int, store ledger.Store) error {
		l := ledger.New(store, f.pipeline, ledger.Options{})
		for i := worker; i < splits; i += workers {
			task := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt, Index: i}
			lease, err := l.Acquire(t.Context(), task, ledger.Holder(fmt.Sprint(worker)))
			if err != nil {
				return err
			}
			next, err := lease.Finish(t.Context(), one(task))
			if err != nil {
				return err
			}
			if next.Scan != nil {
				completed.Add(1)
			}
		}
		return nil
	})
	if completed.Load() != 1 {
		t.Errorf("%d workers were told that the scan is complete, want one", completed.Load())
	}
	assertDone(t, l, scan.ID, splits)
}

// assertDone expects scan id to be done with n splits of one row each.
func assertDone(t *testing.T, l *ledger.Ledger, id string, n int) {
	t.Helper()
	scan, err := l.Scan(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := ledger.Counts{Rows: int64(n), Records: int64(2 * n)}
	if scan.State != ledger.ScanDone || scan.Counts != want || scan.FinishedAt.Before(scan.PlannedAt) {
		t.Fatalf("scan is %s with %+v, planned at %v, finished at %v, want done with %+v", scan.State, scan.Counts, scan.PlannedAt, scan.FinishedAt, want)
	}
	if tasks, err := l.Unfinished(t.Context(), scan); err != nil || len(tasks) != 0 {
		t.Fatalf("%d tasks unfinished, %v, want none", len(tasks), err)
	}
}

// lostReplies runs a small scan again and again, each time with the next call, or
// the next commit, ending in another way.
func lostReplies(t *testing.T, f *fixture) {
	for _, fault := range []Fault{FaultLost, FaultReplyLost, FaultRepeated} {
		for at := 0; ; at++ {
			calls := 0
			faulty := &Faulty{Store: f.Store, Next: func(commit bool) Fault {
				if !commit && fault != FaultLost {
					return FaultNone
				}
				if calls++; calls-1 == at {
					return fault
				}
				return FaultNone
			}}
			id := fmt.Sprintf("%d-%d", fault, at)
			runOnce(t, f, faulty, id)
			if calls <= at {
				break
			}
		}
	}
}

// runOnce runs a scan of two splits through faulty. Reads that fail are repeated,
// as a redelivery would; commits must settle themselves.
func runOnce(t *testing.T, f *fixture, faulty *Faulty, id string) {
	t.Helper()
	l := ledger.New(faulty, f.pipeline, ledger.Options{})
	must := func(doing string, run func() error) {
		t.Helper()
		err := run()
		if errors.Is(err, ledger.ErrUnavailable) {
			err = run()
		}
		if err != nil {
			t.Fatalf("%s, scan %s: %v", doing, id, err)
		}
	}
	must("begin", func() error {
		_, err := l.Begin(t.Context(), id, "s", nil)
		return err
	})
	var scan *ledger.Scan
	must("plan", func() (err error) {
		scan, err = l.Plan(t.Context(), id, ledger.Draft{Splits: pieces(2)})
		return err
	})
	completed := 0
	for i := range 2 {
		task := ledger.Task{Scan: id, Attempt: scan.Attempt, Index: i}
		var lease *ledger.Lease
		must("acquire", func() (err error) {
			lease, err = l.Acquire(t.Context(), task, "w")
			return err
		})
		must("commit", func() error {
			return lease.Commit(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: 1}})
		})
		must("finish", func() error {
			next, err := lease.Finish(t.Context(), one(task))
			if next.Scan != nil {
				completed++
			}
			return err
		})
		if split := lease.Split(); split.Fence != 1 || split.State != ledger.SplitDone {
			t.Fatalf("scan %s: split %d is %s under fence %d, want done under 1", id, i, split.State, split.Fence)
		}
	}
	if completed != 1 {
		t.Fatalf("scan %s: completion was told %d times, want once", id, completed)
	}
	assertDone(t, ledger.New(f, f.pipeline, ledger.Options{}), id, 2)
}

// largePlan is over what one request may hold, in bytes and in writes.
func largePlan(t *testing.T, f *fixture) {
	n := 1000
	if os.Getenv("BTF_SOAK") != "" {
		n = 10_000
	}
	l := ledger.New(f, f.pipeline, ledger.Options{})
	if _, err := l.Begin(t.Context(), "s", "s", bytes.Repeat([]byte("1"), 1000)); err != nil {
		t.Fatal(err)
	}
	want := make([][]rowrange.Range, n)
	key := func(i int) string { return fmt.Sprintf("%05d", i) + strings.Repeat("\x00\xff\x80*", 1022) }
	for i := range want {
		want[i] = []rowrange.Range{{Start: key(i), End: key(i + 1), StartOpen: i%2 == 0, EndClosed: i%3 == 0}}
	}
	scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: want})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = l.Splits(t.Context(), scan, func(s *ledger.Split) error {
		seen++
		if rest := s.Remaining(); len(rest) != 1 || rest[0] != want[s.Index][0] || s.Of != n || s.State != ledger.SplitOpen {
			return fmt.Errorf("split %d of %d came back different, %s", s.Index, s.Of, s.State)
		}
		return nil
	})
	if err != nil || seen != n {
		t.Fatalf("%d splits came back, %v, want %d", seen, err, n)
	}
}

func twoPipelines(t *testing.T, f *fixture) {
	a := ledger.New(f, f.pipeline+"a", ledger.Options{})
	b := ledger.New(f, f.pipeline+"b", ledger.Options{})
	f.planned(t, a, "s", 2, 0)
	if _, err := b.Scan(t.Context(), "s"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the other pipeline's scan: %v, want %v", err, ledger.ErrNotFound)
	}
	for l, want := range map[*ledger.Ledger]int{a: 1, b: 0} {
		if scans, err := l.Scans(t.Context()); err != nil || len(scans) != want {
			t.Errorf("%d scans, %v, want %d", len(scans), err, want)
		}
	}
}

func limited(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	scan := f.planned(t, l, "s", 4, 3)
	second := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt, Index: 1}
	if _, err := l.Acquire(t.Context(), second, "w"); !errors.Is(err, ledger.ErrWaiting) {
		t.Fatalf("acquiring the second split first: %v, want %v", err, ledger.ErrWaiting)
	}
	for i := 0; ; i++ {
		tasks, err := l.Unfinished(t.Context(), scan)
		if err != nil || len(tasks) != 1 || tasks[0].Index != i {
			t.Fatalf("tasks %v, %v, want split %d alone", tasks, err, i)
		}
		lease, err := l.Acquire(t.Context(), tasks[0], "w")
		if err != nil {
			t.Fatal(err)
		}
		if left, some := lease.Split().LimitLeft(); left != int64(3-i) || !some {
			t.Fatalf("split %d may deliver %d rows (limited: %t), want %d", i, left, some, 3-i)
		}
		next, err := lease.Finish(t.Context(), one(tasks[0]))
		if err != nil {
			t.Fatal(err)
		}
		again, err := l.FollowUp(t.Context(), tasks[0])
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if next.Scan == nil || again.Scan == nil {
				t.Fatal("the limit is reached, but the scan is not complete")
			}
			break
		}
		if next.Next == nil || next.Next.Index != i+1 || again.Next == nil || *again.Next != *next.Next {
			t.Fatalf("after split %d: %v, told again: %v, want the next split", i, next.Next, again.Next)
		}
	}
	assertDone(t, l, scan.ID, 3)
}
