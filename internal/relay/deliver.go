package relay

import (
	"context"
	"errors"
	"time"
)

type run[U any] struct {
	Job[U]
	result    Result[U]
	committed time.Time
	// Of the batch at hand; reused.
	records  []Record
	owners   []int // the unit of each record
	tallies  []tally
	failures []Failure[U]
	failed   []int // the unit of each failure
}

// tally is what became of one unit's records.
type tally struct{ sent, dropped int }

// drain delivers batch after batch until the source has ended.
func (r *run[U]) drain(ctx context.Context, q *queue[U]) error {
	for {
		batch, ok := q.take(ctx, r.Linger)
		if !ok {
			return nil
		}
		if err := r.deliver(ctx, batch); err != nil {
			return err
		}
		q.recycle(batch)
		if time.Since(r.committed) < r.CommitEvery {
			continue
		}
		if err := r.Commit(ctx, r.result.Last, r.result.Counts); err != nil {
			return err
		}
		r.committed = time.Now()
	}
}

// deliver sends a batch's records, hands on what can never be sent, and moves the
// result past the units that are done with: all of them, or those before the first
// that is not.
func (r *run[U]) deliver(ctx context.Context, batch []U) error {
	r.mapAll(batch)
	done := len(batch)
	err := r.send(ctx, batch, &done)
	if stop := r.giveUp(ctx, &done); stop != nil {
		err = stop
	}
	r.advance(batch[:done])
	return err
}

func (r *run[U]) mapAll(batch []U) {
	clear(r.records) // so that they do not outlive their batch
	r.records, r.owners, r.failures, r.failed = r.records[:0], r.owners[:0], r.failures[:0], r.failed[:0]
	r.tallies = append(r.tallies[:0], make([]tally, len(batch))...)
	for i, u := range batch {
		records, err := r.Map(u)
		if err != nil {
			r.fail(i, Failure[U]{Unit: u, Err: err})
			continue
		}
		for _, record := range records {
			r.records, r.owners = append(r.records, record), append(r.owners, i)
		}
	}
}

func (r *run[U]) fail(unit int, f Failure[U]) {
	r.failures, r.failed = append(r.failures, f), append(r.failed, unit)
}

// send lowers done to the first unit that is not known to be durable, and returns why.
func (r *run[U]) send(ctx context.Context, batch []U, done *int) error {
	if len(r.records) == 0 {
		return nil
	}
	if r.Held != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, r.Held(), ErrOvertaken)
		defer cancel()
	}
	if ctx.Err() != nil {
		*done = 0
		return context.Cause(ctx)
	}
	errs := r.Sink.Send(ctx, r.records)
	var first error
	for i, unit := range r.owners {
		var rejected *Rejected
		switch {
		case errs == nil || errs[i] == nil:
			r.tallies[unit].sent++
		case errors.As(errs[i], &rejected):
			r.fail(unit, Failure[U]{Unit: batch[unit], Record: &r.records[i], Err: errs[i]})
		case unit < *done:
			*done, first = unit, errs[i]
		}
	}
	return first
}

// giveUp hands on the failures of units before done, and lowers it to the first of
// them where they are not taken.
func (r *run[U]) giveUp(ctx context.Context, done *int) error {
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
	if err := r.GiveUp(ctx, r.failures[:n]); err != nil {
		*done = first
		return err
	}
	for _, unit := range r.failed[:n] {
		r.tallies[unit].dropped++
	}
	return nil
}

func (r *run[U]) advance(units []U) {
	for i, u := range units {
		size := r.Size(u)
		r.result.Rows += int64(size.Rows)
		r.result.Dropped += int64(size.Dropped + r.tallies[i].dropped)
		r.result.Records += int64(r.tallies[i].sent)
		r.result.Last, r.result.Moved = u, true
	}
}
