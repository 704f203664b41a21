package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Two holders close one partition at the same time, one of them into what the tablets were
// when its lease was over: the one that holds the lease is believed, and each key has one
// place. stream-case: 31, 50
func racingCloses(t *testing.T, f *fixture) {
	brief := ledger.New(f, f.pipeline, ledger.Options{Lease: time.Millisecond})
	l := ledger.New(f.open(), f.pipeline, ledger.Options{})
	f.partitioned(t, l, keysOf("-"))
	for round := range 10 {
		p := topology(t, l).Partitions[0]
		late := holdPartition(t, brief, p)
		f.await(t, time.Millisecond)
		holder := holdPartition(t, l, p)
		var lost, closed error
		f.together(t, 2, func(i int, _ ledger.Store) error {
			if i == 0 {
				_, lost = late.Close(t.Context(), into(p.Range, keysOf("-a a-")), nil)
			} else {
				_, closed = holder.Close(t.Context(), into(p.Range, keysOf("-")), nil)
			}
			return nil
		})
		now := topology(t, l)
		if !errors.Is(lost, ledger.ErrLost) || closed != nil || held(now) != "-" || now.Partitions[0].Incarnation == p.Incarnation {
			t.Fatalf("round %d: the late close %v, the holder's %v, %s", round, lost, closed, held(now))
		}
	}
}

// The bounds of three partitions shift: the middle one closes into two that wait for the
// others, whose closes open them. stream-case: 21
func shifted(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	top := f.partitioned(t, l, keysOf("-b b-d d-"))
	close := func(i int, wantHeld string, wantPending int) {
		t.Helper()
		p := top.Partitions[i]
		_, err := holdPartition(t, l, p).Close(t.Context(), into(p.Range, keysOf("-c c-")), nil)
		if now := topology(t, l); err != nil || held(now) != wantHeld || len(now.Pending) != wantPending {
			t.Fatalf("%v, %s, %d pending, want %s, %d", err, held(now), len(now.Pending), wantHeld, wantPending)
		}
	}
	close(1, "-b d-", 2)
	close(0, "-c d-", 1)
	close(2, "-c c-", 0)
	for i, p := range topology(t, l).Partitions {
		if len(p.Tokens) != 2 || !changestream.HoldOnce(p.Range, p.Tokens) {
			t.Errorf("partition %d has the tokens %v", i, p.Tokens)
		}
	}
}

