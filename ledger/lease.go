package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxFruitless is how many holders in a row may give a split back on a verdict without
// its position moving; leased once more it is failed, with the last error. What passes by
// itself counts for nothing, and neither does the death of a holder.
const MaxFruitless = 20

var (
	// ErrFinished: there is nothing left to do for the split. What may be left to
	// publish, FollowUp says.
	ErrFinished = errors.New("the split is finished")
	// ErrWaiting: it is not the split's turn; its task is published when it is.
	ErrWaiting = errors.New("the split before this one is not finished")
	// ErrLost: another holder has taken the split, or may have: what was read under
	// this lease since its last commit does not count.
	ErrLost = errors.New("the lease is lost")
)

// HeldError: another holder has the document.
type HeldError struct {
	Task Task // of a split; else zero
	// Left is how long its lease lasts if it commits nothing more.
	Left time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	what := "the document"
	if e.Task != (Task{}) {
		what = e.Task.describe()
	}
	return fmt.Sprintf("%s is held by another worker for up to %s", what, e.Left.Round(time.Millisecond))
}

// Progress is how far a holder has come since it acquired its lease.
type Progress struct {
	// Position is the last row key that is acknowledged, with all before it, whether
	// or not it yielded a record; empty: it has not moved.
	Position string
	// Counts are totals since the lease was acquired, so that saying them again
	// after an error adds nothing twice.
	Counts
	// Bytes is what the rows held, a total as Counts are.
	Bytes int64
}

// Lease is the right to move one split forward. It is for one goroutine at a time.
type Lease struct {
	doc   *DocLease[splitDoc, *splitDoc]
	task  Task
	base  Progress // when it was acquired
	split *Split
}

// Acquire takes the lease of a split that nobody holds, or whose lease is over by
// the store's clock, and raises its fence. holder is the process that takes it. The error
// is a *HeldError, ErrFinished, ErrWaiting or ErrNotFound where that is why not.
//
// A split that was given back MaxFruitless times on a verdict, without progress, is
// failed here, and then finished.
func (l *Ledger) Acquire(ctx context.Context, t Task, holder Holder) (*Lease, error) {
	lease, err := l.acquire(ctx, t, holder)
	if err == nil && lease.split.Fruitless >= MaxFruitless {
		cause := fmt.Errorf("leased %d times without progress, last error: %s", MaxFruitless, lease.split.LastError)
		if _, err = lease.Fail(ctx, Progress{}, cause); err == nil {
			err = ErrFinished
		}
	}
	if err != nil {
		return nil, fmt.Errorf("acquiring %s: %w", t.describe(), err)
	}
	return lease, nil
}

func (l *Ledger) acquire(ctx context.Context, t Task, holder Holder) (*Lease, error) {
	doc, err := AcquireDoc(ctx, l, l.splitKey(t), holder, (*splitDoc).refuse)
	var held *HeldError
	if errors.As(err, &held) {
		held.Task = t
	}
	if err != nil {
		return nil, err
	}
	s := &Lease{doc: doc, task: t, base: Progress{Position: string(doc.value.Position), Counts: doc.value.Counts, Bytes: doc.value.Bytes}}
	s.keep()
	return s, nil
}

// refuse returns why the split cannot be leased, whoever holds it.
func (s *splitDoc) refuse() error {
	switch {
	case s.finished():
		return ErrFinished
	case s.State == SplitWaiting:
		return ErrWaiting
	}
	return nil
}

// keep notes the split as written.
func (s *Lease) keep() { s.split = s.doc.value.split(s.doc.doc) }

// Split returns the split as of the last commit; its times are those of the last
// read.
func (s *Lease) Split() *Split { return s.split }

// Fence returns the fence under which the split is held.
func (s *Lease) Fence() int64 { return s.doc.fence }

// Deadline is until when, by this process's clock, nobody else can have taken the
// split: what is sent to a sink later may be sent by another holder too. A commit
// moves it. A commit after it succeeds if nobody has.
func (s *Lease) Deadline() time.Time { return s.doc.deadline }

// Commit makes p durable and renews the lease. An error that wraps ErrLost is
// final; after any other, the lease may be tried again, with the same progress or more.
func (s *Lease) Commit(ctx context.Context, p Progress) error {
	return s.settle("committing", s.doc.Commit(ctx, s.advance(p)))
}

// Try renews the lease and says that the rows at the position have begun to arrive: where
// ManyDeaths holders have died there, the death of this one counts only from then on.
func (s *Lease) Try(ctx context.Context) error {
	return s.settle("trying", s.doc.Try(ctx))
}

// Release makes p durable and gives the split back, for anyone to take at once. The cause
// counts as fruitless only if the position has not moved under this lease.
func (s *Lease) Release(ctx context.Context, p Progress, cause Cause) error {
	if at := max(p.Position, string(s.doc.value.Position)); at != s.base.Position {
		cause.Fruitless = false
	}
	return s.settle("releasing", s.doc.Release(ctx, cause, s.advance(p)))
}

// advance returns what moves the split to p.
func (s *Lease) advance(p Progress) func(*splitDoc) error {
	return func(d *splitDoc) error {
		if d.finished() {
			return ErrFinished
		}
		return d.advance(s.base, p)
	}
}

func (s *Lease) settle(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", doing, s.task.describe(), err)
	}
	s.keep()
	return nil
}

// advance moves the split to p.
func (s *splitDoc) advance(base, p Progress) error {
	s.Counts, s.Bytes = base.plus(p.Counts), base.Bytes+p.Bytes
	if p.Position == "" {
		return nil
	}
	switch position := []byte(p.Position); bytes.Compare(position, s.Position) {
	case -1:
		return errors.New("the position would move backwards")
	case 1:
		s.Position, s.Fruitless, s.Deaths = position, 0, 0
	}
	return nil
}
