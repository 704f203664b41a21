package changes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Outcome is what became of a visit of a partition.
type Outcome string

// Values of Outcome.
const (
	OutcomeIdle     Outcome = "idle"     // nothing more came
	OutcomeWindow   Outcome = "window"   // the time was over
	OutcomeClosed   Outcome = "closed"   // the partition was replaced by successors
	OutcomeFinished Outcome = "finished" // the end of a bounded stream was reached
	OutcomeHeld     Outcome = "held"     // another holder has it
	OutcomeVoid     Outcome = "void"     // it has been replaced
	OutcomeFailed   Outcome = "failed"   // it went wrong; the next tick brings it back

	// OutcomeMalformed is that of a delivery that is no task of a change stream, or one of
	// another version of this program. It visits nothing, and the next tick brings back what
	// it may have named.
	OutcomeMalformed Outcome = "malformed"
)

// Visit says what became of one visit of a partition.
type Visit struct {
	Message             string // the delivery's id, if it is malformed; it has no stream then
	Stream, Incarnation string
	Outcome             Outcome
	Fence               int64 // under which it was leased; 0: it was not
	ledger.Counts
	Bytes int64
	Opens int64 // streams that the service was asked for
	// Missed is the largest number of heartbeats in a row that were due and did not come.
	Missed int64
	Seen
	// Filtered are the entries that the filter has left out, Skipped the changes that make no
	// record: by dropEmpty, when, or a forEach without elements.
	Filtered, Skipped int64
	// LowWatermark is that of the last position; zero where nothing was acknowledged.
	LowWatermark time.Time
	// Lag is the age of LowWatermark at the end of the visit.
	Lag time.Duration
	// Targets are the partitions into which it was closed: several if it was split, one if it
	// was merged or moved. Successors are those that were opened, which all its sources must
	// have reached.
	Targets, Successors int
	Duration            time.Duration
	Reason              error // why it failed or is malformed
}

// Seen counts heartbeats, and changes of applications and of garbage collection, that the
// service has sent. A change that is read again counts again.
type Seen struct{ Heartbeats, User, Garbage int64 }

// note counts a change or a heartbeat.
func (s *Seen) note(item changestream.Item) {
	switch {
	case item.Heartbeat != nil:
		s.Heartbeats++
	case item.Record.Type == changestream.GarbageCollection:
		s.Garbage++
	default:
		s.User++
	}
}

const (
	// batchRecords and batchBytes end a batch.
	batchRecords = 1000
	batchBytes   = 4 << 20
	// linger is how long a batch waits to be filled.
	linger = 50 * time.Millisecond
	// settling is how long the end of a visit may take when its delivery has no time left.
	settling = 5 * time.Second
)

// work is one visit under its lease.
type work struct {
	*function
	*stream
	lease  *ledger.PartitionLease
	visit  *Visit
	keeps  time.Duration // how long the table keeps its changes; 0: unknown
	source *source
}

// place is a position, and the row key of the change before it, which a dead letter names.
type place struct {
	changestream.Position
	rowKey string
}

type result = relay.Result[place]

// visit reads one partition until slice ends, and reports what became of it.
func (f *function) visit(ctx, slice context.Context, s *stream, id ledger.PartitionID) {
	began := f.cfg.Now()
	v := &Visit{Stream: s.change.Name, Incarnation: id.Incarnation}
	err := f.read(ctx, slice, s, id, v)
	var held *ledger.HeldError
	switch {
	case errors.As(err, &held):
		v.Outcome = OutcomeHeld
	case errors.Is(err, ledger.ErrNotFound):
		v.Outcome = OutcomeVoid
	case err != nil:
		v.Outcome, v.Reason = OutcomeFailed, err
	}
	ended := f.cfg.Now()
	v.Duration = ended.Sub(began)
	if !v.LowWatermark.IsZero() {
		v.Lag = ended.Sub(v.LowWatermark)
	}
	f.cfg.Report(ctx, *v)
}

// read reads a partition: under its lease, unless it is found to have no changes.
func (f *function) read(ctx, slice context.Context, s *stream, id ledger.PartitionID, v *Visit) error {
	p, err := f.cfg.Ledger.Partition(ctx, id)
	if err != nil {
		return err
	}
	if p.Left > 0 {
		return &ledger.HeldError{Left: p.Left}
	}
	if s.sweeps(p) {
		v.Outcome = OutcomeIdle
		quiet, err := f.quiet(slice, s, p, v)
		if quiet || err != nil {
			return err
		}
		if slice.Err() != nil {
			v.Outcome = OutcomeWindow
			return nil
		}
	}
	lease, err := f.cfg.Ledger.AcquirePartition(ctx, p, f.cfg.Holder)
	if err != nil {
		return err
	}
	v.Fence = lease.Fence()
	(&work{function: f, stream: s, lease: lease, visit: v}).run(ctx, slice)
	return nil
}

