package ledger_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// begin begins a stream, and opens the partitions that the service has.
func begin(t *testing.T, l *ledger.Ledger, service []rowrange.Range) *ledger.Topology {
	t.Helper()
	if _, err := l.BeginStream(t.Context(), streamID, func(now time.Time) (time.Time, error) { return now, nil }); err != nil {
		t.Fatal(err)
	}
	lease, err := l.AcquireStream(t.Context(), streamID, "coordinator")
	if err != nil {
		t.Fatal(err)
	}
	top, err := l.Topology(t.Context(), streamID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Reconcile(t.Context(), top, changestream.Reconcile(top.Compare(service), shortGraces, top.ReadAt)); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if top, err = l.Topology(t.Context(), streamID); err != nil {
		t.Fatal(err)
	}
	return top
}

// A coordinator that has read the ledger before the backup, which is restored with the versions
// that it had then, opens nothing after the restore, and its lease is lost.
func TestACoordinatorFromBeforeARestoreChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		l := ledger.New(store, "p", ledger.Options{})
		top := begin(t, l, []rowrange.Range{{}})
		paused, err := l.AcquireStream(t.Context(), streamID, "paused")
		if err != nil {
			t.Fatal(err)
		}
		backup := store.Backup()
		time.Sleep(time.Hour)
		for round := range 2 { // the same backup twice: the fence is above that of each epoch
			store.Restore(backup)
			if _, err := l.BeginEpoch(t.Context(), streamID, "restorer"); err != nil {
				t.Fatal(err)
			}
			var other *ledger.StreamLease
			for leases := range round + 1 {
				if leases > 0 {
					if err := other.Release(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				if other, err = l.AcquireStream(t.Context(), streamID, "other"); err != nil {
					t.Fatal(err)
				}
			}
			again := changestream.Reconciled{Recover: []changestream.Recovery{{Opening: changestream.Opening{Start: top.Stream.Start}}}}
			done, err := paused.Reconcile(t.Context(), top, again)
			if !errors.Is(err, ledger.ErrLost) || len(done.Opened) > 0 {
				t.Errorf("it opens %d partitions: %v", len(done.Opened), err)
			}
			if now, err := l.Topology(t.Context(), streamID); err != nil || len(now.Partitions) != 1 {
				t.Errorf("%d partitions, %v", len(now.Partitions), err)
			}
			if err := other.Release(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if paused, err = l.AcquireStream(t.Context(), streamID, "paused"); err != nil {
				t.Fatal(err)
			}
			if top, err = l.Topology(t.Context(), streamID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// An epoch begins with more partitions than one transaction takes, while a reader from before
// writes one of them before each transaction, and another one splits: each key is held once,
// under an incarnation that nobody knew, at the last position that was committed.
func TestAnEpochBeginsWhileReadersWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		l := ledger.New(store, "p", ledger.Options{})
		var keys []string
		for i := range 349 {
			keys = append(keys, row(i))
		}
		top := begin(t, l, rowrange.Cut(rowrange.Range{}, keys))
		if len(top.Partitions) != 350 {
			t.Fatalf("%d partitions", len(top.Partitions))
		}
		known := map[string]bool{}
		var leases []*ledger.PartitionLease
		for _, p := range top.Partitions {
			known[p.Incarnation] = true
			lease, err := l.AcquirePartition(t.Context(), p, "reader")
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		split := leases[0].Partition().Range
		middle := split.Start + "\x00m"
		commits := 0
		last := map[string]string{} // tokens, by the start of the range
		faulty := ledger.New(&storetest.Faulty{Store: store, Next: func(commit bool) storetest.Fault {
			if !commit {
				return storetest.FaultNone
			}
			if commits++; commits == 4 { // the first partitions are about to be replaced
				var successors []changestream.Successor
				for _, part := range rowrange.Cut(split, []string{middle}) {
					successors = append(successors, changestream.Successor{Target: part, Token: changestream.Token{Range: part, Value: "split"}})
				}
				if _, err := leases[0].Close(t.Context(), successors, nil); err != nil {
					t.Error(err)
				}
			}
			lease := leases[1+commits*37%349]
			token := rand.Text()
			err := lease.Commit(t.Context(), &changestream.Position{Token: token, LowWatermark: time.Now()})
			if err == nil {
				last[lease.Partition().Range.Start] = token
			} else if !errors.Is(err, ledger.ErrLost) {
				t.Error(err)
			}
			return storetest.FaultNone
		}}, "p", ledger.Options{})
		epoch, err := faulty.BeginEpoch(t.Context(), streamID, "restorer")
		now, wrong := l.Topology(t.Context(), streamID)
		if err != nil || wrong != nil || epoch.Partitions != len(now.Partitions) || len(last) == 0 {
			t.Fatalf("%+v, %v, %v, %d commits meanwhile", epoch, err, wrong, len(last))
		}
		var tokens []changestream.Token
		for _, p := range now.Partitions {
			tokens = append(tokens, changestream.Token{Range: p.Range})
			if known[p.Incarnation] {
				t.Errorf("a reader from before knows %s", p.Incarnation)
			}
			if want := last[p.Range.Start]; want != "" && p.Tokens[0].Value != want {
				t.Errorf("a partition is at %v, not at the last position that was committed", p.Tokens)
			}
		}
		if !changestream.HoldOnce(rowrange.Range{}, tokens) || len(tokens) != 351 {
			t.Errorf("%d partitions do not hold every key once", len(tokens))
		}
	})
}
