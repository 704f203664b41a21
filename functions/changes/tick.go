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
	due, found, err := f.reconcile(ctx, s, lease, s.cadence(retention))
	if errors.Is(err, ledger.ErrLost) {
		return nil // another tick has taken over
	}
	if err == nil {
		err = errors.Join(f.publish(ctx, s, due.now, s.change.MaxStreams), f.publish(ctx, s, due.idle, s.change.MaxStreams*sweepFactor))
	}
	if err == nil {
		lease.Ticked(due.at)
		f.cfg.Ticked(ctx, found)
	}
	return errors.Join(err, lease.Release(context.WithoutCancel(ctx), err))
}

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

// reconcile brings the ledger to what the service has, and returns the partitions that
// are due.
func (f *function) reconcile(ctx context.Context, s *stream, lease *ledger.StreamLease, c cadence) (due due, found Reconciliation, err error) {
	conn, err := f.cfg.Conn(ctx, s.change)
	if err != nil {
		return due, found, err
	}
	service, err := changeread.Partitions(ctx, s.table, conn)
	if err != nil {
		return due, found, err
	}
	top, err := f.cfg.Ledger.Topology(ctx, s.id)
	if err != nil {
		return due, found, err
	}
	r := changestream.Reconcile(top.Compare(service), f.cfg.Graces, top.ReadAt)
	due = dueOf(top, r.Awaited, c) // decided before Reconcile opens more
	done, err := lease.Reconcile(ctx, top, r)
	if done.Tokenless > 0 {
		f.cfg.Logger.WarnContext(ctx, "ranges of keys had lost their place and are read again from an hour before it",
			"stream", s.change.Name, "ranges", done.Tokenless)
	}
	found = reconciliationOf(s, top, &r, due, len(service))
	found.Opened, found.Tokenless = len(done.Opened), done.Tokenless
	due.now = append(done.Opened, due.now...)
	return due, found, err
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
	tasks := map[string]bool{}
	for _, p := range slices.Concat(due.now, due.idle) {
		tasks[p.Incarnation] = true
	}
	for _, p := range top.Partitions {
		age(&t.Lag, p.LowWatermark)
		if tasks[p.Incarnation] {
			age(&t.DueLag, p.LowWatermark)
		}
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

// due are the partitions that a tick has visited, the oldest position first.
type due struct {
	at   time.Time            // by the store's clock
	now  []ledger.PartitionID // they are likely to have changes
	idle []ledger.PartitionID
}

// dueOf lists the partitions whose visit is due. A partition whose close others wait for is
// due at once.
func dueOf(top *ledger.Topology, awaited []int, c cadence) due {
	var now, idle []*ledger.Partition
	for i, p := range top.Partitions {
		switch {
		case p.Left > 0:
		case p.Idle == 0 || p.Abandoned() || slices.Contains(awaited, i):
			now = append(now, p)
		case c.due(p, top.Stream.TickedAt, top.ReadAt):
			idle = append(idle, p)
		}
	}
	return due{at: top.ReadAt, now: oldestFirst(now), idle: oldestFirst(idle)}
}

func oldestFirst(partitions []*ledger.Partition) []ledger.PartitionID {
	slices.SortStableFunc(partitions, func(a, b *ledger.Partition) int { return a.LowWatermark.Compare(b.LowWatermark) })
	out := make([]ledger.PartitionID, len(partitions))
	for i, p := range partitions {
		out[i] = p.PartitionID
	}
	return out
}
