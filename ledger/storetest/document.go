package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// partition stands for a document that is leased and has no row keys: its place is a
// token, which no order tells from another.
type partition struct {
	Token  string   `json:"token"`
	Others []string `json:"others,omitempty"` // by processes that do not hold it
	ledger.Permanent
	ledger.LeaseState
}

func (f *fixture) partition(id string) ledger.Key { return f.key("partitions", id) }

// make creates the document.
func (f *fixture) make(t *testing.T, l *ledger.Ledger, id string) ledger.Key {
	t.Helper()
	key := f.partition(id)
	err := ledger.AmendDoc(t.Context(), l, key, func(p *partition) (*partition, error) {
		if p != nil {
			return nil, errors.New("it is there")
		}
		return &partition{Token: "a"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func hold(t *testing.T, l *ledger.Ledger, key ledger.Key, holder ledger.Holder) *ledger.DocLease[partition, *partition] {
	t.Helper()
	lease, err := ledger.AcquireDoc[partition](t.Context(), l, key, holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func token(to string) func(*partition) error {
	return func(p *partition) error {
		p.Token = to
		return nil
	}
}

func leasedDocument(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{Lease: 50 * time.Millisecond})
	key := f.make(t, l, "p")
	lease := hold(t, l, key, "first")
	for _, to := range []string{"z", "b", ""} {
		if err := lease.Commit(t.Context(), token(to)); err != nil || lease.Value().Token != to {
			t.Fatalf("%q: %v, %+v", to, err, lease.Value())
		}
	}
	// As often as anybody likes: what is too often, the caller says.
	for i := range ledger.MaxFruitless + 5 {
		f.await(t, 50*time.Millisecond)
		lease = hold(t, l, key, "again")
		if err := lease.Release(t.Context(), ledger.Cause{Err: errors.New("refused"), Fruitless: true}, token(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		f.await(t, 50*time.Millisecond)
	}
	if v := hold(t, l, key, "last").Value(); v.Fruitless != ledger.MaxFruitless+5 || v.LastError != "refused" || v.Token != "24" || v.Fence != 27 {
		t.Errorf("%+v", v)
	}
	refused := errors.New("it is closed")
	if _, err := ledger.AcquireDoc(t.Context(), l, key, "x", func(*partition) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("%v, want why the caller refuses", err)
	}
	if _, err := ledger.AcquireDoc[partition](t.Context(), l, f.partition("none"), "x", nil); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("%v, want %v", err, ledger.ErrNotFound)
	}
}

// Somebody writes the document again and again; the lease ends as if nobody had.
func holdersClock(t *testing.T, f *fixture) {
	const term = 300 * time.Millisecond
	l := ledger.New(f, f.pipeline, ledger.Options{Lease: term})
	key := f.make(t, l, "p")
	lease := hold(t, l, key, "silent")
	began := f.get(t, f.partition("p")).UpdatedAt
	note := func(text string) {
		t.Helper()
		err := ledger.AmendDoc(t.Context(), l, key, func(p *partition) (*partition, error) {
			p.Others = append(p.Others, text)
			return p, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	note("first")
	for {
		_, err := ledger.AcquireDoc[partition](t.Context(), l, key, "next", nil)
		now := f.get(t, f.partition("p")).ReadAt
		var held *ledger.HeldError
		if err == nil {
			break
		}
		if !errors.As(err, &held) || held.Left > term {
			t.Fatal(err)
		}
		if now.Sub(began) > 2*term {
			t.Fatalf("the lease of %s is held after %s: %v", term, now.Sub(began), err)
		}
		note("again")
	}
	if err := lease.Commit(t.Context(), token("b")); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("its holder commits: %v, want %v", err, ledger.ErrLost)
	}

	// What others write is there for the holder, and its commit counts from itself.
	f.await(t, term)
	lease = hold(t, l, key, "lively")
	note("last")
	if err := lease.Commit(t.Context(), token("c")); err != nil {
		t.Fatal(err)
	}
	v := lease.Value()
	if n := len(v.Others); v.Token != "c" || v.Others[n-1] != "last" || !v.HeldSince.IsZero() {
		t.Errorf("%+v", v)
	}
}

// A deletion that was applied is known as the holder's own; after another has deleted the
// document, or made it anew, the holder has lost it.
func lostDelete(t *testing.T, f *fixture) {
	for _, fault := range []Fault{FaultNone, FaultLost, FaultReplyLost, FaultRepeated} {
		l := ledger.New(f, f.pipeline, ledger.Options{})
		key := f.make(t, l, fmt.Sprint("p", fault))
		befallen := fault == FaultNone
		faulty := &Faulty{Store: f.Store, Next: func(commit bool) Fault {
			if !commit || befallen {
				return FaultNone
			}
			befallen = true
			return fault
		}}
		lease := hold(t, l, key, "holder")
		deaf, err := ledger.AcquireDoc[partition](t.Context(), ledger.New(faulty, f.pipeline, ledger.Options{}), f.make(t, l, fmt.Sprint("q", fault)), "holder", nil)
		if err != nil {
			t.Fatal(err)
		}
		befallen = fault == FaultNone
		beside := f.partition(fmt.Sprint("r", fault))
		err = deaf.Delete(t.Context(), func(p *partition) ([]ledger.Write, error) {
			return []ledger.Write{{Key: beside, Body: []byte(`{"from":"` + p.Token + `"}`)}}, nil
		})
		if err != nil || !befallen {
			t.Fatalf("fault %d (befallen: %t): %v", fault, befallen, err)
		}
		if doc := f.get(t, beside); string(doc.Body) != `{"from":"a"}` {
			t.Errorf("fault %d: what was to be written with it is %q", fault, doc.Body)
		}
		if _, err := ledger.AcquireDoc[partition](t.Context(), l, f.partition(fmt.Sprint("q", fault)), "x", nil); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("fault %d: acquired after it was deleted: %v", fault, err)
		}
		f.make(t, l, fmt.Sprint("q", fault)) // anew, in its place
		if err := deaf.Commit(t.Context(), token("b")); err == nil {
			t.Errorf("fault %d: committed after the end", fault)
		}

		// Another's deletion is not one's own, though the reply to one's own was lost too.
		f.stealAndDelete(t, key)
		if err := lease.Delete(t.Context(), nil); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("fault %d: deleted what another has deleted: %v, want %v", fault, err, ledger.ErrLost)
		}
	}
}

// stealAndDelete deletes the document as a holder for whom its lease is over.
func (f *fixture) stealAndDelete(t *testing.T, key ledger.Key) {
	t.Helper()
	l := ledger.New(f, f.pipeline, ledger.Options{})
	err := ledger.AmendDoc(t.Context(), l, key, func(p *partition) (*partition, error) {
		p.Holder = ""
		p.HeldSince = time.Time{}
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := hold(t, l, key, "thief").Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func lapsedSplits(t *testing.T, f *fixture) {
	const silent = 50 * time.Millisecond
	l := ledger.New(f, f.pipeline, ledger.Options{})
	scan := f.planned(t, l, "s", 2, 0)
	f.await(t, silent)
	found, err := l.Lapsed(t.Context(), time.Hour, silent)
	if err != nil || len(found) != 2 {
		t.Fatalf("%v, %v, want both splits", found, err)
	}
	if again, err := l.Lapsed(t.Context(), time.Hour, silent); err != nil || again != nil {
		t.Errorf("within the hour: %v, %v, want nothing", again, err)
	}
	first := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt, Index: 0}
	second := ledger.Task{Scan: scan.ID, Attempt: scan.Attempt, Index: 1}
	lease, err := l.Acquire(t.Context(), first, "worker")
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no task")
	if next, err := l.FailLapsed(t.Context(), first, "planner", time.Hour, cause); err != nil || next != (ledger.FollowUp{}) {
		t.Errorf("written since: %+v, %v", next, err)
	}
	if _, err := lease.Finish(t.Context(), one(first)); err != nil {
		t.Errorf("the holder of a split that is not silent: %v", err)
	}
	for range 2 {
		f.await(t, silent)
		next, err := l.FailLapsed(t.Context(), second, "planner", silent, cause)
		if err != nil || next.Scan == nil || next.Scan.State != ledger.ScanFailed || next.Scan.Failed != 1 || next.Scan.Rows != 1 {
			t.Errorf("%+v, %v, want the scan that has failed with it", next.Scan, err)
		}
	}
}

func permanentDocument(t *testing.T, f *fixture) {
	const kept = 20 * time.Millisecond
	l := ledger.New(f, f.pipeline, ledger.Options{Retention: kept, Lease: time.Millisecond})
	key := f.make(t, l, "p")
	if err := hold(t, l, key, "holder").Commit(t.Context(), token("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(t.Context(), "s", "s", nil); err != nil {
		t.Fatal(err)
	}
	f.await(t, 2*kept)
	if doc := f.get(t, key); !doc.ExpireAt.IsZero() {
		t.Errorf("it expires at %v", doc.ExpireAt)
	}
	if v := hold(t, l, key, "next").Value(); v.Token != "b" {
		t.Errorf("%+v", v)
	}
	if _, err := l.Scan(t.Context(), "s"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a document that is not permanent: %v, want %v", err, ledger.ErrNotFound)
	}
}
