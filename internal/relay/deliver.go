package relay

import (
	"context"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

type run[U, P any] struct {
	Job[U, P]
	memory    *share
	result    Result[P]
	committed time.Time // or when the first commit would have been due
	renewal   time.Time // when Held has come near
	first     bool      // nothing is committed yet
	open      bool      // a record is acknowledged and not committed
	moved     bool      // the position is not committed
	// Of the batch at hand; reused.
	records  []Record
	owners   []int // the unit of each record
	units    []state[P]
	failures []Failure[P]
	failed   []int // the unit of each failure
}

// state is what is kept of a unit while its records are sent.
type state[P any] struct {
	size          Size
	position      P
	sent, dropped int // records
}

func newRun[U, P any](j Job[U, P]) *run[U, P] {
	r := &run[U, P]{Job: j, memory: j.Memory.share(), first: true}
	r.started(time.Now())
	if j.FirstCommit > 0 {
		r.committed = r.committed.Add(min(j.FirstCommit, j.CommitEvery) - j.CommitEvery)
	}
	return r
}

// started notes that all is committed.
func (r *run[U, P]) started(now time.Time) {
	r.committed, r.open, r.moved = now, false, false
	if r.Held != nil {
		left := r.Held().Sub(now)
		r.renewal = now.Add(min(left*2/3, left-r.CommitEvery))
	}
}

// drain delivers batch after batch until the source has ended, and commits now and
// then, also while the source is silent.
func (r *run[U, P]) drain(ctx context.Context, q *queue[U]) error {
	timer := time.NewTimer(r.CommitEvery)
	defer timer.Stop()
	for {
		var wake <-chan time.Time
		if at := r.due(); !at.IsZero() {
			timer.Reset(time.Until(at))
			wake = timer.C
		}
		batch, ok := q.take(ctx, r.Linger, wake)
		if !ok {
			return nil
		}
		if len(batch) > 0 {
			if err := r.deliver(ctx, batch); err != nil {
				return err
			}
			r.memory.release(r.held())
			q.recycle(batch)
		}
		if at := r.due(); at.IsZero() || time.Now().Before(at) {
			continue
		}
		if err := r.Commit(ctx, r.result.Last, r.result.Counts); err != nil {
			return err
		}
		r.first = false
		r.started(time.Now())
	}
}

// due returns when it is time to commit; zero: there is no reason to.
func (r *run[U, P]) due() time.Time {
	if !r.moved {
		return time.Time{}
	}
	at := r.renewal
	if r.open || r.first && r.FirstCommit > 0 {
		if next := r.committed.Add(r.CommitEvery); at.IsZero() || next.Before(at) {
			at = next
		}
	}
	return at
}

// held is what the units of the batch at hand take of the memory.
func (r *run[U, P]) held() (n int64) {
	for _, u := range r.units {
		n += r.memory.counted(u.size.Bytes)
	}
	return n
}

// deliver sends a batch's records, hands on what can never be sent, and moves the
// result past the units that are done with: all of them, or those before the first
// that is not. The units are let go of as soon as their records are made.
func (r *run[U, P]) deliver(ctx context.Context, batch []U) error {
	r.mapAll(batch)
	clear(batch)
	ctx, cancel := r.whileHeld(ctx)
	defer cancel()
	done := len(batch)
	err := r.send(ctx, &done)
	if stop := r.giveUp(ctx, &done); stop != nil {
		err = stop
	}
	r.advance(r.units[:done])
	clear(r.records) // so that they do not outlive their batch
	clear(r.failures)
	return err
}

// whileHeld returns a context that ends when the units may be another's to send.
func (r *run[U, P]) whileHeld(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Held == nil {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, r.Held(), ErrOvertaken)
}

func (r *run[U, P]) mapAll(batch []U) {
	r.records, r.owners, r.failures, r.failed = r.records[:0], r.owners[:0], r.failures[:0], r.failed[:0]
	r.units = r.units[:0]
	for i, u := range batch {
		r.units = append(r.units, state[P]{size: r.Size(u), position: r.Position(u)})
		records, err := r.Map(u, r.records)
		if err != nil {
			r.fail(i, nil, err)
			continue
		}
		r.records = records
		for len(r.owners) < len(records) {
			r.owners = append(r.owners, i)
		}
	}
}

func (r *run[U, P]) fail(unit int, record *Record, err error) {
	r.failures = append(r.failures, Failure[P]{Position: r.units[unit].position, Record: record, Err: err})
	r.failed = append(r.failed, unit)
}

// send lowers done to the first unit that is not known to be durable, and returns why.
func (r *run[U, P]) send(ctx context.Context, done *int) error {
	if len(r.records) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		*done = 0
		return context.Cause(ctx)
	}
	errs := r.Sink.Send(ctx, r.records)
	var first error
	for i, unit := range r.owners {
		switch {
		case errs == nil || errs[i] == nil:
			r.units[unit].sent++
		case retry.IsRejected(errs[i]):
			r.fail(unit, &r.records[i], errs[i])
		case unit < *done:
			*done, first = unit, errs[i]
		}
	}
	return first
}

// giveUp hands on the failures of units before done, and lowers it to the first of
// them if they are not taken.
func (r *run[U, P]) giveUp(ctx context.Context, done *int) error {
	first, n := *done, 0
	for i, unit := range r.failed {
		if unit < *done {
			r.failures[n], r.failed[n] = r.failures[i], unit
			n++
			first = min(first, unit)
		}
	}
	if n == 0 {
		return nil
	}
	err := context.Cause(ctx)
	if err == nil {
		err = r.GiveUp(ctx, r.failures[:n])
	}
	if err != nil {
		*done = first
		return err
	}
	for _, unit := range r.failed[:n] {
		r.units[unit].dropped++
	}
	return nil
}

func (r *run[U, P]) advance(units []state[P]) {
	for _, u := range units {
		r.result.Rows += int64(u.size.Rows)
		r.result.Dropped += int64(u.size.Dropped + u.dropped)
		r.result.Records += int64(u.sent)
		r.result.Bytes += u.size.Bytes
		r.result.Last, r.result.Moved, r.moved = u.position, true, true
		r.open = r.open || u.sent+u.dropped+u.size.Dropped > 0
	}
}
