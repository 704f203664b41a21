package scanworker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// work is one task under its lease.
type work struct {
	*function
	task     task.Scan
	lease    *ledger.Lease
	plan     *plan
	summary  *Summary
	failed   codes.Code // of the last read that broke off
	failures failures
}

// refusal is a verdict that may be taken back, as by another version of the file. It
// fails the split once it has come often enough.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// isVerdict reports whether the next attempt meets the error too, until somebody acts.
func isVerdict(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) || retry.Classify(err).Persists()
}

// linger is how long a batch waits to be filled.
const linger = 50 * time.Millisecond

// firstCommit is how soon the first rows of a lease are committed: a worker that is killed
// again and again still moves forward.
const firstCommit = time.Second

func (w *work) run(ctx context.Context) error {
	slice, cancel := context.WithTimeout(ctx, w.cfg.Slice)
	defer cancel()
	defer context.AfterFunc(w.cfg.Stopping, cancel)()
	result, err := w.relay(ctx, slice)
	w.noteAll(ctx)
	w.summary.Rows, w.summary.Records, w.summary.Dropped = result.Rows, result.Records, result.Dropped
	return w.settle(ctx, result, err)
}

// relay moves rows until the split is read, the slice is over or something fails.
func (w *work) relay(ctx, slice context.Context) (result relay.Result[string], err error) {
	if w.plan, err = w.function.plan(w.task.Name, w.task.Options); err != nil {
		return result, &retry.Rejected{Err: fmt.Errorf("the pipeline file as it is now: %w", err)}
	}
	// No verdict: the version of the file that the split was planned for may come back.
	if err := scanjob.SameTable(w.lease.Split().Table, w.plan.scan); err != nil {
		return result, &refusal{err}
	}
	size, err := w.steps()
	if err != nil {
		return result, err
	}
	source := &source{name: w.plan.scan.Table.Name,
		emit: w.emitter(), ranges: w.lease.Split().Remaining(), filter: w.plan.filter, skipLarge: w.skipLarge,
	}
	left, limited := w.lease.Split().LimitLeft()
	if len(source.ranges) == 0 || limited && left == 0 {
		result.Done = true
		return result, nil
	}
	source.limit = left
	if source.table, err = w.cfg.Table(ctx, w.plan.scan); err != nil {
		return result, err
	}
	sink, err := w.cfg.Sink(ctx, w.plan.scan)
	if err != nil {
		return result, err
	}
	slice, stop := context.WithCancelCause(slice)
	defer stop(nil)
	if size.careful {
		source.arrived = w.tryOnce(ctx, stop)
	}
	result, err = relay.Run(ctx, slice, relay.Job[unit, string]{
		Source: source, Sink: sink, Size: unit.size, Map: w.appendTo, GiveUp: w.giveUp,
		Position: func(u unit) string { return u.key },
		Commit: func(ctx context.Context, last string, c relay.Counts) error {
			return w.lease.Commit(ctx, progress(last, c))
		},
		Held:    w.lease.Deadline,
		MaxRows: size.rows, MaxBytes: size.bytes, Memory: w.cfg.Memory,
		Linger: linger, CommitEvery: w.cfg.CommitEvery, FirstCommit: size.firstCommit,
	})
	w.summary.Bytes, w.failed = source.bytes, source.failed
	var tried *tryError
	if errors.As(context.Cause(slice), &tried) {
		err = errors.Join(err, tried.err)
	}
	return result, err
}

func progress(last string, c relay.Counts) ledger.Progress {
	return ledger.Progress{Position: last, Counts: ledger.Counts{Rows: c.Rows, Records: c.Records, Dropped: c.Dropped}, Bytes: c.Bytes}
}

// settling is how long the end of a task may take when its delivery has no time left.
const settling = 5 * time.Second

// settle makes the progress durable, gives the lease up and publishes what follows.
func (w *work) settle(ctx context.Context, r relay.Result[string], err error) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settling)
		defer cancel()
	}
	p := progress(r.Last, r.Counts)
	switch {
	case retry.IsRejected(err): // no other attempt can do better
		w.summary.Outcome, w.summary.Reason = OutcomeFailed, err
		return w.finish(ctx, p, err)
	case errors.Is(err, ledger.ErrFinished): // while it was held: the scan was cancelled
		return w.finished(ctx, w.task, w.lease.Split().Task, w.summary)
	case err != nil:
		w.summary.Outcome, w.summary.Reason = OutcomeReturned, err
		if errors.Is(err, ledger.ErrLost) {
			return err
		}
		return errors.Join(err, w.lease.Release(ctx, p, ledger.Cause{Err: err, Fruitless: isVerdict(err)}))
	case r.Done:
		w.summary.Outcome = OutcomeDone
		return w.finish(ctx, p, nil)
	}
	return w.goOn(ctx, r, p)
}

