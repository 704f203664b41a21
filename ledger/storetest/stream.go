package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

var streamID = ledger.StreamID{Name: "s", Table: "projects/p/instances/i/tables/t"}

// keysOf reads ranges such as "-b b-".
func keysOf(text string) (out []rowrange.Range) {
	for _, r := range strings.Fields(text) {
		start, end, _ := strings.Cut(r, "-")
		out = append(out, rowrange.Range{Start: start, End: end})
	}
	return out
}

// partitioned begins a stream and opens the partitions that the service has.
func (f *fixture) partitioned(t *testing.T, l *ledger.Ledger, service []rowrange.Range) *ledger.Topology {
	t.Helper()
	if _, err := l.BeginStream(t.Context(), streamID, func(now time.Time) (time.Time, error) { return now, nil }); err != nil {
		t.Fatal(err)
	}
	f.reconcile(t, l, service)
	return topology(t, l)
}

func topology(t *testing.T, l *ledger.Ledger) *ledger.Topology {
	t.Helper()
	top, err := l.Topology(t.Context(), streamID)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(top.Partitions, func(a, b *ledger.Partition) int { return strings.Compare(a.Range.Start, b.Range.Start) })
	return top
}

// reconcile does what a coordinator does, with graces that are over at once.
func (f *fixture) reconcile(t *testing.T, l *ledger.Ledger, service []rowrange.Range) ledger.Recovered {
	t.Helper()
	lease, err := l.AcquireStream(t.Context(), streamID, "coordinator")
	if err != nil {
		t.Fatal(err)
	}
	top := topology(t, l)
	done, err := lease.Reconcile(t.Context(), top, changestream.Reconcile(top.Compare(service), changestream.Graces{Rewind: time.Minute}, top.ReadAt))
	if err == nil {
		err = lease.Release(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// held returns the ranges of the partitions, as keysOf reads them.
func held(top *ledger.Topology) string {
	var out []string
	for _, p := range top.Partitions {
		out = append(out, p.Range.Start+"-"+p.Range.End)
	}
	return strings.Join(out, " ")
}

func holdPartition(t *testing.T, l *ledger.Ledger, p *ledger.Partition) *ledger.PartitionLease {
	t.Helper()
	lease, err := acquire(t.Context(), l, p.PartitionID, "reader")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// acquire reads a partition and takes its lease.
func acquire(ctx context.Context, l *ledger.Ledger, id ledger.PartitionID, holder ledger.Holder) (*ledger.PartitionLease, error) {
	p, err := l.Partition(ctx, id)
	if err != nil {
		return nil, err
	}
	return l.AcquirePartition(ctx, p, holder)
}

// into returns successors that take the keys of a partition, each with a token of its part.
func into(p rowrange.Range, targets []rowrange.Range) (out []changestream.Successor) {
	for _, target := range targets {
		if part, some := rowrange.Intersect(p, target); some {
			out = append(out, changestream.Successor{Target: target, Token: changestream.Token{Range: part, Value: "of " + part.Start + "-" + part.End}})
		}
	}
	return out
}

// A partition splits, its parts merge, and the merged one moves.
// stream-case: 19, 20, 49
func closes(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	top := f.partitioned(t, l, keysOf("-"))
	start := top.Partitions[0].Start
	if len(top.Partitions) != 1 || top.Stream.Initial || start.IsZero() || top.Partitions[0].Tokens != nil {
		t.Fatalf("%+v %+v", top.Stream, top.Partitions)
	}
	lease := holdPartition(t, l, top.Partitions[0])
	at := &changestream.Position{Token: "read", LowWatermark: start.Add(time.Second)}
	opened, err := lease.Close(t.Context(), into(keysOf("-")[0], keysOf("-b b-")), at)
	if top = topology(t, l); err != nil || len(opened) != 2 || held(top) != "-b b-" || !top.Partitions[0].LowWatermark.Equal(at.LowWatermark) {
		t.Fatalf("split: %v, %v, %s", opened, err, held(top))
	}
	for i, p := range top.Partitions {
		opened, err := holdPartition(t, l, p).Close(t.Context(), into(p.Range, keysOf("-")), nil)
		if now := topology(t, l); err != nil || len(opened) != i || len(now.Pending) != 1-i {
			t.Fatalf("merge, parent %d: %v, %v, pending %v", i, opened, err, now.Pending)
		}
	}
	merged := topology(t, l)
	if tokens := merged.Partitions[0].Tokens; held(merged) != "-" || len(tokens) != 2 || tokens[0].Value != "of -b" || tokens[1].Value != "of b-" {
		t.Fatalf("merged: %s %v", held(merged), tokens)
	}
	if _, err := holdPartition(t, l, merged.Partitions[0]).Close(t.Context(), into(keysOf("-")[0], keysOf("-")), nil); err != nil {
		t.Fatal(err)
	}
	if moved := topology(t, l); held(moved) != "-" || moved.Partitions[0].Incarnation == merged.Partitions[0].Incarnation {
		t.Fatalf("moved: %s", held(moved))
	}
	if err := lease.Commit(t.Context(), at); err == nil {
		t.Error("the holder of a partition that has closed commits")
	}
}

// A holder is paused while its partition splits and is formed again.
// stream-case: 29, 31, 50
func pausedHolder(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{Lease: 50 * time.Millisecond})
	first := f.partitioned(t, l, keysOf("-")).Partitions[0]
	paused := holdPartition(t, l, first)
	f.await(t, 50*time.Millisecond)
	if _, err := holdPartition(t, ledger.New(f.open(), f.pipeline, ledger.Options{Lease: time.Minute}), first).Close(t.Context(), into(keysOf("-")[0], keysOf("-b b-")), nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range topology(t, l).Partitions {
		if _, err := holdPartition(t, ledger.New(f, f.pipeline, ledger.Options{}), p).Close(t.Context(), into(p.Range, keysOf("-")), nil); err != nil {
			t.Fatal(err)
		}
	}
	before := topology(t, l).Partitions[0]
	if err := paused.Commit(t.Context(), &changestream.Position{Token: "late"}); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("it commits: %v", err)
	}
	if _, err := paused.Close(t.Context(), into(keysOf("-")[0], keysOf("-m m-")), nil); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("it closes: %v", err)
	}
	after := topology(t, l).Partitions[0]
	if after.PartitionID != before.PartitionID || !slices.Equal(after.Tokens, before.Tokens) {
		t.Errorf("%+v became %+v", before, after)
	}
}

// The parents of one partition close at once; the last one opens it.
// stream-case: 20
func merging(t *testing.T, f *fixture) {
	const n = 12
	var service []rowrange.Range
	for i := range n {
		r := rowrange.Range{Start: row(i), End: row(i + 1)}
		if i == 0 {
			r.Start = ""
		}
		if i == n-1 {
			r.End = ""
		}
		service = append(service, r)
	}
	top := f.partitioned(t, ledger.New(f, f.pipeline, ledger.Options{}), service)
	var openings atomic.Int32
	f.together(t, n, func(i int, store ledger.Store) error {
		p := top.Partitions[i]
		for {
			lease, err := acquire(t.Context(), ledger.New(store, f.pipeline, ledger.Options{Lease: time.Millisecond}), p.PartitionID, ledger.Holder(fmt.Sprint(i)))
			if errors.Is(err, ledger.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			opened, err := lease.Close(t.Context(), into(p.Range, keysOf("-")), nil)
			if errors.Is(err, ledger.ErrConflict) || errors.Is(err, ledger.ErrUnavailable) {
				continue
			}
			openings.Add(int32(len(opened)))
			return err
		}
	})
	now := topology(t, ledger.New(f, f.pipeline, ledger.Options{}))
	if held(now) != "-" || len(now.Partitions[0].Tokens) != n || len(now.Pending) != 0 || openings.Load() > 1 {
		t.Errorf("%s with %d tokens, %d pending, opened %d times", held(now), len(now.Partitions[0].Tokens), len(now.Pending), openings.Load())
	}
}

// A partition closes into hundreds, with keys that are no text.
// stream-case: 43
func manySuccessors(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	first := f.partitioned(t, l, keysOf("-")).Partitions[0]
	var targets []rowrange.Range
	last := ""
	for i := range 400 {
		bound := string([]byte{byte(i >> 8), byte(i), 0x80, 0xFF, 0x00, '*'})
		targets = append(targets, rowrange.Range{Start: last, End: bound})
		last = bound
	}
	targets = append(targets, rowrange.Range{Start: last, End: strings.Repeat("\xff", 4096)}, rowrange.Range{Start: strings.Repeat("\xff", 4096)})
	opened, err := holdPartition(t, l, first).Close(t.Context(), into(first.Range, targets), nil)
	top := topology(t, l)
	var got []rowrange.Range
	for _, p := range top.Partitions {
		got = append(got, p.Range)
	}
	if err != nil || len(opened) != len(targets) || !slices.Equal(got, targets) {
		t.Fatalf("%d opened, %d held: %v", len(opened), len(got), err)
	}
}

// A reply is lost at each call of a close in turn: every key keeps one place.
// stream-case: 30
func lostClose(t *testing.T, f *fixture) {
	for i, fault := range []Fault{FaultLost, FaultReplyLost, FaultRepeated, FaultCrash, FaultCrashAfter} {
		for call := 0; ; call++ {
			pipeline := fmt.Sprintf("%s-%d-%d", f.pipeline, i, call)
			l := ledger.New(f, pipeline, ledger.Options{Lease: time.Millisecond})
			top := f.partitioned(t, l, keysOf("-b b-"))
			calls := 0
			faulty := &Faulty{Store: f.Store, Next: func(bool) Fault {
				calls++
				if calls == call+1 {
					return fault
				}
				return FaultNone
			}}
			for _, p := range top.Partitions {
				lease, err := acquire(t.Context(), ledger.New(faulty, pipeline, ledger.Options{Lease: time.Millisecond}), p.PartitionID, "reader")
				if err == nil {
					_, err = lease.Close(t.Context(), into(p.Range, keysOf("-")), nil)
				}
				if err != nil && !errors.Is(err, ErrCrash) && !errors.Is(err, ledger.ErrUnavailable) {
					t.Fatalf("fault %d at call %d: %v", fault, call, err)
				}
			}
			for _, p := range topology(t, l).Partitions { // the next process
				f.await(t, time.Millisecond)
				if _, err := holdPartition(t, l, p).Close(t.Context(), into(p.Range, keysOf("-")), nil); err != nil {
					t.Fatal(err)
				}
			}
			if now := topology(t, l); held(now) != "-" || len(now.Partitions[0].Tokens) == 0 || len(now.Pending) > 0 {
				t.Fatalf("fault %d at call %d: %s, %v", fault, call, held(now), now.Pending)
			}
			if calls <= call {
				break
			}
		}
	}
}

// A range whose other parent splits again before it closes is opened with the token that
// waits, unless a parent has closed since it was decided.
// stream-case: 26
func recoveries(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	top := f.partitioned(t, l, keysOf("-b b-c c-"))
	closeInto := func(p *ledger.Partition, targets string) {
		t.Helper()
		if _, err := holdPartition(t, l, p).Close(t.Context(), into(p.Range, keysOf(targets)), nil); err != nil {
			t.Fatal(err)
		}
	}
	closeInto(top.Partitions[1], "b-")
	service := keysOf("-b b-c c-")
	if done := f.reconcile(t, l, service); len(done.Opened) > 0 {
		t.Fatalf("at the first look: %+v", done)
	}
	lease, err := l.AcquireStream(t.Context(), streamID, "coordinator")
	if err != nil {
		t.Fatal(err)
	}
	past := topology(t, l)
	decided := changestream.Reconcile(past.Compare(service), changestream.Graces{}, past.ReadAt)
	closeInto(top.Partitions[2], "b-") // both parents are there after all
	done, err := lease.Reconcile(t.Context(), past, decided)
	if now := topology(t, l); err != nil || done.Void != 1 || held(now) != "-b b-" {
		t.Fatalf("%+v, %v, %s", done, err, held(now))
	}
	if err := lease.Release(context.WithoutCancel(t.Context()), nil); err != nil {
		t.Fatal(err)
	}
	f.reconcile(t, l, keysOf("-b b-"))
	if now := topology(t, l); held(now) != "-b b-" || len(now.Stream.Missing)+len(now.Pending) > 0 {
		t.Fatalf("%s, missing %v, pending %v", held(now), now.Stream.Missing, now.Pending)
	}
}

// A process that has read a partition without its lease moves its position, also if a reply is
// lost, but not if the partition was taken, given back, refreshed or closed since it was read, nor
// if its holder has not given it back.
func refreshed(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	first := f.partitioned(t, l, keysOf("-")).Partitions[0]
	at := changestream.Position{Token: "beat", LowWatermark: first.Start.Add(time.Second)}
	read := func() *ledger.Partition {
		t.Helper()
		p, err := l.Partition(t.Context(), first.PartitionID)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	lost := func(what string, p *ledger.Partition) {
		t.Helper()
		before := read()
		if err := l.Refresh(t.Context(), p, changestream.Position{Token: "late"}, 0, false); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
		if now := read(); !slices.Equal(now.Tokens, before.Tokens) || now.Fence != before.Fence {
			t.Errorf("%s: %+v became %+v", what, before, now)
		}
	}
	for _, fault := range []Fault{FaultLost, FaultReplyLost, FaultRepeated} {
		p := read()
		faulty := ledger.New(&Faulty{Store: f.Store, Next: onFirstCommit(fault)}, f.pipeline, ledger.Options{})
		if err := faulty.Refresh(t.Context(), p, at, time.Minute, false); err != nil {
			t.Fatal(err)
		}
		now := read()
		if len(now.Tokens) != 1 || now.Tokens[0].Value != "beat" || !now.LowWatermark.Equal(at.LowWatermark) || now.Idle != time.Minute || now.Fence != 0 {
			t.Fatalf("refreshed: %+v", now)
		}
		lost("refreshed since", p)
	}
	p := read()
	lease, err := l.AcquirePartition(t.Context(), p, "reader")
	if err != nil || lease.Fence() != 1 {
		t.Fatalf("%v", err)
	}
	lost("taken since", p)
	lost("held", read())
	if err := lease.Release(t.Context(), nil, 0, ledger.Cause{}); err != nil {
		t.Fatal(err)
	}
	lost("given back since", p)
	p = read()
	if err := l.Refresh(t.Context(), p, at, 0, false); err != nil {
		t.Fatal(err)
	}
	if lease, err = l.AcquirePartition(t.Context(), p, "reader"); err != nil || lease.Partition().Tokens[0].Value != "beat" { // read in the past
		t.Fatalf("%+v, %v", lease.Partition(), err)
	}
	if err := lease.Release(t.Context(), nil, 0, ledger.Cause{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.New(f, f.pipeline, ledger.Options{Lease: time.Millisecond}).AcquirePartition(t.Context(), read(), "dead"); err != nil {
		t.Fatal(err)
	}
	f.await(t, time.Millisecond)
	if p = read(); !p.Abandoned() || p.Left > 0 {
		t.Errorf("%+v", p)
	}
	lost("not given back", p)
	if _, err := holdPartition(t, l, p).Close(t.Context(), into(keysOf("-")[0], keysOf("-b b-")), nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Refresh(t.Context(), p, at, 0, false); !errors.Is(err, ledger.ErrLost) {
		t.Errorf("closed since: %v", err)
	}
	if _, err := l.Partition(t.Context(), first.PartitionID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a partition that has closed: %v", err)
	}
}

// A partition is watched from when it is leased, whatever becomes of its holder, until it is
// unwatched; that it has closed is known until the coordinator forgets it.
func watched(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{})
	top := f.partitioned(t, l, keysOf("-b b-"))
	var closed []ledger.PartitionID
	is := func(want string, wantClosed bool) {
		t.Helper()
		var partitions []*ledger.Partition
		var err error
		partitions, closed, err = l.Watched(t.Context(), streamID)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(partitions, func(a, b *ledger.Partition) int { return strings.Compare(a.Range.Start, b.Range.Start) })
		if got := held(&ledger.Topology{Partitions: partitions}); got != want || (len(closed) > 0) != wantClosed {
			t.Errorf("watched are %q, %v, want %q, %t", got, closed, want, wantClosed)
		}
	}
	is("", false)
	lost := ledger.New(&Faulty{Store: f.Store, Next: onFirstCommit(FaultReplyLost)}, f.pipeline, ledger.Options{Lease: time.Millisecond})
	if _, err := acquire(t.Context(), lost, top.Partitions[0].PartitionID, "dead"); err != nil {
		t.Fatal(err)
	}
	is("-b", false)
	second := holdPartition(t, l, top.Partitions[1])
	is("-b b-", false)
	at := &changestream.Position{Token: "read", LowWatermark: top.Stream.Start}
	if err := second.Release(t.Context(), at, time.Minute, ledger.Cause{}); err != nil {
		t.Fatal(err)
	}
	p, err := l.Partition(t.Context(), top.Partitions[1].PartitionID)
	if err == nil {
		err = l.Refresh(t.Context(), p, *at, time.Minute, true)
	}
	if err != nil || !p.Watched {
		t.Fatalf("%v, %t", err, p.Watched)
	}
	is("-b", false)
	f.await(t, time.Millisecond)
	if _, err := holdPartition(t, l, top.Partitions[0]).Close(t.Context(), into(keysOf("-b")[0], keysOf("-a a-b")), nil); err != nil {
		t.Fatal(err)
	}
	is("", true)
	lease, err := l.AcquireStream(t.Context(), streamID, "coordinator")
	if err == nil {
		err = lease.Forget(t.Context(), closed)
	}
	if err != nil {
		t.Fatal(err)
	}
	is("", false)
	if held(topology(t, l)) != "-a a-b b-" {
		t.Errorf("forgetting has changed the partitions: %s", held(topology(t, l)))
	}
	holdPartition(t, l, topology(t, l).Partitions[2])
	is("b-", false)
}

// onFirstCommit has one commit fail.
func onFirstCommit(fault Fault) func(bool) Fault {
	failed := false
	return func(commit bool) Fault {
		if !commit || failed {
			return FaultNone
		}
		failed = true
		return fault
	}
}

// A completed range is neither missing nor opened again, and nothing of a stream expires.
func completedRange(t *testing.T, f *fixture) {
	l := ledger.New(f, f.pipeline, ledger.Options{Retention: time.Nanosecond})
	top := f.partitioned(t, l, keysOf("-b b-"))
	if err := holdPartition(t, l, top.Partitions[0]).Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if done := f.reconcile(t, l, keysOf("-b b-")); len(done.Opened) > 0 {
			t.Fatalf("%+v", done)
		}
	}
	if now := topology(t, l); held(now) != "b-" || !slices.Equal(now.Completed, keysOf("-b")) || len(now.Stream.Missing) > 0 {
		t.Fatalf("%s, completed %v, missing %v", held(now), now.Completed, now.Stream.Missing)
	}
}