func (w *work) run(ctx, slice context.Context) {
	r, err := w.relay(ctx, slice)
	if w.source != nil {
		w.visit.Opens += w.source.Opens
		w.visit.Missed = max(w.visit.Missed, w.source.Missed)
	}
	w.visit.Counts = ledger.Counts{Rows: r.Rows, Records: r.Records, Dropped: r.Dropped}
	w.visit.Bytes, w.visit.LowWatermark = r.Bytes, r.Last.LowWatermark
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settling)
		defer cancel()
	}
	if err := w.settle(ctx, r, err); err != nil {
		w.visit.Outcome, w.visit.Reason = OutcomeFailed, err
	}
}

// relay moves changes until the partition closes or is idle, the time is over or something
// fails.
func (w *work) relay(ctx, slice context.Context) (r result, err error) {
	opening, err := w.open(ctx)
	if err != nil {
		return r, err
	}
	sink, err := w.cfg.Sink(ctx, w.change)
	if err != nil {
		return r, err
	}
	w.source = &source{idleStop: w.change.IdleStop, seen: &w.visit.Seen, Reader: changeread.Reader{
		Table: w.table, Conn: w.cfg.Conn, Opening: opening, End: w.change.End, Heartbeat: w.cfg.Heartbeat, MaxBytes: w.change.MaxRecordBytes,
		Reading: w.cfg.reading(ctx, w.change),
	}}
	w.source.make = w.maker()
	return relay.Run(ctx, slice, relay.Job[unit, place]{
		Source: w.source, Sink: sink, Size: unit.size, Map: w.appendTo, GiveUp: w.giveUp,
		Position: unit.place,
		Commit: func(ctx context.Context, last place, _ relay.Counts) error {
			return w.lease.Commit(ctx, &last.Position)
		},
		Held:    w.lease.Deadline,
		MaxRows: batchRecords, MaxBytes: batchBytes, Memory: w.cfg.Memory, Linger: linger, CommitEvery: w.cfg.CommitEvery,
	})
}

// expired is a position that the service does not have any more.
type expired struct{ since, edge time.Time }

func (e *expired) Error() string {
	return fmt.Sprintf("changes from %s on are gone, the table keeps those from %s on: onExpired: fail keeps the position",
		e.since.UTC().Format(time.RFC3339), e.edge.UTC().Format(time.RFC3339))
}

// open returns where the partition is to be read from. Whether a position is expired is
// computed: no status says so reliably.
func (w *work) open(ctx context.Context) (changestream.Opening, error) {
	retention, err := w.retention(ctx, w.stream)
	if err != nil {
		return changestream.Opening{}, err
	}
	w.keeps = retention
	o := w.lease.Partition().Opening
	if retention == 0 {
		return o, nil
	}
	now := w.lease.Now()
	if changestream.Expired(o.LowWatermark, now, retention) {
		edge := changestream.Earliest(now, retention)
		if w.change.OnExpired.Kind == pipeline.StartFail {
			return o, &expired{o.LowWatermark, edge}
		}
		start, err := startOf(w.change.OnExpired, now, retention)
		if err != nil {
			return o, fmt.Errorf("onExpired: %w", err)
		}
		w.cfg.Logger.ErrorContext(ctx, "changes are lost: a position was older than what the table keeps",
			"stream", w.change.Name, "from", o.LowWatermark, "to", start)
		if err := w.lease.Restart(ctx, start); err != nil {
			return o, err
		}
		o = w.lease.Partition().Opening
	}
	if len(o.Tokens) == 0 {
		o.Start = changestream.Clamp(o.Start, now, retention)
	}
	return o, nil
}

// appendTo makes the records of a change, or takes those that were made while it was read.
func (w *work) appendTo(u unit, to []relay.Record) ([]relay.Record, error) {
	switch {
	case u.record == nil:
		return to, nil
	case u.made != nil:
		return w.appendMade(u, to)
	}
	body, filtered, err := w.emit.Body(u.record)
	if err != nil {
		return to, err
	}
	w.visit.Filtered += int64(filtered)
	if body == nil {
		w.visit.Skipped++
		return to, nil
	}
	return append(to, relay.Record{
		Scope: w.id.Table, Key: w.emit.ID(u.record), Index: relay.Single, Body: body, OrderingKey: w.emit.OrderingKey(u.record),
		Attributes: w.emit.Attributes(),
	}), nil
}

func (w *work) appendMade(u unit, to []relay.Record) ([]relay.Record, error) {
	w.visit.Filtered += int64(u.made.filtered)
	if u.made.err != nil {
		return to, u.made.err
	}
	if len(u.made.outputs) == 0 {
		w.visit.Skipped++
		return to, nil
	}
	id := w.emit.ID(u.record)
	for _, o := range u.made.outputs {
		to = append(to, relay.Record{
			Scope: w.id.Table, Key: id, Index: o.Index, Body: o.Body, OrderingKey: o.OrderingKey, Attributes: o.Attributes,
		})
	}
	return to, nil
}

