package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxFruitless is how often in a row a split may be leased without its position
// moving; leased once more it is failed, with its last error.
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

// HeldError: another holder has the split.
type HeldError struct {
	Task Task
	// Left is how long its lease lasts if it commits nothing more.
	Left time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by another worker for up to %s", e.Task.describe(), e.Left.Round(time.Millisecond))
}

// Progress is how far a holder has come since it acquired its lease.
type Progress struct {
	// Position is the last row key that is acknowledged, with all before it, whether
	// or not it yielded a record; empty: it has not moved.
	Position string
	// Counts are totals since the lease was acquired, so that saying them again
	// after an error adds nothing twice.
	Counts
}

// Lease is the right to move one split forward. It is for one goroutine at a time.
type Lease struct {
	ledger   *Ledger
	task     Task
	fence    int64
	base     Counts // when it was acquired
	doc      Doc    // as last known
	split    *Split
	deadline time.Time
	over     error
}

// Acquire takes the lease of a split that nobody holds, or whose lease is over by
// the store's clock, and raises its fence. holder is a name for people. The error
// is a *HeldError, ErrFinished, ErrWaiting or ErrNotFound where that is why not.
//
// A split that was leased MaxFruitless times without progress is failed here, and
// then finished.
func (l *Ledger) Acquire(ctx context.Context, t Task, holder string) (*Lease, error) {
	lease, err := l.acquire(ctx, t, holder)
	if err == nil && lease.split.Fruitless > MaxFruitless {
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

func (l *Ledger) acquire(ctx context.Context, t Task, holder string) (*Lease, error) {
	if holder == "" {
		return nil, errors.New("a holder needs a name")
	}
	before := time.Now()
	doc, err := l.get(ctx, l.splitKey(t))
	if err != nil {
		return nil, err
	}
	doc, err = l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
		s, err := decodeSplit(doc)
		if err != nil {
			return nil, nil, err
		}
		if err := s.free(doc); err != nil {
			return nil, nil, err
		}
		s.Fence++
		s.Fruitless++
		s.Holder, s.LeaseMillis = holder, l.lease.Milliseconds()
		return s, nil, nil
	})
	if err != nil {
		return nil, err
	}
	lease := &Lease{ledger: l, task: t}
	if err := lease.keep(doc, before); err != nil {
		return nil, err
	}
	lease.fence, lease.base = lease.split.Fence, lease.split.Counts
	return lease, nil
}

// free returns why the split, read as doc, cannot be leased.
func (s *splitDoc) free(doc Doc) error {
	switch {
	case s.finished():
		return ErrFinished
	case s.State == SplitWaiting:
		return ErrWaiting
	case s.Holder != "":
		if left := doc.UpdatedAt.Add(s.leaseTime()).Sub(doc.ReadAt); left > 0 {
			return &HeldError{Task: s.task(), Left: left}
		}
	}
	return nil
}

// keep notes the split as written, no earlier than before.
func (s *Lease) keep(doc Doc, before time.Time) error {
	d, err := decodeSplit(doc)
	if err != nil {
		return err
	}
	s.doc, s.split, s.deadline = doc, d.split(doc.UpdatedAt), before.Add(s.ledger.lease)
	return nil
}

// Split returns the split as of the last commit; its times are those of the last
// read.
func (s *Lease) Split() *Split { return s.split }

// Fence returns the fence under which the split is held.
func (s *Lease) Fence() int64 { return s.fence }

// Deadline is until when, by this process's clock, nobody else can have taken the
// split: what is sent to a sink later may be sent by another holder too. A commit
// moves it. A commit after it succeeds if nobody has.
func (s *Lease) Deadline() time.Time { return s.deadline }

// Commit makes p durable and renews the lease. An error that wraps ErrLost is
// final; after any other, the lease may be tried again, with the same progress or more.
func (s *Lease) Commit(ctx context.Context, p Progress) error {
	return s.write(ctx, p, "committing", func(d *splitDoc) { d.LeaseMillis = s.ledger.lease.Milliseconds() })
}

// Release makes p durable and gives the split back, for anyone to take at once.
// cause, where there is one, is kept as why; its text must not quote user data.
func (s *Lease) Release(ctx context.Context, p Progress, cause error) error {
	err := s.write(ctx, p, "releasing", func(d *splitDoc) {
		d.Holder, d.LeaseMillis = "", 0
		if cause != nil {
			d.LastError = clip(cause.Error())
		}
	})
	if err == nil {
		s.over = errors.New("the lease was given back")
	}
	return err
}

func (s *Lease) write(ctx context.Context, p Progress, doing string, change func(*splitDoc)) error {
	return s.edit(ctx, p, doing, func(d *splitDoc, _ Doc) ([]Write, error) {
		change(d)
		return nil, nil
	})
}

// edit changes the split as its holder.
func (s *Lease) edit(ctx context.Context, p Progress, doing string, change func(*splitDoc, Doc) ([]Write, error)) error {
	err := s.over
	if err == nil {
		err = s.tryEdit(ctx, p, change)
	}
	if errors.Is(err, ErrLost) {
		s.over = ErrLost
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", doing, s.task.describe(), err)
	}
	return nil
}

func (s *Lease) tryEdit(ctx context.Context, p Progress, change func(*splitDoc, Doc) ([]Write, error)) error {
	before := time.Now()
	doc, err := s.ledger.edit(ctx, s.doc, func(doc Doc) (stamped, []Write, error) {
		d, err := s.mine(doc)
		if err != nil {
			return nil, nil, err
		}
		if err := d.advance(s.base, p); err != nil {
			return nil, nil, err
		}
		rest, err := change(d, doc)
		return d, rest, err
	})
	if err != nil {
		return err
	}
	return s.keep(doc, before)
}

// mine returns the split if this lease still holds it. Under one fence there is
// one holder, so whatever else was written under it was written here.
func (s *Lease) mine(doc Doc) (*splitDoc, error) {
	d, err := decodeSplit(doc)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && d.Fence != s.fence:
		return nil, ErrLost
	case err != nil:
		return nil, err
	case d.finished():
		return nil, ErrFinished
	}
	return d, nil
}

// advance moves the split to p.
func (s *splitDoc) advance(base Counts, p Progress) error {
	s.Counts = base.plus(p.Counts)
	if p.Position == "" {
		return nil
	}
	switch position := []byte(p.Position); bytes.Compare(position, s.Position) {
	case -1:
		return errors.New("the position would move backwards")
	case 1:
		s.Position, s.Fruitless = position, 0
	}
	return nil
}
