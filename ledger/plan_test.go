package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// faults draws what befalls each call of a process; fewer than one in rarity fails.
func faults(t *rapid.T, rarity int) func(bool) storetest.Fault {
	return func(bool) storetest.Fault {
		if rapid.IntRange(0, rarity).Draw(t, "fault") != rarity {
			return storetest.FaultNone
		}
		return rapid.SampledFrom([]storetest.Fault{
			storetest.FaultLost, storetest.FaultReplyLost, storetest.FaultRepeated, storetest.FaultCrash, storetest.FaultCrashAfter,
		}).Draw(t, "fault")
	}
}

// stopped reports whether err is what a faulty store does, not a verdict.
func stopped(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, storetest.ErrCrash)
}

// A request is delivered until a planner lives through it. Each planner sees
// tablets of its own; of their plans one is selected, whole.
//
// covers: SC-02, SC-07
func TestAPlannerKilledAfterAnyWriteLeavesOnePlan(t *testing.T) {
	checkInBubble(t, func(t *rapid.T) {
		store := storetest.NewMemory()
		selected := ""
		var plans [][][]rowrange.Range
		for life := 0; ; life++ {
			faulty := &storetest.Faulty{Store: store, Next: faults(t, 4)}
			if life == 20 {
				faulty.Next = func(bool) storetest.Fault { return storetest.FaultNone }
			}
			plan := pieces(rapid.SampledFrom([]int{1, 2, 2, 7, 7, 7, ledger.MaxWrites + 3}).Draw(t, "splits"), 1+life)
			plans = append(plans, plan)
			l := ledger.New(faulty, "p", ledger.Options{})
			scan, err := plan1(t.Context(), l, plan)
			if err != nil && !stopped(err) {
				t.Fatal(err)
			}
			if err == nil {
				if selected != "" && scan.Attempt != selected {
					t.Fatalf("the plan %s replaced %s", scan.Attempt, selected)
				}
				selected = scan.Attempt
			}
			if life == 20 || err == nil && rapid.Bool().Draw(t, "no redelivery") {
				break
			}
		}
		assertOnePlan(t, ledger.New(store, "p", ledger.Options{}), plans)
	})
}

// plan1 is what a planner does with a request.
func plan1(ctx context.Context, l *ledger.Ledger, plan [][]rowrange.Range) (*ledger.Scan, error) {
	scan, err := l.Begin(ctx, "s", "archive", nil)
	if err != nil || scan.Attempt != "" {
		return scan, err
	}
	return l.Plan(ctx, "s", ledger.Draft{Splits: plan})
}

