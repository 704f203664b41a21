package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// FollowUp is what is to be published after a split has finished, before its task
// is acknowledged. The ledger knows that it is due, not whether it was done: it may
// be told twice, and publishing it twice must do no harm.
type FollowUp struct {
	// Scan is set where the scan is finished and its completion event is due;
	// MarkPublished says that it is out.
	Scan *Scan
	// Next is set where the scan has a limit and this split's turn has come.
	Next *Task
}

// Finish makes p durable and marks the split done. The last split to finish marks
// the scan, in the same commit.
func (s *Lease) Finish(ctx context.Context, p Progress) (FollowUp, error) {
	return s.end(ctx, p, SplitDone, nil)
}

// Fail makes p durable and marks the split failed for good; the scan fails with it
// once its other splits have finished, at once if it has a limit. The text of cause
// must not quote user data.
func (s *Lease) Fail(ctx context.Context, p Progress, cause error) (FollowUp, error) {
	return s.end(ctx, p, SplitFailed, cause)
}

func (s *Lease) end(ctx context.Context, p Progress, state SplitState, cause error) (FollowUp, error) {
	var next FollowUp
	advance, l := s.advance(p), s.doc.ledger
	err := s.settle("finishing", s.doc.write(ctx, func(d *splitDoc, _ Doc) (_ stamped, rest []Write, err error) {
		if err := advance(d); err != nil {
			return nil, nil, err
		}
		d.State = state
		d.drop()
		if cause != nil {
			d.LastError = clip(cause.Error())
		}
		rest, next, err = l.account(ctx, d)
		return d, rest, err
	}))
	if errors.Is(err, ErrFinished) { // by an earlier call of ours, whose reply was lost for good
		return l.FollowUp(ctx, s.task)
	}
	if err == nil {
		s.doc.over = ErrFinished
	}
	return next, err
}

// FollowUp tells again what is due after a split that has finished: its holder may
// have died before publishing it.
func (l *Ledger) FollowUp(ctx context.Context, t Task) (FollowUp, error) {
	after := t
	after.Index++
	docs, err := l.read(ctx, l.splitKey(t), l.scanKey(t.Scan), l.splitKey(after))
	if err != nil {
		return FollowUp{}, fmt.Errorf("reading what follows %s: %w", t.describe(), err)
	}
	split, err := decodeSplit(docs[0])
	if err != nil {
		return FollowUp{}, fmt.Errorf("%s: %w", t.describe(), err)
	}
	scan, err := decodeScan(docs[1])
	if err != nil {
		return FollowUp{}, fmt.Errorf("scan %q: %w", t.Scan, err)
	}
	switch next, err := decodeSplit(docs[2]); {
	case !split.finished() || scan.Attempt != t.Attempt:
		return FollowUp{}, nil
	case scan.CompletionDue():
		return FollowUp{Scan: scan}, nil
	case err == nil && next.InOrder && next.State == SplitOpen && !scan.Finished():
		return FollowUp{Next: &after}, nil
	}
	return FollowUp{}, nil
}

// account returns the writes that make a split's end count for its scan.
func (l *Ledger) account(ctx context.Context, s *splitDoc) ([]Write, FollowUp, error) {
	if s.InOrder {
		return l.handOn(ctx, s)
	}
	return l.count(ctx, s)
}

// count enters the split into the tally, up to where something is missing yet.
func (l *Ledger) count(ctx context.Context, s *splitDoc) ([]Write, FollowUp, error) {
	var writes []Write
	total := totalOf(s)
	for _, slot := range slots(s.Index, s.Of) {
		doc, err := l.get(ctx, l.nodeKey(s, slot))
		if err != nil {
			return nil, FollowUp{}, err
		}
		n := new(node)
		if doc.Body != nil {
			if err := json.Unmarshal(doc.Body, n); err != nil {
				return nil, FollowUp{}, fmt.Errorf("decoding a tally: %w", err)
			}
		}
		n.add(slot, total)
		w, err := l.put(doc, n)
		if err != nil {
			return nil, FollowUp{}, err
		}
		if writes = append(writes, w); !n.full(slot) {
			return writes, FollowUp{}, nil
		}
		total = n.total
	}
	return l.complete(ctx, s.Scan, total, writes)
}

func (l *Ledger) nodeKey(s *splitDoc, at slot) Key {
	return Key{
		Collection: l.plan(s.Scan, s.Attempt) + "/tallies",
		ID:         id(s.Scan, s.Attempt, strconv.Itoa(at.level), strconv.Itoa(at.node)),
	}
}

// handOn gives what is left of the limit to the next split in order.
func (l *Ledger) handOn(ctx context.Context, s *splitDoc) ([]Write, FollowUp, error) {
	left := s.Limit - s.Rows
	if left <= 0 || s.Index+1 == s.Of || s.State == SplitFailed {
		return l.completeInOrder(ctx, s)
	}
	after := s.task()
	after.Index++
	doc, err := l.get(ctx, l.splitKey(after))
	if err != nil {
		return nil, FollowUp{}, err
	}
	next, err := decodeSplit(doc)
	if err != nil {
		return nil, FollowUp{}, fmt.Errorf("%s: %w", after.describe(), err)
	}
	if next.finished() { // the scan was cancelled
		return l.completeInOrder(ctx, s)
	}
	next.State, next.Limit, next.Before = SplitOpen, left, next.Before.plus(s.Before).plus(s.Counts)
	w, err := l.put(doc, next)
	return []Write{w}, FollowUp{Next: &after}, err
}

func (l *Ledger) completeInOrder(ctx context.Context, s *splitDoc) ([]Write, FollowUp, error) {
	t := totalOf(s)
	t.Counts = t.Counts.plus(s.Before)
	return l.complete(ctx, s.Scan, t, nil)
}

// complete adds the write that marks the scan as finished, if it is not: one that was
// cancelled stays so, and perhaps no task is left but this split's to tell of it.
func (l *Ledger) complete(ctx context.Context, id string, t total, writes []Write) ([]Write, FollowUp, error) {
	doc, err := l.get(ctx, l.scanKey(id))
	if err != nil {
		return nil, FollowUp{}, err
	}
	scan, err := decodeScan(doc)
	if err != nil {
		return nil, FollowUp{}, fmt.Errorf("scan %q: %w", id, err)
	}
	if scan.CompletionDue() {
		return writes, FollowUp{Scan: scan}, nil
	} else if scan.Finished() {
		return writes, FollowUp{}, nil
	}
	scan.finish(t, doc.ReadAt)
	w, err := l.put(doc, scan)
	return append(writes, w), FollowUp{Scan: scan}, err
}

func (s *Scan) finish(t total, now time.Time) {
	s.State, s.Counts, s.Failed, s.FinishedAt = ScanDone, t.Counts, t.Failed, now
	if t.Failed > 0 {
		s.State = ScanFailed
		s.Error = fmt.Sprintf("%d of %d splits failed, the first of them split %d: %s", t.Failed, s.Splits, t.FirstFailed, t.Error)
	}
}
