package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lapses is the document whose time is that of the last search for splits that no task
// brings back.
type lapses struct {
	Permanent
	stamp
}

// Lapsed returns the splits of running scans of deployed functions that may be leased and
// that nobody has written for longer than silent. If silent is longer than tasks live, no
// task will come for them. All callers together search once in the time every; otherwise
// Lapsed returns nothing, after one read.
func (l *Ledger) Lapsed(ctx context.Context, every, silent time.Duration) ([]Task, error) {
	looks, err := l.looked(ctx, every)
	if err != nil {
		return nil, fmt.Errorf("looking for splits without a task: %w", err)
	}
	if !looks {
		return nil, nil
	}
	scans, err := l.Scans(ctx)
	if err != nil {
		return nil, err
	}
	var tasks []Task
	for _, scan := range scans {
		if scan.State != ScanRunning || scan.Run != nil {
			continue
		}
		err := l.eachSplit(ctx, scan, func(s *splitDoc, doc Doc) error {
			if s.State == SplitOpen && doc.ReadAt.Sub(doc.UpdatedAt) > silent {
				tasks = append(tasks, s.task())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// looked reports whether the caller is to search now, and notes that it does.
func (l *Ledger) looked(ctx context.Context, every time.Duration) (bool, error) {
	doc, err := l.get(ctx, Key{Collection: l.root + "/upkeep", ID: "lapses"})
	if err != nil {
		return false, err
	}
	_, err = l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
		if doc.Body != nil && doc.ReadAt.Sub(doc.UpdatedAt) < every {
			return nil, nil, errSettled
		}
		return &lapses{}, nil, nil
	})
	if errors.Is(err, errSettled) {
		return false, nil
	}
	return err == nil, err
}

// FailLapsed fails a split that Lapsed has returned, unless somebody has written it since.
func (l *Ledger) FailLapsed(ctx context.Context, t Task, holder Holder, silent time.Duration, cause error) (FollowUp, error) {
	doc, err := l.get(ctx, l.splitKey(t))
	if err != nil {
		return FollowUp{}, fmt.Errorf("reading %s: %w", t.describe(), err)
	}
	if doc.ReadAt.Sub(doc.UpdatedAt) <= silent {
		return FollowUp{}, nil
	}
	lease, err := l.acquire(ctx, t, holder)
	var held *HeldError
	switch {
	case errors.Is(err, ErrFinished):
		return l.FollowUp(ctx, t)
	case errors.As(err, &held):
		return FollowUp{}, nil
	case err != nil:
		return FollowUp{}, fmt.Errorf("acquiring %s: %w", t.describe(), err)
	}
	return lease.Fail(ctx, Progress{}, cause)
}
