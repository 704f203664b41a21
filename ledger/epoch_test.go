package ledger_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// A coordinator that has read the ledger before the backup, which is restored with the versions
// that it had then, opens nothing after the restore, and its lease is lost.
func TestACoordinatorFromBeforeARestoreChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		l := ledger.New(store, "p", ledger.Options{})
		if _, err := l.BeginStream(t.Context(), streamID, func(now time.Time) (time.Time, error) { return now, nil }); err != nil {
			t.Fatal(err)
		}
		begin, err := l.AcquireStream(t.Context(), streamID, "coordinator")
		if err != nil {
			t.Fatal(err)
		}
		top, err := l.Topology(t.Context(), streamID)
		if err != nil {
			t.Fatal(err)
		}
		all := []rowrange.Range{{}}
		if _, err := begin.Reconcile(t.Context(), top, changestream.Reconcile(top.Compare(all), shortGraces, top.ReadAt)); err != nil {
			t.Fatal(err)
		}
		if err := begin.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		paused, err := l.AcquireStream(t.Context(), streamID, "paused")
		if err != nil {
			t.Fatal(err)
		}
		if top, err = l.Topology(t.Context(), streamID); err != nil {
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
