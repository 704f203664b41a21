// Package mapping guarantees that records become exactly the row entries that the
// pipeline file describes: each record and mapping yields all of its rows or one
// rejection, a rejection never touches other records, and what the service would
// refuse is refused here. Records of one row are merged into one atomic entry, in
// record order, but under dedupe each keeps an entry of its own. Everything is decided by
// the record, its message and the file: a second delivery makes the same rows.
package mapping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// Limits are the service's, in bytes and counts. Tests lower them.
type Limits struct {
	KeyBytes       int
	QualifierBytes int
	CellBytes      int
	EntryBytes     int
	Mutations      int // per entry
}

// ServiceLimits are those of Bigtable (docs/protocol.md, limits).
func ServiceLimits() Limits {
	return Limits{KeyBytes: 4096, QualifierBytes: 16 << 10, CellBytes: 100 << 20, EntryBytes: 200 << 20, Mutations: 99_999}
}

// Write is the compiled write section, safe for concurrent use.
type Write struct {
	name     string // of the pipeline; part of idempotency tokens
	limits   Limits
	skip     *expr.Program
	mappings []*mapping
	tables   []*pipeline.Table // of the file, for entries that messages carry
}

// Compile compiles every expression of p's write section. Its error joins all faults,
// each with file, line and column.
func Compile(p *pipeline.Pipeline, limits Limits) (*Write, error) {
	if p.Write == nil {
		return nil, errors.New("the pipeline has no write section")
	}
	plain, err := expr.NewRecordEnv(false)
	if err != nil {
		return nil, err
	}
	withItem, err := expr.NewRecordEnv(true)
	if err != nil {
		return nil, err
	}
	c := &compiler{env: plain, limits: limits}
	w := &Write{name: p.Name, limits: limits, tables: p.Tables, skip: c.compile(p.Write.Skip, expr.Bool)}
	for _, m := range p.Write.Mappings {
		c.env = plain
		forEach := c.compile(m.ForEach, expr.List)
		when := c.compile(m.When, expr.Bool)
		if forEach != nil {
			c.env = withItem
		}
		w.mappings = append(w.mappings, c.mapping(m, when, forEach))
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return w, nil
}

// Rejection is a record that a mapping can never write. Mapping is empty where the
// record itself cannot be decoded or skip fails.
type Rejection struct {
	Record  int // index in the message
	Mapping string
	Place   string // within the mapping, as in rowKey or mutations[0].set.cf.total
	Err     error  // quotes nothing of the record
}

// Error names mapping, place and reason.
func (r *Rejection) Error() string {
	switch {
	case r.Mapping == "" && r.Place == "":
		return r.Err.Error()
	case r.Mapping == "":
		return fmt.Sprintf("%s: %v", r.Place, r.Err)
	case r.Place == "":
		return fmt.Sprintf("mapping %s: %v", r.Mapping, r.Err)
	}
	return fmt.Sprintf("mapping %s: %s: %v", r.Mapping, r.Place, r.Err)
}

// Unwrap returns a *retry.Rejected, which wraps the reason.
func (r *Rejection) Unwrap() error { return &retry.Rejected{Err: r.Err} }

// Row is one entry to apply. Rows of one row key must be applied in their order, each
// awaited before the next, but see Commutes.
//
// Under dedupe a row is one contribution: what one record brings to one row through one
// mapping, applied once under its Token, and never merged with another or taken apart.
type Row struct {
	Table  pipeline.TableRef
	Schema *pipeline.Table
	Entry  *bigtablepb.MutateRowsRequest_Entry
	Unless *bigtablepb.RowFilter // not nil: apply only where it matches nothing
	Parts  []Part                // the records that made it, in order
	// Shared says that another record may make a row with the same Token: they are one
	// contribution, and the second is needed only if the first is refused.
	Shared bool
	// Follows says that another row of its key stands before it in Result.Rows.
	Follows bool

	bytes int // an upper bound of the entry's serialized size
}

// Part is what one record and mapping contributed to a row: the mutations before End
// and after the part before.
type Part struct {
	Record  int // index in the message
	Mapping *pipeline.Mapping
	End     int
}

// Token identifies the row's contribution: it is the qualifier of its marker or its
// idempotency token; nil without dedupe.
func (r *Row) Token() []byte {
	if r.Unless == nil {
		return r.Entry.GetIdempotency().GetToken()
	}
	c := r.Unless.GetColumnRangeFilter()
	if token := c.GetStartQualifierClosed(); bytes.Equal(token, c.GetEndQualifierClosed()) {
		return token
	}
	return nil
}

// Commutes reports whether the row may be applied in any order with others of its key
// that commute: it holds nothing but additions and merges, under an idempotency token.
func (r *Row) Commutes() bool {
	if len(r.Entry.GetIdempotency().GetToken()) == 0 {
		return false
	}
	for _, m := range r.Entry.Mutations {
		if m.GetAddToCell() == nil && m.GetMergeToCell() == nil {
			return false
		}
	}
	return true
}

// Halves takes a row that several records made apart: two rows, of the first and of the
// last of its parts, to be applied in this order.
func (r *Row) Halves() (first, last *Row) {
	half := len(r.Parts) / 2
	return r.of(0, half), r.of(half, len(r.Parts))
}

// of returns the row of the parts from..to-1.
func (r *Row) of(from, to int) *Row {
	start := 0
	if from > 0 {
		start = r.Parts[from-1].End
	}
	out := &Row{
		Table: r.Table, Schema: r.Schema, Parts: slices.Clone(r.Parts[from:to]),
		Entry: &bigtablepb.MutateRowsRequest_Entry{RowKey: r.Entry.RowKey, Mutations: slices.Clip(r.Entry.Mutations[start:r.Parts[to-1].End])},
	}
	for i := range out.Parts {
		out.Parts[i].End -= start
	}
	return out
}

// Result is what records become.
type Result struct {
	Rows      []*Row       // apply first
	Last      []*Row       // dedupe: window; apply when everything else of the message is applied
	Rejected  []*Rejection // in record order
	Unmatched []int        // records that no mapping took
	Skipped   int          // records that skip acknowledged
	Records   int          // how many it is of
	Made      int64        // what was charged for it, in bytes
}

// Session makes rows of the records of one message, some at a time.
type Session struct {
	w     *Write
	vars  expr.Vars
	now   time.Time
	count int    // the place of the next record in its message
	made  []made // of the record and mapping at hand; reused

	ctx     context.Context // Map's
	result  *Result
	open    map[rowID]*Row // the newest row of each key in result
	most    int64          // of one record, in bytes; 0: no bound
	size    int64          // of the record at hand
	charged func(int64) error
	stopped error // why no record is mapped any more
}

type rowID struct {
	table pipeline.TableRef
	key   string
}

// Start begins a message. now is the time of dedupe markers.
func (w *Write) Start(m *expr.Message, now time.Time) *Session {
	return &Session{w: w, vars: expr.Vars{Message: m}, now: now}
}

// Bound bounds the memory of one record, its value included, in bytes, and has charge called
// with the size of each part of its rows as it is made. An error of charge ends Map.
func (s *Session) Bound(most int64, charge func(bytes int64) error) {
	s.most, s.charged = most, charge
}

// Map makes rows of the next records, of as many as make up to 8 MiB, and of one at least.
// The error is ctx's, or that of the function that charges.
func (s *Session) Map(ctx context.Context, records []record.Record) (*Result, error) {
	s.ctx, s.result, s.open = ctx, &Result{}, map[rowID]*Row{}
	for i := range records {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("mapping record %d: %w", s.count, context.Cause(ctx))
		}
		s.size = records[i].Size
		if s.record(s.count, &records[i]); s.stopped != nil {
			return nil, fmt.Errorf("mapping record %d: %w", s.count, s.stopped)
		}
		s.count++
		if s.result.Records++; s.most > 0 && s.result.Made >= stepMade {
			break
		}
	}
	return s.result, nil
}

// Map makes rows of all records of a message at once.
func (w *Write) Map(m *expr.Message, records []record.Record, now time.Time) *Result {
	return w.MapAt(m, records, now, 0)
}

// MapAt is Map for records from a place of the message on.
func (w *Write) MapAt(m *expr.Message, records []record.Record, now time.Time, place int) *Result {
	s := w.Start(m, now)
	s.count = place
	result, err := s.Map(context.Background(), records)
	if err != nil {
		panic(err) // a background context does not end, and nothing charges
	}
	return result
}
