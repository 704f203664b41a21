package ledger

import (
	"context"
	"encoding/json"
	"maps"
	"time"
)

// Run is a command that reads a scan in its own process.
type Run struct {
	// Settings is how it reads the scan, for those who go on with it: the command's own JSON.
	Settings json.RawMessage `json:"settings,omitempty"`
	// Holder is the process that runs the scan, as it is named in leases; empty: it has
	// ended. One that was killed is named still.
	Holder Holder `json:"holder,omitempty"`
	// Ended is why the last one has, where it has said so.
	Ended string `json:"ended,omitempty"`
}

// BeginRun is Begin by a command that is to read the scan in its own process, as r says.
// Of a scan that a command has begun, r replaces what is known of its run, and
// definition, unless empty, that of its plan. Before that allowed, if it is not nil, is asked
// with the run that is replaced, perhaps more than once; its error is returned. A finished
// scan stays as it is, and so does one that no command has begun.
func (l *Ledger) BeginRun(ctx context.Context, id, name string, request json.RawMessage, r Run, definition map[string]string,
	allowed func(replaced Run) error) (*Scan, error) {
	return l.editScan(ctx, id, "beginning", func(s *Scan, now time.Time) (*Scan, error) {
		switch {
		case s == nil:
			return &Scan{ID: id, Name: name, Request: request, State: ScanPlanning, Run: &r, CreatedAt: now}, nil
		case s.Finished() || s.Run == nil:
			return s, errSettled
		}
		if allowed != nil {
			if err := allowed(*s.Run); err != nil {
				return nil, err
			}
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
func (l *Ledger) EndRun(ctx context.Context, id string, holder Holder, cause error) error {
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
