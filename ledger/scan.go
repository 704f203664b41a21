package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// ScanState is how far a scan is.
type ScanState string

// The states of a scan. Done and failed are final.
const (
	ScanPlanning ScanState = "planning" // no plan is selected yet
	ScanRunning  ScanState = "running"
	ScanDone     ScanState = "done"
	ScanFailed   ScanState = "failed" // Error says why
)

// Counts add up over a scan.
type Counts struct {
	Rows    int64 `json:"rows"`    // rows read whose records are acknowledged
	Records int64 `json:"records"` // records that the sink acknowledged
	Dropped int64 `json:"dropped"` // rows or records that the failure policy took
}

func (c Counts) plus(o Counts) Counts {
	return Counts{Rows: c.Rows + o.Rows, Records: c.Records + o.Records, Dropped: c.Dropped + o.Dropped}
}

// Scan is one scan of a table. Its times are the store's.
type Scan struct {
	ID   string `json:"id"`
	Name string `json:"name"` // in the pipeline file
	// Request is what was asked for, with its overrides: the planner's own JSON.
	Request json.RawMessage `json:"request,omitempty"`
	State   ScanState       `json:"state"`
	// Attempt is the plan that was selected; empty before that.
	Attempt string `json:"attempt,omitempty"`
	// Table and Definition are the plan's, as in Draft; empty where it was made by a
	// version that kept neither.
	Table      string            `json:"table,omitempty"`
	Definition map[string]string `json:"definition,omitempty"`
	// Run is set where a command began the scan, which then reads it in its own
	// process; nil: deployed functions do.
	Run *Run `json:"run,omitempty"`
	// Splits is how many the plan has. Where Limit is not 0 they run in key order,
	// one after another, until that many rows are delivered.
	Splits int   `json:"splits"`
	Limit  int64 `json:"limit,omitempty"`
	// Counts and Failed, the number of failed splits, are known when the scan is
	// finished; before that the splits have them.
	Counts
	Failed     int       `json:"failed"`
	Error      string    `json:"error,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
	PlannedAt  time.Time `json:"plannedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Published: the completion event is out.
	Published bool `json:"published"`
	stamp
}

// Finished reports whether nothing of the scan is left to do but, perhaps, to
// publish its completion event.
func (s *Scan) Finished() bool { return s.State == ScanDone || s.State == ScanFailed }

// CompletionDue reports whether the completion event is still to be published, as
// far as the ledger knows: whoever sees it does so, and then calls MarkPublished.
func (s *Scan) CompletionDue() bool { return s.Finished() && !s.Published }

// LogValue gives what may be logged: the request may hold row keys.
func (s *Scan) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", s.ID), slog.String("name", s.Name), slog.String("state", string(s.State)),
		slog.Int("splits", s.Splits), slog.Int("requestBytes", len(s.Request)))
}

func (l *Ledger) scanKey(scan string) Key {
	return Key{Collection: l.root + "/scans", ID: id(scan)}
}

func decodeScan(doc Doc) (*Scan, error) {
	s := new(Scan)
	if doc.Body == nil {
		return nil, ErrNotFound
	}
	if err := json.Unmarshal(doc.Body, s); err != nil {
		return nil, fmt.Errorf("decoding a scan of %d bytes: %w", len(doc.Body), err)
	}
	return s, nil
}

// Begin records that scan id was asked for and returns it as it stands: a request
// that comes again finds the scan, and maybe the plan, that it made the first time.
func (l *Ledger) Begin(ctx context.Context, id, name string, request json.RawMessage) (*Scan, error) {
	return l.editScan(ctx, id, "beginning", func(s *Scan, now time.Time) (*Scan, error) {
		if s != nil {
			return s, errSettled
		}
		return &Scan{ID: id, Name: name, Request: request, State: ScanPlanning, CreatedAt: now}, nil
	})
}

// Reject records that scan id, which Begin has recorded, cannot be planned, and
// why: the scan has failed. A scan that has a plan already stays as it is.
func (l *Ledger) Reject(ctx context.Context, id string, cause error) (*Scan, error) {
	return l.editScan(ctx, id, "rejecting", func(s *Scan, now time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.State != ScanPlanning:
			return s, errSettled
		}
		s.State, s.Error, s.FinishedAt = ScanFailed, clip(cause.Error()), now
		return s, nil
	})
}

// MarkPublished records that the completion event of finished scan id is out.
func (l *Ledger) MarkPublished(ctx context.Context, id string) error {
	_, err := l.editScan(ctx, id, "marking as published", func(s *Scan, now time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case !s.Finished():
			return nil, errors.New("it is not finished")
		case s.Published:
			return s, errSettled
		}
		s.Published = true
		return s, nil
	})
	return err
}

// Scan returns scan id. The error is ErrNotFound where there is none.
func (l *Ledger) Scan(ctx context.Context, id string) (*Scan, error) {
	doc, err := l.get(ctx, l.scanKey(id))
	if err != nil {
		return nil, fmt.Errorf("reading scan %q: %w", id, err)
	}
	s, err := decodeScan(doc)
	if err != nil {
		return nil, fmt.Errorf("scan %q: %w", id, err)
	}
	return s, nil
}

// Scans returns every scan of the pipeline that is still kept, in no particular
// order.
func (l *Ledger) Scans(ctx context.Context) ([]*Scan, error) {
	var scans []*Scan
	err := l.list(ctx, func(doc Doc) error {
		s, err := decodeScan(doc)
		scans = append(scans, s)
		return err
	}, l.root+"/scans")
	if err != nil {
		return nil, fmt.Errorf("listing scans: %w", err)
	}
	return scans, nil
}

// errSettled ends an edit that has nothing to change.
var errSettled = errors.New("settled already")

// editScan changes a scan; change gets nil where there is none, and returns
// errSettled beside what is to be left as it is.
func (l *Ledger) editScan(ctx context.Context, id, doing string, change func(*Scan, time.Time) (*Scan, error)) (*Scan, error) {
	var scan *Scan
	doc, err := l.get(ctx, l.scanKey(id))
	if err == nil {
		doc, err = l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
			s, err := decodeScan(doc)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return nil, nil, err
			}
			scan, err = change(s, doc.ReadAt)
			return scan, nil, err
		})
	}
	switch {
	case errors.Is(err, errSettled):
		return scan, nil
	case err != nil:
		return nil, fmt.Errorf("%s scan %q: %w", doing, id, err)
	}
	return decodeScan(doc)
}

// maxError bounds the bytes of an error that is kept.
const maxError = 1024

func clip(text string) string {
	if len(text) > maxError {
		text = text[:maxError]
	}
	return strings.ToValidUTF8(text, "")
}
