// Package task guarantees that what one function sends another is understood or
// refused, never half understood: every message carries the version of its format,
// an unknown field or version is an error, and decoding undoes encoding. Errors
// quote field names only.
package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Version is the format that this program writes and the only one that it reads.
const Version = 1

// ScanRequest asks for a scan. Everything but Scan is optional and replaces what the
// pipeline file says.
type ScanRequest struct {
	Version int    `json:"v"`
	Scan    string `json:"scan"` // the name in the pipeline file
	// Scheduled: the request is that of the scan's schedule, so that two of them for
	// one due time are one scan.
	Scheduled bool  `json:"scheduled,omitempty"`
	Rows      *Rows `json:"rows,omitempty"`
	Limit     int64 `json:"limit,omitempty"` // rows over the whole scan
	// Parallelism is how many workers are asked for; 0: as many as are worth it.
	Parallelism int `json:"parallelism,omitempty"`
	Options
}

// Rows are the row keys to read.
type Rows struct {
	Prefixes []string `json:"prefixes,omitempty"`
	Ranges   []Range  `json:"ranges,omitempty"`
	Encoding string   `json:"encoding,omitempty"` // text (default) or base64, canonical and padded
}

// Range is [Start, End); an empty bound is none.
type Range struct {
	Start string `json:"start,omitempty"`
	End   string `json:"end,omitempty"`
}

// Options are what a request changes of how a split is read: they travel with its
// tasks.
type Options struct {
	Since time.Time `json:"since,omitzero"` // cells of [Since, Until), whole milliseconds
	Until time.Time `json:"until,omitzero"`
	To    *To       `json:"to,omitempty"`
}

// To replaces a scan's sink. Exactly one field is set.
type To struct {
	PubSub *PubSub   `json:"pubsub,omitempty"`
	Log    *struct{} `json:"log,omitempty"`
}

// PubSub names a topic: its id, or projects/PROJECT/topics/ID.
type PubSub struct {
	Topic string `json:"topic"`
}

// Scan is one split of a scan to be read. A worker that does not finish it publishes
// the task again.
type Scan struct {
	Version int    `json:"v"`
	Scan    string `json:"scan"` // the scan's id
	Name    string `json:"name"` // the scan's name in the pipeline file
	Attempt string `json:"attempt"`
	Split   int    `json:"split"`
	Options
}

// ScanDone tells that a scan is finished.
type ScanDone struct {
	Version    int       `json:"v"`
	Scan       string    `json:"scan"` // the scan's id
	Name       string    `json:"name"`
	State      string    `json:"state"` // done or failed
	Error      string    `json:"error,omitempty"`
	Splits     int       `json:"splits"`
	Failed     int       `json:"failed"`  // splits
	Rows       int64     `json:"rows"`    // read
	Records    int64     `json:"records"` // that the sink took
	Dropped    int64     `json:"dropped"` // rows or records that the failure policy took
	CreatedAt  time.Time `json:"createdAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// LogValue gives what may be logged: rows are keys.
func (r ScanRequest) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("scan", r.Scan), slog.Bool("scheduled", r.Scheduled), slog.Int64("limit", r.Limit)}
	if r.Rows != nil {
		attrs = append(attrs, slog.Int("ranges", len(r.Rows.Prefixes)+len(r.Rows.Ranges)))
	}
	return slog.GroupValue(attrs...)
}

// Encode returns the message's body. v is a ScanRequest, Scan or ScanDone.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding a task: %w", err)
	}
	return b, nil
}

// DecodeScanRequest reads a request. One without a version, which people write, is of
// the current one.
func DecodeScanRequest(data []byte) (ScanRequest, error) {
	r := ScanRequest{Version: Version}
	if err := decode(data, &r, &r.Version); err != nil {
		return r, fmt.Errorf("reading a scan request: %w", err)
	}
	switch {
	case r.Scan == "":
		return r, errors.New(`reading a scan request: it names no scan: write {"scan": "NAME"}`)
	case r.Limit < 0:
		return r, errors.New("reading a scan request: limit is negative: leave it out to read all rows")
	case r.Parallelism < 0:
		return r, errors.New("reading a scan request: parallelism is negative: leave it out for as many workers as are worth it")
	}
	return r, nil
}

// DecodeScan reads a task.
func DecodeScan(data []byte) (Scan, error) {
	var s Scan
	if err := decode(data, &s, &s.Version); err != nil {
		return s, fmt.Errorf("reading a scan task: %w", err)
	}
	if s.Scan == "" || s.Name == "" || s.Attempt == "" || s.Split < 0 {
		return s, errors.New("reading a scan task: scan, name or attempt is missing, or split is negative")
	}
	return s, nil
}

// DecodeScanDone reads a completion event.
func DecodeScanDone(data []byte) (ScanDone, error) {
	var d ScanDone
	if err := decode(data, &d, &d.Version); err != nil {
		return d, fmt.Errorf("reading a completion event: %w", err)
	}
	return d, nil
}