func assertOnePlan(t *rapid.T, l *ledger.Ledger, plans [][][]rowrange.Range) {
	scan, err := l.Scan(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := l.Unfinished(t.Context(), scan)
	if err != nil || scan.State != ledger.ScanRunning || len(tasks) != scan.Splits {
		t.Fatalf("%d tasks, %v, of a scan that is %s with %d splits", len(tasks), err, scan.State, scan.Splits)
	}
	found := make([][]rowrange.Range, scan.Splits)
	if err := l.Splits(t.Context(), scan, func(s *ledger.Split) error {
		found[s.Index] = s.Ranges
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(plans, func(plan [][]rowrange.Range) bool { return reflect.DeepEqual(plan, found) }) {
		t.Fatalf("the %d splits selected are no planner's", len(found))
	}
}

// Two planners at once, stepping in any order, call by call.
func TestPlannersThatInterleaveSelectOnePlan(t *testing.T) {
	checkInBubble(t, func(t *rapid.T) {
		store := storetest.NewMemory()
		const n = 3
		var scans [n]*ledger.Scan
		steps := make(chan chan struct{}) // a call asks for its turn
		done := make(chan error)
		for i := range n {
			go func() {
				faulty := &storetest.Faulty{Store: store, Next: func(bool) storetest.Fault {
					turn := make(chan struct{})
					steps <- turn
					<-turn
					return storetest.FaultNone
				}}
				var err error
				scans[i], err = plan1(t.Context(), ledger.New(faulty, "p", ledger.Options{}), pieces(n+i, 1))
				done <- err
			}()
		}
		var waiting []chan struct{}
		for left := n; left > 0; {
			for len(waiting) < left {
				select {
				case turn := <-steps:
					waiting = append(waiting, turn)
				case err := <-done:
					left--
					if err != nil {
						t.Error(err)
					}
				}
			}
			if left > 0 {
				i := rapid.IntRange(0, left-1).Draw(t, "next")
				close(waiting[i])
				waiting = slices.Delete(waiting, i, i+1)
			}
		}
		for _, scan := range scans {
			if scan == nil || scan.Attempt == "" || scan.Attempt != scans[0].Attempt || scan.Splits != scans[0].Splits {
				t.Fatalf("planners were given %+v and %+v, want one plan", scans[0], scan)
			}
		}
	})
}

// Every commit is within the limits: Memory refuses others.
func TestTenThousandSplitsWithLongKeysArePlanned(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	key := func(i int) string { return row(i) + strings.Repeat("\xff", 4096-6) }
	splits := make([][]rowrange.Range, 10_000)
	for i := range splits {
		splits[i] = []rowrange.Range{{Start: key(i), End: key(i + 1)}}
	}
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: splits})
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := l.Unfinished(t.Context(), scan)
	if err != nil || len(tasks) != len(splits) {
		t.Fatalf("%d tasks, %v, want %d", len(tasks), err, len(splits))
	}
	if got := split(t, l, scan, 9_999).Ranges; !slices.Equal(got, splits[9_999]) {
		t.Error("the last split's range came back different")
	}
}

// No document is written more often than a tally has places, not even the scan.
func TestFinishingTenThousandSplitsRewritesNoHotDocument(t *testing.T) {
	const n = 10_000
	store := storetest.NewMemory()
	l := ledger.New(store, "p", ledger.Options{})
	scan := planned(t, l, n, 0)
	for i, index := range rand.Perm(n) {
		if next := finish(t, l, task(scan, index), 1); (next.Scan != nil) != (i == n-1) {
			t.Fatalf("split number %d to finish completes the scan: %t", i+1, next.Scan != nil)
		}
	}
	if got := fetched(t, l); got.State != ledger.ScanDone || got.Rows != n {
		t.Errorf("the scan is %s with %d rows, want done with %d", got.State, got.Rows, n)
	}
	for group, most := range map[string]int{"scans": 3, "splits": 3, "tallies": 32} {
		if got := slices.Max(store.Writes()[group]); got > most {
			t.Errorf("a document of %s was written %d times, want at most %d", group, got, most)
		}
	}
}

func TestAPlanWithoutSplitsIsDone(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	scan, err := l.Plan(t.Context(), "s", ledger.Draft{})
	if err != nil || scan.State != ledger.ScanDone || scan.FinishedAt.IsZero() || !scan.CompletionDue() {
		t.Errorf("the scan is %+v, %v, want done and to be published", scan, err)
	}
	if tasks, err := l.Unfinished(t.Context(), scan); err != nil || len(tasks) != 0 {
		t.Errorf("tasks %v, %v, want none", tasks, err)
	}
}

func TestAScanMustBegin(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	if _, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(1, 1)}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("planning: %v, want %v", err, ledger.ErrNotFound)
	}
	if _, err := l.Reject(t.Context(), "s", errors.New("x")); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("rejecting: %v, want %v", err, ledger.ErrNotFound)
	}
}

func TestASplitTooLargeForADocumentIsRefused(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	huge := make([]rowrange.Range, 300)
	for i := range huge {
		huge[i] = rowrange.Closed(row(i) + strings.Repeat("x", 4000))
	}
	_, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: append(pieces(2, 1), huge)})
	if !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("planning: %v, want %v", err, ledger.ErrTooLarge)
	}
	if scan := fetched(t, l); scan.State != ledger.ScanPlanning {
		t.Errorf("the scan is %s, want planning", scan.State)
	}
}

func TestUnfinishedListsWhatIsLeftInOrder(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	scan := planned(t, l, 12, 0)
	for _, i := range []int{0, 5, 11} {
		finish(t, l, task(scan, i), 1)
	}
	acquire(t, l, task(scan, 1)) // held, but a crash may have taken its task along
	tasks, err := l.Unfinished(t.Context(), scan)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, task := range tasks {
		got = append(got, task.Index)
	}
	if want := []int{1, 2, 3, 4, 6, 7, 8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("unfinished %v, want %v", got, want)
	}
	if fmt.Sprint(tasks[0]) != fmt.Sprint(task(scan, 1)) {
		t.Errorf("task %v, want %v", tasks[0], task(scan, 1))
	}
}
