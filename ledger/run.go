package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"
)

// Run is how a command runs a scan that it has begun: what it needs to go on with the
// same output.
type Run struct {
	// To is where the records go: an absolute path, - for stdout, or empty for the
	// scan's own sink.
	To string `json:"to,omitempty"`
	// IDs: each line has its record's id.
	IDs bool `json:"ids,omitempty"`
	// Overwrite: what the file held before is not the scan's, and goes before the first
	// record comes.
	Overwrite bool `json:"overwrite,omitempty"`
	// Workers is how many splits are read at a time.
	Workers int `json:"workers,omitempty"`
	// Before is how many records of the scan were acknowledged before this output was
	// begun, and are not in it.
	Before int64 `json:"before,omitempty"`
	// Holder is the process that runs the scan, as it is named in leases; empty: it has
	// ended. One that was killed is named still.
	Holder string `json:"holder,omitempty"`
	// Ended is why the last one has, where it has said so.
	Ended string `json:"ended,omitempty"`
}

// ErrRunElsewhere: since the run was looked at, another process has begun one with
// another output.
var ErrRunElsewhere = errors.New("another process has just begun to write it elsewhere")

// BeginRun is Begin by a command that is to read the scan in its own process, as r says.
// Of a scan that a command has begun, r replaces what is known of its run, and
// definition, unless empty, that of its plan. seen is the run that r was decided from,
// nil where there was none: ErrRunElsewhere says that it was decided from the past. A
// finished scan stays as it is, and so does one that no command has begun.
func (l *Ledger) BeginRun(ctx context.Context, id, name string, request json.RawMessage, seen *Run, r Run, definition map[string]string) (*Scan, error) {
	return l.editScan(ctx, id, "beginning", func(s *Scan, now time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return &Scan{ID: id, Name: name, Request: request, State: ScanPlanning, Run: &r, CreatedAt: now}, nil
		case s.Finished() || s.Run == nil:
			return s, errSettled
		case s.Run.To != r.To && s.Run.Holder != "" && s.Run.Holder != r.Holder && (seen == nil || s.Run.Holder != seen.Holder):
			return nil, ErrRunElsewhere
		}
		s.Run = &r
		if s.Attempt != "" && len(definition) > 0 {
			s.Definition = maps.Clone(definition)
		}
		return s, nil
	})
}

// EndRun notes that the process of that name does not run the scan any more, and why,
// where there is a reason; its text must not quote user data. Where the process does
// not run it, nothing changes.
func (l *Ledger) EndRun(ctx context.Context, id, holder string, cause error) error {
	_, err := l.editScan(ctx, id, "ending the run of", func(s *Scan, _ time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return nil, ErrNotFound
		case s.Run == nil || s.Run.Holder != holder:
			return s, errSettled
		}
		s.Run.Holder, s.Run.Ended = "", ""
		if cause != nil {
			s.Run.Ended = clip(cause.Error())
		}
		return s, nil
	})
	return err
}
