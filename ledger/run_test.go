package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

func TestAPlanKeepsTheTableThatItIsFor(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	const table = "projects/p/instances/i/tables/t"
	scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(2, 1), Table: table, Definition: map[string]string{"emit": "1"}})
	if err != nil || scan.Table != table || fetched(t, l).Definition["emit"] != "1" {
		t.Fatalf("%+v, %v", scan, err)
	}
	if got := acquire(t, l, task(scan, 1)).Split().Table; got != table {
		t.Errorf("the lease of a split says table %q", got)
	}
}

// A command that goes on replaces what is known of its run; nobody else does.
func TestARunIsRememberedUntilItsProcessEndsIt(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	first := ledger.Run{Settings: []byte(`{"to":"/out"}`), Holder: "a"}
	if scan, err := l.BeginRun(t.Context(), "s", "archive", []byte(`{}`), first, map[string]string{"emit": "1"}, nil); err != nil ||
		!sameRun(scan.Run, first) || scan.State != ledger.ScanPlanning || scan.Definition != nil || string(scan.Request) != "{}" {
		t.Fatalf("%+v, %v", scan, err)
	}
	if _, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(1, 1), Definition: map[string]string{"emit": "1"}}); err != nil {
		t.Fatal(err)
	}
	second := ledger.Run{Settings: []byte(`{"to":"/new"}`), Holder: "b"}
	if scan, err := l.BeginRun(t.Context(), "s", "archive", nil, second, map[string]string{"emit": "2"}, nil); err != nil ||
		!sameRun(scan.Run, second) || scan.Definition["emit"] != "2" || string(scan.Request) != "{}" {
		t.Fatalf("%+v, %v", scan, err)
	}
	if err := l.EndRun(t.Context(), "s", "a", errors.New("late")); err != nil || !sameRun(fetched(t, l).Run, second) {
		t.Errorf("the first process ends the second's run: %+v, %v", fetched(t, l).Run, err)
	}
	if err := l.EndRun(t.Context(), "s", "b", errors.New("denied")); err != nil || fetched(t, l).Run.Holder != "" || fetched(t, l).Run.Ended != "denied" {
		t.Errorf("%+v, %v", fetched(t, l).Run, err)
	}
}

func sameRun(got *ledger.Run, want ledger.Run) bool {
	return got != nil && bytes.Equal(got.Settings, want.Settings) && got.Holder == want.Holder && got.Ended == want.Ended
}

// The caller decides, from the run as it is in the ledger, whether another may replace it.
func TestARunIsReplacedOnlyIfItsCallerAllowsIt(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	first, second := ledger.Run{Settings: []byte(`1`), Holder: "a"}, ledger.Run{Settings: []byte(`2`), Holder: "b"}
	refused := errors.New("refused")
	begin := func(r ledger.Run, answer error) (asked []ledger.Run, err error) {
		_, err = l.BeginRun(t.Context(), "s", "archive", nil, r, nil, func(replaced ledger.Run) error {
			asked = append(asked, replaced)
			return answer
		})
		return asked, err
	}
	if asked, err := begin(first, refused); err != nil || len(asked) > 0 {
		t.Errorf("one that replaces none: asked of %+v, %v", asked, err)
	}
	if asked, err := begin(second, refused); !errors.Is(err, refused) || len(asked) != 1 || !sameRun(&asked[0], first) || !sameRun(fetched(t, l).Run, first) {
		t.Errorf("one that is refused: asked of %+v, %v, and the run is %+v", asked, err, fetched(t, l).Run)
	}
	if _, err := begin(second, nil); err != nil || !sameRun(fetched(t, l).Run, second) {
		t.Errorf("one that is allowed: %v, and the run is %+v", err, fetched(t, l).Run)
	}
}

func TestADeployedScanThatACommandHelpsWithStaysDeployed(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	planned(t, l, 1, 0)
	if scan, err := l.BeginRun(t.Context(), "s", "archive", nil, ledger.Run{Holder: "a"}, nil, nil); err != nil || scan.Run != nil {
		t.Errorf("%+v, %v, want no run", scan, err)
	}
}