// finish ends the split: done, or failed for a reason.
func (w *work) finish(ctx context.Context, p ledger.Progress, cause error) error {
	var next ledger.FollowUp
	var err error
	if cause != nil {
		next, err = w.lease.Fail(ctx, p, cause)
	} else {
		next, err = w.lease.Finish(ctx, p)
	}
	if err == nil {
		err = w.follow(ctx, w.task, next)
	}
	if err != nil {
		w.summary.Outcome, w.summary.Reason = OutcomeReturned, err
	}
	return err
}

// goOn gives the split back and publishes the task that reads on. If the slice has not
// moved, it refuses its own task instead: Pub/Sub then waits longer each time before it
// delivers the task again, until the task expires.
func (w *work) goOn(ctx context.Context, r relay.Result[string], p ledger.Progress) error {
	w.summary.Outcome = OutcomeContinued
	var cause error
	if !r.Moved && w.cfg.Stopping.Err() == nil {
		cause = fmt.Errorf("no row arrived within %s", w.cfg.Slice)
		if w.failed != codes.OK {
			cause = fmt.Errorf("no row arrived within %s: Bigtable last answered %w", w.cfg.Slice, retry.Bare(w.failed))
		}
	}
	err := w.lease.Release(ctx, p, ledger.Cause{Err: cause})
	if errors.Is(err, ledger.ErrFinished) {
		return w.finished(ctx, w.task, w.lease.Split().Task, w.summary)
	}
	if err == nil {
		err = cause
	}
	if err == nil {
		err = w.cfg.Tasks.Publish(ctx, scanjob.Task(w.lease.Split().Task, w.task.Name, w.task.Options))
	}
	if err != nil {
		w.summary.Outcome, w.summary.Reason = OutcomeReturned, err
	}
	return err
}

// emitter returns what makes a unit of a row.
func (w *work) emitter() func(bigtable.Row) unit {
	e := w.plan.emit.New()
	return func(r bigtable.Row) unit {
		outs, err := e.Row(r)
		u := unit{key: e.Key(), bytes: e.Bytes(), kind: wholeRow}
		switch {
		case err != nil:
			u.extra = &extra{err: err}
		case len(outs) == 1 && e.Plain():
			u.body = outs[0].Body
		case len(outs) > 0:
			u.extra = &extra{records: w.records(u.key, outs)}
		}
		return u
	}
}

func (w *work) records(key string, outs []mapping.Output) []relay.Record {
	records := make([]relay.Record, len(outs))
	for i, o := range outs {
		records[i] = relay.Record{
			Scope: w.task.Scan, Key: key, Index: o.Index, Body: o.Body, OrderingKey: o.OrderingKey, Attributes: o.Attributes,
		}
	}
	return records
}

// appendTo is for relay.Job.Map.
func (w *work) appendTo(u unit, to []relay.Record) ([]relay.Record, error) {
	switch {
	case u.body != nil:
		return append(to, relay.Record{
			Scope: w.task.Scan, Key: u.key, Index: relay.Single, Body: u.body, Attributes: w.plan.emit.Attributes(),
		}), nil
	case u.extra != nil:
		return append(to, u.extra.records...), u.extra.err
	}
	return to, nil
}

// explain says what reading has met, without the service's text, which may quote keys.
func explain(err error, table string) error {
	class := retry.Classify(err)
	switch class.Verdict {
	case retry.VerdictMissing:
		return &retry.Rejected{Err: fmt.Errorf("reading table %s: %s: the table, or a family that the scan names, does not exist", table, class.Code)}
	case retry.VerdictRejected:
		refused := "the scan's filter or ranges"
		if field := btrpc.Refusal(err); field != "" {
			refused = "the scan: " + field
		}
		return &retry.Rejected{Err: fmt.Errorf("reading table %s: %s: the service refuses %s", table, class.Code, refused)}
	}
	return fmt.Errorf("reading table %s: %w", table, retry.Bare(class.Code))
}
