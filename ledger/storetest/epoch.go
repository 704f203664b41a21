package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// backup is a copy of the documents of a pipeline's change streams.
type backup []ledger.Doc

// collectionsOf are those of the change stream of a pipeline.
func (f *fixture) collectionsOf(t *testing.T, pipeline string) []string {
	t.Helper()
	streams := "pipelines/" + pipeline + "/streams"
	out := []string{streams}
	err := f.List(t.Context(), func(doc ledger.Doc) error {
		for _, name := range []string{"partitions", "pending", "completed", "unheld", "watched"} {
			out = append(out, streams+"/"+doc.Key.ID+"/"+name)
		}
		return nil
	}, streams)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (f *fixture) backUp(t *testing.T, pipeline string) (out backup) {
	t.Helper()
	err := f.List(t.Context(), func(doc ledger.Doc) error {
		out = append(out, doc)
		return nil
	}, f.collectionsOf(t, pipeline)...)
	if err != nil || len(out) == 0 {
		t.Fatalf("%d documents: %v", len(out), err)
	}
	return out
}

// restore puts the documents of a backup in the place of all that are there. over leaves those
// alone that the backup does not have.
func (f *fixture) restore(t *testing.T, pipeline string, b backup, over bool) {
	t.Helper()
	var writes []ledger.Write
	for _, doc := range f.backUp(t, pipeline) {
		if !over || slices.ContainsFunc(b, func(o ledger.Doc) bool { return o.Key == doc.Key }) {
			writes = append(writes, ledger.Write{Op: ledger.OpDelete, Key: doc.Key, Version: doc.Version})
		}
	}
	if _, err := f.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	writes = nil
	for _, doc := range b {
		writes = append(writes, ledger.Write{Key: doc.Key, Body: doc.Body, ExpireAt: doc.ExpireAt})
	}
	if _, err := f.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
}

// positions are the tokens of the partitions, in the order of their keys.
func positions(top *ledger.Topology) string {
	var out []string
	for _, p := range top.Partitions {
		value := "start"
		for i, token := range p.Tokens {
			if value = token.Value; i > 0 {
				value = "several"
			}
		}
		out = append(out, p.Range.Start+"-"+p.Range.End+"@"+value)
	}
	return strings.Join(out, " ")
}

// After the ledger was restored from a backup, and an epoch was begun, each partition goes on at
// its position in the backup. Whoever has held or read it before loses, also if a holder since
// the restore has the fence that he had, and so do the tasks of before and a coordinator.
func restored(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	top := f.partitioned(t, l, keysOf("-b b-d d-"))
	commit := func(lease *ledger.PartitionLease, token string) error {
		return lease.Commit(t.Context(), &changestream.Position{Token: token, LowWatermark: top.Stream.Start})
	}
	first, second := top.Partitions[0], top.Partitions[1]
	held1 := holdPartition(t, l, first) // all the time
	if err := commit(held1, "one"); err != nil {
		t.Fatal(err)
	}
	lease := holdPartition(t, l, second)
	if err := errors.Join(commit(lease, "two"), lease.Release(t.Context(), nil, 0, ledger.Cause{})); err != nil {
		t.Fatal(err)
	}
	swept, err := l.Partition(t.Context(), second.PartitionID)
	if err != nil {
		t.Fatal(err)
	}
	was := f.backUp(t, f.pipeline)

	if err := commit(held1, "later"); err != nil {
		t.Fatal(err)
	}
	moved := holdPartition(t, l, top.Partitions[2]) // d- moves on, and is held
	if err := commit(moved, "three"); err != nil {
		t.Fatal(err)
	}
	if _, err := holdPartition(t, l, second).Close(t.Context(), into(second.Range, keysOf("b-c c-d")), nil); err != nil {
		t.Fatal(err)
	}
	child := holdPartition(t, l, topology(t, l).Partitions[2])
	coordinator, err := l.AcquireStream(t.Context(), streamID, "coordinator")
	if err != nil {
		t.Fatal(err)
	}
	decided := topology(t, l)
	f.restore(t, f.pipeline, was, false)
	// A reader of after the restore has the fence of one of before, whose lease is on another
	// copy of the ledger.
	if since := holdPartition(t, l, top.Partitions[2]); since.Fence() != moved.Fence() {
		t.Fatalf("fence %d, and %d before the restore", since.Fence(), moved.Fence())
	}

	epoch, err := l.BeginEpoch(t.Context(), streamID, "restorer")
	if err != nil || epoch.Partitions != 3 || !epoch.LowWatermark.Equal(top.Stream.Start) {
		t.Fatalf("%+v, %v", epoch, err)
	}
	check := func() {
		t.Helper()
		if got := positions(topology(t, l)); got != "-b@one b-d@two d-@start" {
			t.Fatalf("%s", got)
		}
	}
	check()
	lost := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ledger.ErrLost) && !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
		check()
	}
	lost("the holder of all the time", commit(held1, "late"))
	lost("a holder of before the restore", commit(moved, "late"))
	lost("its release", moved.Release(t.Context(), &changestream.Position{Token: "late"}, 0, ledger.Cause{}))
	_, err = moved.Close(t.Context(), into(keysOf("d-")[0], keysOf("d-e e-")), nil)
	lost("its close", err)
	_, err = child.Close(t.Context(), into(keysOf("c-d")[0], keysOf("c-d")), nil)
	lost("the close of a partition that is not there any more", err)
	lost("a sweep", l.Refresh(t.Context(), swept, changestream.Position{Token: "late"}, 0, false))
	for _, p := range top.Partitions { // of which tasks are under way
		_, err := acquire(t.Context(), l, p.PartitionID, "reader")
		lost("a task", err)
	}
	gap := changestream.Reconciled{Recover: []changestream.Recovery{{Opening: changestream.Opening{Range: keysOf("a-b")[0], Start: time.Now()}}}}
	done, err := coordinator.Reconcile(t.Context(), decided, gap)
	if lost("the coordinator", err); len(done.Opened) > 0 {
		t.Errorf("the coordinator of before the restore opens %d partitions", len(done.Opened))
	}
	f.splitsAgain(t, l)
}