func TestOnlyAScanThatIsNotFinishedIsCancelled(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	if _, err := l.Cancel(t.Context(), "s"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	scan := planned(t, l, 1, 0)
	finish(t, l, task(scan, 0), 1)
	if _, err := l.Cancel(t.Context(), "s"); !errors.Is(err, ledger.ErrScanFinished) || fetched(t, l).State != ledger.ScanDone {
		t.Errorf("a finished one: %v, and it is %s", err, fetched(t, l).State)
	}
	if _, err := l.Begin(t.Context(), "unplanned", "archive", nil); err != nil {
		t.Fatal(err)
	}
	if scan, err := l.Cancel(t.Context(), "unplanned"); err != nil || scan.Error != ledger.Cancelled {
		t.Errorf("one without a plan: %+v, %v", scan, err)
	}
	if scan, err := l.Plan(t.Context(), "unplanned", ledger.Draft{Splits: pieces(1, 1)}); err != nil || scan.State != ledger.ScanFailed {
		t.Errorf("planned all the same: %+v, %v", scan, err)
	}
}

// mortalStore answers some calls, and none after. Several goroutines may use it.
type mortalStore struct {
	ledger.Store
	left atomic.Int64
}

func (m *mortalStore) Get(ctx context.Context, keys ...ledger.Key) ([]ledger.Doc, error) {
	if m.left.Add(-1) < 0 {
		return nil, storetest.ErrCrash
	}
	return m.Store.Get(ctx, keys...)
}

func (m *mortalStore) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	if m.left.Add(-1) < 0 {
		return nil, storetest.ErrCrash
	}
	return m.Store.Commit(ctx, writes)
}

func (m *mortalStore) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	if m.left.Add(-1) < 0 {
		return storetest.ErrCrash
	}
	return m.Store.List(ctx, each, collections...)
}

// A Cancel that dies half-way leaves splits that can be read to their end.
func TestACancelThatDiedIsGoneOnWith(t *testing.T) {
	for crash := range 14 {
		store := storetest.NewMemory()
		l := ledger.New(store, "p", ledger.Options{})
		scan := planned(t, l, 3, 0)
		mortal := &mortalStore{Store: store}
		mortal.left.Store(int64(crash))
		if _, err := ledger.New(mortal, "p", ledger.Options{}).Cancel(t.Context(), "s"); (err == nil) != (mortal.left.Load() >= 0) {
			t.Errorf("a crash at call %d: %v", crash, err)
		}
		left := fetched(t, l)
		for i := range 3 {
			if lease, err := l.Acquire(t.Context(), task(scan, i), "w"); err == nil {
				if _, err := lease.Finish(t.Context(), at(row(10*i), 1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := fetched(t, l)
		if left.State == ledger.ScanFailed && (before.State != ledger.ScanFailed || before.Error != ledger.Cancelled) {
			t.Errorf("after a crash at call %d, workers made it %s: %s", crash, before.State, before.Error)
		}
		switch after, err := l.Cancel(t.Context(), "s"); {
		case before.State == ledger.ScanDone:
			if !errors.Is(err, ledger.ErrScanFinished) {
				t.Errorf("after a crash at call %d: %v", crash, err)
			}
		case err != nil || after.Error != ledger.Cancelled || after.Rows+int64(after.Failed) != 3:
			t.Errorf("after a crash at call %d: %+v, %v", crash, after, err)
		}
	}
}

// sparing cancels all but the first split, whose write it refuses once the others are
// written.
type sparing struct {
	ledger.Store
	others sync.WaitGroup
}

func (s *sparing) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	isSplit := strings.HasSuffix(writes[0].Key.Collection, "/splits")
	if isSplit && bytes.Contains(writes[0].Body, []byte(`"index":0,`)) {
		s.others.Wait()
		return nil, storetest.ErrCrash
	}
	if isSplit {
		defer s.others.Done()
	}
	return s.Store.Commit(ctx, writes)
}

// The split before one that was cancelled does not hand the rest of a limit on to it,
// and the last to finish does not complete a scan that was cancelled.
func TestAWorkerDoesNotReviveACancelledScan(t *testing.T) {
	for _, limit := range []int64{0, 100} {
		store := storetest.NewMemory()
		l := ledger.New(store, "p", ledger.Options{})
		scan := planned(t, l, 3, limit)
		dying := &sparing{Store: store}
		dying.others.Add(2)
		if _, err := ledger.New(dying, "p", ledger.Options{}).Cancel(t.Context(), "s"); !errors.Is(err, storetest.ErrCrash) {
			t.Fatal(err)
		}
		next := finish(t, l, task(scan, 0), 10)
		if next.Next != nil {
			t.Errorf("limit %d: split %d is told to go on", limit, next.Next.Index)
		}
		// No task comes for a split whose turn never does.
		if limit > 0 && (next.Scan == nil || next.Scan.Error != ledger.Cancelled) {
			t.Errorf("limit %d: what follows is %+v, want the completion event of the scan that was cancelled", limit, next)
		}
		if got := split(t, l, scan, 1); got.State != ledger.SplitFailed {
			t.Errorf("limit %d: the next split is %s", limit, got.State)
		}
		if got := fetched(t, l); got.State != ledger.ScanFailed || got.Error != ledger.Cancelled {
			t.Errorf("limit %d: the scan is %s: %s", limit, got.State, got.Error)
		}
	}
}