// maker returns what the source makes of each change; nil if there is nothing that it must see
// before the change is put into one batch with later ones of its row.
func (w *work) maker() func(*changestream.Record) (*made, error) {
	switch {
	case w.emit.IsWhole() && w.goesOn():
		return nil
	case w.emit.IsWhole():
		return func(r *changestream.Record) (*made, error) { return nil, w.refused(w.emit.Check(r)) }
	}
	changer := w.emit.New()
	return func(r *changestream.Record) (*made, error) {
		outs, filtered, err := changer.Change(r)
		if err != nil && !w.goesOn() {
			return nil, w.refused(err)
		}
		return &made{slices.Clone(outs), filtered, err}, nil
	}
}

// refused returns why the reading ends at a change that cannot be delivered; nil for nil.
func (w *work) refused(err error) error {
	if err != nil {
		return undeliverable(err)
	}
	return nil
}

// undeliverable returns why the stream does not go on, under onFailure: fail, behind a change
// that was rejected.
func undeliverable(err error) error {
	return fmt.Errorf("onFailure: fail, and a change cannot be delivered: %w", err)
}

// goesOn reports whether the stream goes on behind a change that cannot be delivered.
func (w *work) goesOn() bool {
	return w.change.OnFailure == pipeline.PolicyDrop || w.change.OnFailure == pipeline.PolicyDeadLetter
}

// giveUp hands what can never be delivered to the stream's policy.
func (w *work) giveUp(ctx context.Context, failures []relay.Failure[place]) error {
	policy := w.change.OnFailure
	if !w.goesOn() {
		return undeliverable(failures[0].Err)
	}
	w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "changes cannot be delivered", slog.String("stream", w.change.Name),
		slog.String("policy", string(policy)), slog.Int("count", len(failures)), slog.String("error", failures[0].Err.Error()))
	if policy == pipeline.PolicyDrop {
		return nil
	}
	letters := make([]deadletter.Letter, len(failures))
	for i, f := range failures {
		letters[i] = deadletter.Letter{Mapping: w.change.Name, Error: f.Err.Error(), Time: w.cfg.Now(), Table: w.id.Table}
		letters[i].SetOutput(f.Body(), mapping.KeyRecord(w.change.Table, f.Position.rowKey))
	}
	if err := w.cfg.DeadLetters.Put(ctx, letters); err != nil {
		return fmt.Errorf("keeping %d dead letters: %w", len(letters), err)
	}
	return nil
}

// settle makes the position durable, and hands the partition over where it has closed.
func (w *work) settle(ctx context.Context, r result, err error) error {
	var at *changestream.Position
	if r.Moved {
		at = &r.Last.Position
	}
	switch {
	case errors.Is(err, ledger.ErrLost):
		return err
	case err != nil:
		return errors.Join(err, w.lease.Release(ctx, at, 0, ledger.Cause{Err: err, Fruitless: isVerdict(err)}))
	case r.Done && w.source.closed != nil:
		return w.close(ctx, at)
	case r.Done:
		w.visit.Outcome = OutcomeIdle
	default:
		w.visit.Outcome = OutcomeWindow
	}
	return w.lease.Release(ctx, at, w.idle(), ledger.Cause{})
}

// isVerdict reports whether the next visit meets the error too, until somebody acts.
func isVerdict(err error) bool {
	var e *expired
	return retry.IsRejected(err) || errors.As(err, &e) || errors.Is(err, changestream.ErrProtocol) || retry.Classify(err).Persists()
}

// idle is how long the partition may wait for its next visit. It does not wait while it has
// more changes than a visit takes.
func (w *work) idle() time.Duration {
	switch {
	case w.source.changes == 0:
		return w.cadence(w.keeps).next(w.lease.Partition().Idle)
	case w.visit.Outcome == OutcomeIdle:
		return soon
	}
	return 0
}

// close replaces the partition by its successors, and has them read at once.
func (w *work) close(ctx context.Context, at *changestream.Position) error {
	closed, err := changestream.ReadClose(w.lease.Partition().Range, w.source.closed)
	switch {
	case err != nil:
		return errors.Join(err, w.lease.Release(ctx, at, 0, ledger.Cause{Err: err, Fruitless: true}))
	case closed.Finished && !w.change.End.IsZero():
		w.visit.Outcome = OutcomeFinished
		return w.lease.Complete(ctx)
	case closed.Finished: // nobody has asked for an end
		w.visit.Outcome = OutcomeIdle
		return w.lease.Release(ctx, at, 0, ledger.Cause{})
	}
	opened, err := w.lease.Close(ctx, closed.Successors, at)
	if err != nil {
		return errors.Join(err, w.lease.Release(ctx, at, 0, ledger.Cause{Err: err}))
	}
	w.visit.Outcome, w.visit.Targets, w.visit.Successors = OutcomeClosed, len(closed.Successors), len(opened)
	if err := w.publish(ctx, w.stream, opened, w.change.MaxStreams); err != nil {
		w.cfg.Logger.WarnContext(ctx, "the successors of a partition wait for the next tick", "stream", w.change.Name, "error", err)
	}
	return nil
}
