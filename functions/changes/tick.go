package changes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// tick reconciles a stream and publishes tasks of the partitions that are due. It does
// nothing if another tick holds the stream.
func (f *function) tick(ctx context.Context, s *stream) error {
	retention, err := f.retention(ctx, s)
	if err != nil {
		return err
	}
	_, err = f.cfg.Ledger.BeginStream(ctx, s.id, func(now time.Time) (time.Time, error) {
		return startOf(s.change.Start, now, retention)
	})
	if err != nil {
		return err
	}
	lease, err := f.cfg.Ledger.AcquireStream(ctx, s.id, f.cfg.Holder)
	var held *ledger.HeldError
	if errors.As(err, &held) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.publishDue(ctx, s, lease, s.cadence(retention))
	if errors.Is(err, ledger.ErrLost) {
		return nil // another tick has taken over
	}
	return errors.Join(err, lease.Release(context.WithoutCancel(ctx), err))
}

// publishDue publishes tasks of the partitions that are due: among those that are watched, if
// that is enough, or else among all, which are reconciled then.
func (f *function) publishDue(ctx context.Context, s *stream, lease *ledger.StreamLease, c cadence) error {
	known, now := lease.Stream(), lease.Now()
	enough := now.Before(known.NextList.Add(-Tick / 2))
	var closed []ledger.PartitionID
	if enough || !known.ListedAt.Truncate(forgetEvery).Equal(now.Truncate(forgetEvery)) {
		var watched []*ledger.Partition
		var err error
		if watched, closed, err = f.cfg.Ledger.Watched(ctx, s.id); err != nil {
			return err
		}
		if enough && len(closed) == 0 {
			err := f.publishAll(ctx, s, dueOf(known, watched, nil, now, c))
			if err == nil {
				lease.Ticked(now)
			}
			return err
		}
	}
	listed, err := f.reconcile(ctx, s, lease, c)
	if err == nil {
		err = f.publishAll(ctx, s, listed.due)
	}
	if err == nil {
		err = lease.Forget(ctx, closed)
	}
	if err == nil {
		lease.Listed(listed.at, listed.next)
		f.cfg.Ticked(ctx, listed.found)
	}
	return err
}

// forgetEvery is how often a stream whose partitions are listed at each tick forgets those
// that have closed.
const forgetEvery = time.Hour

// startOf resolves where a stream starts.
func startOf(start pipeline.Start, now time.Time, retention time.Duration) (time.Time, error) {
	at := now
	switch start.Kind {
	case pipeline.StartLatest:
	case pipeline.StartEarliest:
		if retention == 0 {
			return at, errors.New("start: earliest, and nobody knows how long the table keeps its changes")
		}
		at = changestream.Earliest(now, retention)
	case pipeline.StartAgo:
		at = now.Add(-start.Ago)
	case pipeline.StartAt:
		at = start.Time
	default:
		return at, fmt.Errorf("a stream does not start at %s", start.Kind)
	}
	if at.After(now) {
		return at, fmt.Errorf("start lies %s in the future", at.Sub(now).Round(time.Second))
	}
	if retention > 0 {
		at = changestream.Clamp(at, now, retention)
	}
	return at.Truncate(time.Microsecond), nil
}

// listed is what a tick knows that has listed all partitions.
type listed struct {
	due   due
	at    time.Time // when they were listed, by the store's clock
	next  time.Time // when they are to be listed again; zero: at the next tick
	found Reconciliation
}

// reconcile brings the ledger to what the service has.
func (f *function) reconcile(ctx context.Context, s *stream, lease *ledger.StreamLease, c cadence) (l listed, err error) {
	service, err := changeread.Partitions(ctx, s.table, f.cfg.Conn)
	if err != nil {
		return l, err
	}
	top, err := f.cfg.Ledger.Topology(ctx, s.id)
	if err != nil {
		return l, err
	}
	l.at = top.ReadAt
	r := changestream.Reconcile(top.Compare(service), f.cfg.Graces, top.ReadAt)
	l.due = dueOf(top.Stream, top.Partitions, r.Awaited, top.ReadAt, c) // decided before Reconcile opens more
	done, err := lease.Reconcile(ctx, top, r)
	if done.Tokenless > 0 {
		f.cfg.Logger.WarnContext(ctx, "ranges of keys had lost their place and are read again from an hour before it",
			"stream", s.change.Name, "ranges", done.Tokenless)
	}
	l.found = reconciliationOf(s, top, &r, l.due, len(service))
	l.found.Opened, l.found.Tokenless = len(done.Opened), done.Tokenless
	l.due.now = append(done.Opened, l.due.now...)
	if now := lease.Stream(); !now.Initial && len(done.Opened)+len(top.Pending)+len(now.Missing) == 0 {
		l.next = top.ReadAt.Add(c.list(top.Partitions))
	}
	return l, err
}