// splitsAgain closes what the backup has into what the service has now.
func (f *fixture) splitsAgain(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	for _, p := range topology(t, l).Partitions {
		if p.Range.Start == "b" {
			if _, err := holdPartition(t, l, p).Close(t.Context(), into(p.Range, keysOf("b-c c-d")), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	service := keysOf("-b b-c c-d d-")
	f.reconcile(t, l, service)
	if now := topology(t, l); held(now) != "-b b-c c-d d-" || len(now.Stream.Missing)+len(now.Pending) > 0 {
		t.Errorf("%s, missing %v, pending %v", held(now), now.Stream.Missing, now.Pending)
	}
	// The same backup may be restored once more: the coordinator's fence still rises.
	if _, err := l.BeginEpoch(t.Context(), streamID, "restorer"); err != nil || held(topology(t, l)) != "-b b-c c-d d-" {
		t.Errorf("%v, %s", err, held(topology(t, l)))
	}
}

// A reply is lost at each call of the ledger in turn while an epoch begins, or the process dies
// there and begins it again: each partition is there once, at its position.
func lostEpoch(t *testing.T, f *fixture) {
	for i, fault := range []Fault{FaultReplyLost, FaultCrashAfter} {
		for call := 0; ; call++ {
			pipeline := fmt.Sprintf("%s-%d-%d", f.pipeline, i, call)
			l := ledger.New(f, pipeline, ledger.Options{})
			top := f.partitioned(t, l, keysOf("-b b-"))
			lease := holdPartition(t, l, top.Partitions[0])
			if err := lease.Commit(t.Context(), &changestream.Position{Token: "one", LowWatermark: top.Stream.Start}); err != nil {
				t.Fatal(err)
			}
			calls := 0
			faulty := ledger.New(&Faulty{Store: f.Store, Next: func(bool) Fault {
				if calls++; calls == call+1 {
					return fault
				}
				return FaultNone
			}}, pipeline, ledger.Options{})
			epoch, err := faulty.BeginEpoch(t.Context(), streamID, "restorer")
			if errors.Is(err, ErrCrash) || errors.Is(err, ledger.ErrUnavailable) {
				epoch, err = l.BeginEpoch(t.Context(), streamID, "restorer")
			}
			now := topology(t, l)
			if err != nil || epoch.Partitions != 2 || positions(now) != "-b@one b-@start" {
				t.Fatalf("fault %d at call %d: %+v, %v, %s", fault, call, epoch, err, positions(now))
			}
			for i, p := range now.Partitions {
				if p.Incarnation == top.Partitions[i].Incarnation || p.Left > 0 {
					t.Errorf("fault %d at call %d: partition %d is the one of before, or held", fault, call, i)
				}
			}
			if calls <= call {
				break
			}
		}
	}
}

// If a backup is put over a ledger that is in use, a partition and its successors hold the same
// keys: nothing is changed then.
func restoredOver(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	top := f.partitioned(t, l, keysOf("-b b-"))
	was := f.backUp(t, f.pipeline)
	if _, err := holdPartition(t, l, top.Partitions[1]).Close(t.Context(), into(keysOf("b-")[0], keysOf("b-c c-")), nil); err != nil {
		t.Fatal(err)
	}
	f.restore(t, f.pipeline, was, true)
	before := f.backUp(t, f.pipeline)
	if _, err := l.BeginEpoch(t.Context(), streamID, "restorer"); err == nil || !strings.Contains(err.Error(), "empty ledger") {
		t.Errorf("%v", err)
	}
	for _, doc := range f.backUp(t, f.pipeline) {
		if !slices.ContainsFunc(before, func(o ledger.Doc) bool { return o.Key == doc.Key && o.Version == doc.Version }) {
			t.Errorf("document %v has changed", doc.Key)
		}
	}
	if _, err := l.BeginEpoch(t.Context(), ledger.StreamID{Name: "other"}, "restorer"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a stream that the backup does not have: %v", err)
	}
}