// The document of a partition is gone, at the first, at the last or at a key in the middle: its
// keys are opened once, without a token, from before the position of those that are left, and
// not from before the stream's start. stream-case: 27, 28
func lostPartition(t *testing.T, f *fixture) {
	service := keysOf("-b b-d d-")
	for i, lost := range service {
		pipeline := fmt.Sprintf("%s-%d", f.pipeline, i)
		l := ledger.New(f, pipeline, ledger.Options{})
		p := f.partitioned(t, l, service).Partitions[i]
		for _, doc := range f.backUp(t, pipeline) {
			if doc.Key.ID == p.Incarnation {
				if _, err := f.Commit(t.Context(), []ledger.Write{{Op: ledger.OpDelete, Key: doc.Key, Version: doc.Version}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if done := f.reconcile(t, l, service); len(done.Opened) > 0 || !slices.ContainsFunc(topology(t, l).Stream.Missing, func(m changestream.Missing) bool { return m.Range.Equal(lost) }) {
			t.Fatalf("at the first look: %+v", done)
		}
		done := f.reconcile(t, l, service)
		now := topology(t, l)
		if done.Tokenless != 1 || held(now) != "-b b-d d-" || len(now.Stream.Missing) > 0 {
			t.Fatalf("%+v, %s, missing %v", done, held(now), now.Stream.Missing)
		}
		if o := now.Partitions[i]; len(o.Tokens) > 0 || !o.Start.Equal(now.Stream.Start) {
			t.Errorf("%+v, the stream starts at %s", o.Opening, now.Stream.Start)
		}
		if done := f.reconcile(t, l, service); len(done.Opened) > 0 {
			t.Errorf("it is opened twice: %+v", done)
		}
	}
}

// The first tick dies, or loses a reply, at each of its calls, and the next one goes on: the
// stream has one start, which the first that was kept decides, and each key one partition that
// begins there. stream-case: 45, 51, 52
func killedInit(t *testing.T, f *fixture) {
	service := keysOf("-b b-d d-")
	for i, fault := range []Fault{FaultLost, FaultReplyLost, FaultRepeated, FaultCrash, FaultCrashAfter} {
		for call := 0; ; call++ {
			pipeline := fmt.Sprintf("%s-%d-%d", f.pipeline, i, call)
			calls := 0
			faulty := ledger.New(&Faulty{Store: f.Store, Next: func(bool) Fault {
				if calls++; calls == call+1 {
					return fault
				}
				return FaultNone
			}}, pipeline, ledger.Options{Lease: time.Millisecond})
			began, err := begin(t, faulty, service)
			if err != nil && !errors.Is(err, ErrCrash) && !errors.Is(err, ledger.ErrUnavailable) {
				t.Fatalf("fault %d at call %d: %v", fault, call, err)
			}
			f.await(t, time.Millisecond)
			l := ledger.New(f, pipeline, ledger.Options{Lease: time.Millisecond})
			again, err := begin(t, l, service)
			if err != nil || !began.IsZero() && !again.Equal(began) {
				t.Fatalf("fault %d at call %d: begun at %s and at %s, %v", fault, call, began, again, err)
			}
			top := topology(t, l)
			for _, p := range top.Partitions {
				if !p.Start.Equal(again) || len(p.Tokens) > 0 {
					t.Errorf("fault %d at call %d: %+v", fault, call, p.Opening)
				}
			}
			if held(top) != "-b b-d d-" || top.Stream.Initial || len(top.Pending)+len(top.Stream.Missing) > 0 {
				t.Fatalf("fault %d at call %d: %s", fault, call, held(top))
			}
			if calls <= call {
				break
			}
		}
	}
}

// begin is a first tick. It returns the start, zero if it is not known to be kept.
func begin(t *testing.T, l *ledger.Ledger, service []rowrange.Range) (time.Time, error) {
	t.Helper()
	s, err := l.BeginStream(t.Context(), streamID, func(now time.Time) (time.Time, error) { return now, nil })
	if err != nil {
		return time.Time{}, err
	}
	lease, err := l.AcquireStream(t.Context(), streamID, "coordinator")
	if err != nil {
		return s.Start, err
	}
	top, err := l.Topology(t.Context(), streamID)
	if err != nil {
		return s.Start, err
	}
	if _, err := lease.Reconcile(t.Context(), top, changestream.Reconcile(top.Compare(service), changestream.DefaultGraces(), top.ReadAt)); err != nil {
		return s.Start, err
	}
	return s.Start, lease.Release(t.Context(), nil)
}

// An expired position is set to a later time, once, whatever reply is lost, and a holder from
// before cannot bring it back. stream-case: 38
func restarted(t *testing.T, f *fixture) {
	for i, fault := range []Fault{FaultNone, FaultLost, FaultReplyLost, FaultRepeated} {
		pipeline := fmt.Sprintf("%s-%d", f.pipeline, i)
		brief := ledger.New(f, pipeline, ledger.Options{Lease: time.Millisecond})
		top := f.partitioned(t, brief, keysOf("-"))
		late := holdPartition(t, brief, top.Partitions[0])
		at := &changestream.Position{Token: "old", LowWatermark: top.Stream.Start}
		if err := late.Commit(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		f.await(t, time.Millisecond)
		faulty := &Faulty{Store: f.Store, Next: func(bool) Fault { return FaultNone }}
		lease := holdPartition(t, ledger.New(faulty, pipeline, ledger.Options{}), top.Partitions[0])
		faulty.Next = onFirstCommit(fault)
		start := top.Stream.Start.Add(time.Hour)
		if err := lease.Restart(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		if err := late.Commit(t.Context(), at); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("a holder from before commits: %v", err)
		}
		if p := topology(t, brief).Partitions[0]; len(p.Tokens) > 0 || !p.Start.Equal(start) || !p.LowWatermark.Equal(start) {
			t.Errorf("fault %d: %+v", fault, p.Opening)
		}
	}
}
