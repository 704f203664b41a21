package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Draft is a plan that is not selected yet.
type Draft struct {
	// Splits has the ranges of each split, in key order, apart from one another.
	Splits [][]rowrange.Range
	// Sections tells how large the parts of each split are; nil: nobody knows.
	Sections [][]Section
	// Limit is the number of rows over the whole scan, whose splits then run in the
	// order given; 0: all, and the splits run in any order.
	Limit int64
	// Table is the full name of the table (projects/P/instances/I/tables/T) whose keys
	// the ranges are.
	Table string
	// Definition tells whether the scan's definition has changed since: a hash of each
	// part of it, by the part's name.
	Definition map[string]string
}

// Plan writes the splits of scan id and selects them.
//
// The splits are written under an attempt of their own, and one write to the scan
// selects the attempt: wherever a planner dies, two plans never mix. The scan comes
// back as it stands, with the plan of whoever was first; of a scan that has one
// already nothing is written. A plan without splits is a scan that is done. Splits
// that were never selected expire.
func (l *Ledger) Plan(ctx context.Context, id string, d Draft) (*Scan, error) {
	doc, err := l.get(ctx, l.scanKey(id))
	if err != nil {
		return nil, fmt.Errorf("reading scan %q: %w", id, err)
	}
	scan, err := decodeScan(doc)
	if err != nil {
		return nil, fmt.Errorf("planning scan %q: %w", id, err)
	}
	if scan.State != ScanPlanning {
		return scan, nil
	}
	attempt := rand.Text()
	if err := l.writeSplits(ctx, doc.ReadAt, d.documents(scan.ID, attempt)); err != nil {
		return nil, fmt.Errorf("writing the plan of scan %q: %w", id, err)
	}
	return l.editScan(ctx, id, "selecting the plan of", func(s *Scan, now time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.State != ScanPlanning:
			return s, errSettled
		}
		s.State, s.Attempt, s.Splits, s.Limit, s.PlannedAt = ScanRunning, attempt, len(d.Splits), d.Limit, now
		s.Table, s.Definition = d.Table, d.Definition
		if len(d.Splits) == 0 {
			s.State, s.FinishedAt = ScanDone, now
		}
		return s, nil
	})
}

// documents yields the splits as they are kept.
func (d Draft) documents(scan, attempt string) func(yield func(*splitDoc) bool) {
	return func(yield func(*splitDoc) bool) {
		for i, ranges := range d.Splits {
			s := &splitDoc{
				Scan: scan, Attempt: attempt, Index: i, Of: len(d.Splits), Table: d.Table, Ranges: rangeDocs(ranges), State: SplitOpen, InOrder: d.Limit > 0,
			}
			if i < len(d.Sections) {
				s.Sections = sectionDocs(d.Sections[i])
			}
			switch {
			case d.Limit > 0 && i == 0:
				s.Limit = d.Limit
			case d.Limit > 0:
				s.State = SplitWaiting
			}
			if !yield(s) {
				return
			}
		}
	}
}

// writeSplits creates the splits, as many in one commit as fit.
func (l *Ledger) writeSplits(ctx context.Context, now time.Time, splits func(yield func(*splitDoc) bool)) error {
	var first *splitDoc // its write carries the mark that settles a lost reply
	var rest []Write
	bytes := 0
	flush := func() error {
		if first == nil {
			return nil
		}
		err := l.create(ctx, now, first, rest)
		first, rest, bytes = nil, nil, 0
		return err
	}
	for s := range splits {
		w, err := l.put(Doc{Key: l.splitKey(s.task()), ReadAt: now}, s)
		if err != nil {
			return err
		}
		size := w.size() + markBytes
		if len(rest)+2 > MaxWrites || bytes+size > MaxCommitBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if bytes += size; first == nil {
			first = s
		} else {
			rest = append(rest, w)
		}
	}
	return flush()
}

// markBytes is more than a mark adds to a document.
const markBytes = 64

func (l *Ledger) create(ctx context.Context, now time.Time, first *splitDoc, rest []Write) error {
	_, err := l.edit(ctx, Doc{Key: l.splitKey(first.task()), ReadAt: now}, func(doc Doc) (stamped, []Write, error) {
		if doc.Body != nil {
			return nil, nil, fmt.Errorf("%s exists already", first.task().describe())
		}
		return first, rest, nil
	})
	if errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%s and the %d after it: %w", first.task().describe(), len(rest), err)
	}
	return err
}

// Unfinished returns the splits of the scan's selected plan that a worker should be
// told of, in order: all that are not finished, and of a scan with a limit the one
// whose turn it is.
func (l *Ledger) Unfinished(ctx context.Context, scan *Scan) ([]Task, error) {
	var tasks []Task
	err := l.eachSplit(ctx, scan, func(s *splitDoc, _ Doc) error {
		if s.State == SplitOpen {
			tasks = append(tasks, s.task())
		}
		return nil
	})
	slices.SortFunc(tasks, func(a, b Task) int { return cmp.Compare(a.Index, b.Index) })
	return tasks, err
}

// Splits calls each with every split of the scan's selected plan, all as of one
// moment, in no particular order. each must not use the ledger.
func (l *Ledger) Splits(ctx context.Context, scan *Scan, each func(*Split) error) error {
	return l.eachSplit(ctx, scan, func(s *splitDoc, doc Doc) error { return each(s.split(doc)) })
}

func (l *Ledger) eachSplit(ctx context.Context, scan *Scan, each func(*splitDoc, Doc) error) error {
	if scan.Attempt == "" {
		return nil
	}
	err := l.list(ctx, func(doc Doc) error {
		s, err := decodeSplit(doc)
		if err != nil {
			return err
		}
		return each(s, doc)
	}, l.splits(scan.ID, scan.Attempt))
	if err != nil {
		return fmt.Errorf("listing the splits of scan %q: %w", scan.ID, err)
	}
	return nil
}
