package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Cancelled is the error of a scan that was cancelled, and of its splits.
const Cancelled = "cancelled"

// stopsAtOnce bounds the splits that Cancel ends at a time.
const stopsAtOnce = 16

// Cancel fails a scan that is not finished: no split of it can be leased any more, and
// a holder of one gets ErrFinished at its next commit. The error is
// ErrScanFinished where the scan has come to another end. To cancel again does no harm, and
// goes on where a Cancel has died.
//
// The scan is failed before its splits are, so that nobody plans or completes it
// meanwhile; its counts are those of all splits once Cancel returns.
func (l *Ledger) Cancel(ctx context.Context, id string) (*Scan, error) {
	scan, err := l.editScan(ctx, id, "cancelling", func(s *Scan, now time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.cancelled():
			return s, errSettled
		case s.Finished():
			return nil, fmt.Errorf("it is %s: %w", s.State, ErrScanFinished)
		}
		s.State, s.Error, s.FinishedAt = ScanFailed, Cancelled, now
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.stopSplits(ctx, scan); err != nil {
		return nil, fmt.Errorf("cancelling scan %q: %w", id, err)
	}
	return l.recount(ctx, scan)
}

// ErrScanFinished: the scan is done or has failed.
var ErrScanFinished = errors.New("there is nothing left to cancel")

func (s *Scan) cancelled() bool { return s.State == ScanFailed && s.Error == Cancelled }

func (l *Ledger) stopSplits(ctx context.Context, scan *Scan) error {
	var open []Task
	err := l.eachSplit(ctx, scan, func(s *splitDoc, _ Doc) error {
		if !s.finished() {
			open = append(open, s.task())
		}
		return nil
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(stopsAtOnce)
	for _, t := range open {
		g.Go(func() error { return l.stop(ctx, t) })
	}
	return g.Wait()
}

// stop fails a split, whoever holds it.
func (l *Ledger) stop(ctx context.Context, t Task) error {
	err := AmendDoc(ctx, l, l.splitKey(t), func(s *splitDoc) (*splitDoc, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.finished():
			return nil, nil
		}
		s.drop()
		s.State, s.LastError = SplitFailed, Cancelled
		return s, nil
	})
	if err != nil {
		return fmt.Errorf("ending %s: %w", t.describe(), err)
	}
	return nil
}

// recount gives a cancelled scan the counts of its splits, none of which moves any more.
func (l *Ledger) recount(ctx context.Context, scan *Scan) (*Scan, error) {
	var sum total
	err := l.eachSplit(ctx, scan, func(s *splitDoc, _ Doc) error {
		sum = sum.plus(totalOf(s))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l.editScan(ctx, scan.ID, "counting the rows of", func(s *Scan, _ time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.Counts == sum.Counts && s.Failed == sum.Failed:
			return s, errSettled
		}
		s.Counts, s.Failed = sum.Counts, sum.Failed
		return s, nil
	})
}