// Reconciliation says what one tick has found of a stream, and what it has recovered. Ages
// are by the ledger's clock.
type Reconciliation struct {
	Stream     string
	Service    int // partitions that the service has
	Partitions int // those that the ledger has
	Due        int // those of them that a task was published for
	Pending    int // merged partitions that wait for the close of a source
	Missing    int // ranges of keys that nobody holds
	Opened     int // partitions opened by the tick, those of the first tick included
	Tokenless  int // those of them that had lost their place
	// DueLag is the age of the oldest low watermark of partitions that are due, UnheldLag of
	// pending partitions and missing ranges, and Lag of all together; 0: there is none.
	Lag, DueLag, UnheldLag time.Duration
}

func reconciliationOf(s *stream, top *ledger.Topology, r *changestream.Reconciled, due due, service int) Reconciliation {
	t := Reconciliation{
		Stream: s.change.Name, Service: service, Partitions: len(top.Partitions), Due: len(due.now) + len(due.idle),
		Pending: len(top.Pending), Missing: len(r.Missing),
	}
	age := func(lag *time.Duration, lowWatermark time.Time) {
		*lag = max(*lag, top.ReadAt.Sub(lowWatermark))
	}
	for _, p := range top.Partitions {
		age(&t.Lag, p.LowWatermark)
	}
	if !due.oldest.IsZero() {
		age(&t.DueLag, due.oldest)
	}
	for _, p := range top.Pending {
		age(&t.UnheldLag, p.LowWatermark)
	}
	for _, m := range r.Missing {
		age(&t.UnheldLag, m.LowWatermark)
	}
	t.Lag = max(t.Lag, t.UnheldLag)
	return t
}

// due are partitions to be visited, the oldest position first.
type due struct {
	now  []ledger.PartitionID // they are likely to have changes
	idle []ledger.PartitionID
	// oldest is the oldest low watermark of all of them; zero: there are none.
	oldest time.Time
}

func (f *function) publishAll(ctx context.Context, s *stream, d due) error {
	return errors.Join(f.publish(ctx, s, d.now, s.change.MaxStreams), f.publish(ctx, s, d.idle, s.change.MaxStreams*sweepFactor))
}

// dueOf lists those of the partitions whose visit is due. A partition whose close others wait
// for is due at once.
func dueOf(known *ledger.Stream, partitions []*ledger.Partition, awaited []int, at time.Time, c cadence) due {
	var now, idle []*ledger.Partition
	for i, p := range partitions {
		before := known.ListedAt
		if p.Watched {
			before = known.TickedAt
		}
		switch {
		case p.Left > 0:
		case p.Idle == 0 || p.Abandoned() || slices.Contains(awaited, i):
			now = append(now, p)
		case c.due(p, before, at):
			idle = append(idle, p)
		}
	}
	d := due{now: oldestFirst(now), idle: oldestFirst(idle)}
	for _, sorted := range [][]*ledger.Partition{now, idle} {
		if len(sorted) > 0 && (d.oldest.IsZero() || sorted[0].LowWatermark.Before(d.oldest)) {
			d.oldest = sorted[0].LowWatermark
		}
	}
	return d
}

func oldestFirst(partitions []*ledger.Partition) []ledger.PartitionID {
	slices.SortStableFunc(partitions, func(a, b *ledger.Partition) int { return a.LowWatermark.Compare(b.LowWatermark) })
	out := make([]ledger.PartitionID, len(partitions))
	for i, p := range partitions {
		out[i] = p.PartitionID
	}
	return out
}
