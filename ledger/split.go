package ledger

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// SplitState is how far a split is.
type SplitState string

// The states of a split. Done and failed are final.
const (
	// SplitWaiting: of a scan with a limit, and the split before it has not finished.
	SplitWaiting SplitState = "waiting"
	SplitOpen    SplitState = "open" // may be leased
	SplitDone    SplitState = "done"
	SplitFailed  SplitState = "failed" // LastError says why
)

// Task names a split: what a message needs to carry.
type Task struct {
	Scan    string
	Attempt string
	Index   int
}

// Split is a part of a scan, read by one holder at a time.
type Split struct {
	Task
	Of int // how many splits the plan has
	// Table is the full name of the table that it was planned for; empty: its planner
	// kept none.
	Table string
	// Ranges are as planned: in key order, apart from one another, none empty.
	Ranges []rowrange.Range
	// Sections are the split's parts, in key order, as its planner has sampled them; nil:
	// it has not.
	Sections []Section
	State    SplitState
	// Position is the last row key that is acknowledged, with all before it; empty:
	// none.
	Position string
	// InOrder: the scan has a limit and its splits run one after another. Limit is
	// how many rows this one may deliver; Counts.Rows of them are delivered.
	InOrder bool
	Limit   int64
	Counts
	// Bytes is what those rows held, as they were read.
	Bytes int64
	// Holder has the lease, until Until by the store's clock; empty: nobody.
	Holder Holder
	Until  time.Time
	// Fence rises each time the lease is taken. Since the position last moved, Fruitless
	// holders in a row gave up on a verdict, and Deaths died, as LeaseState counts them.
	Fence             int64
	Fruitless, Deaths int
	// LastError is why a holder last gave up.
	LastError string
	UpdatedAt time.Time
}

// Section is a part of a split: the keys before End (empty: to the end) and not in the
// sections before, which held about so many bytes when the split was planned.
type Section struct {
	End   string
	Bytes int64
}

// Remaining returns what of the split is still to be read, in key order; nothing
// where that is empty, which must not be asked of the service.
func (s *Split) Remaining() []rowrange.Range {
	var rest []rowrange.Range
	for _, r := range s.Ranges {
		if s.Position != "" {
			r = r.After(s.Position)
		}
		if !r.IsEmpty() {
			rest = append(rest, r)
		}
	}
	return rest
}

// LimitLeft returns how many rows the split may still deliver, where limited.
func (s *Split) LimitLeft() (left int64, limited bool) {
	return max(0, s.Limit-s.Rows), s.InOrder
}

// Finished reports whether the split is done or failed.
func (s *Split) Finished() bool { return s.State == SplitDone || s.State == SplitFailed }

// LogValue gives what may be logged: ranges and positions are row keys.
func (s *Split) LogValue() slog.Value {
	return slog.GroupValue(slog.String("scan", s.Scan), slog.Int("index", s.Index), slog.Int("of", s.Of),
		slog.String("state", string(s.State)), slog.Int64("fence", s.Fence), slog.Int64("rows", s.Rows),
		slog.Int("ranges", len(s.Ranges)), slog.Int("positionBytes", len(s.Position)))
}

// splitDoc is a split as it is kept: row keys as base64.
type splitDoc struct {
	Scan     string     `json:"scan"`
	Attempt  string     `json:"attempt"`
	Index    int        `json:"index"`
	Of       int        `json:"of"`
	Table    string     `json:"table,omitempty"`
	Ranges   []rangeDoc `json:"ranges"`
	State    SplitState `json:"state"`
	Position []byte     `json:"position,omitempty"`
	InOrder  bool       `json:"inOrder,omitempty"`
	Limit    int64      `json:"limit,omitempty"`
	Counts   `json:"counts"`
	// Sections and Bytes tell how far the split is.
	Sections []sectionDoc `json:"sections,omitempty"`
	Bytes    int64        `json:"bytes,omitempty"`
	// Before counts the splits before this one, of a scan whose splits run in order.
	Before Counts `json:"before,omitzero"`
	LeaseState
}

type sectionDoc struct {
	End   []byte `json:"end,omitempty"`
	Bytes int64  `json:"bytes"`
}

func sectionDocs(sections []Section) []sectionDoc {
	docs := make([]sectionDoc, len(sections))
	for i, s := range sections {
		docs[i] = sectionDoc{End: []byte(s.End), Bytes: s.Bytes}
	}
	return docs
}

type rangeDoc struct {
	Start     []byte `json:"start,omitempty"`
	End       []byte `json:"end,omitempty"`
	StartOpen bool   `json:"startOpen,omitempty"`
	EndClosed bool   `json:"endClosed,omitempty"`
}

func rangeDocs(ranges []rowrange.Range) []rangeDoc {
	docs := make([]rangeDoc, len(ranges))
	for i, r := range ranges {
		docs[i] = rangeDoc{Start: []byte(r.Start), End: []byte(r.End), StartOpen: r.StartOpen, EndClosed: r.EndClosed}
	}
	return docs
}

func decodeSplit(doc Doc) (*splitDoc, error) {
	return decodeDoc[splitDoc](doc)
}

func (s *splitDoc) task() Task { return Task{Scan: s.Scan, Attempt: s.Attempt, Index: s.Index} }

func (s *splitDoc) finished() bool { return s.State == SplitDone || s.State == SplitFailed }

func (s *splitDoc) split(doc Doc) *Split {
	split := &Split{
		Task: s.task(), Of: s.Of, Table: s.Table, State: s.State, Position: string(s.Position), InOrder: s.InOrder, Limit: s.Limit, Counts: s.Counts, Bytes: s.Bytes,
		Holder: s.Holder, Fence: s.Fence, Fruitless: s.Fruitless, Deaths: s.Deaths, LastError: s.LastError, UpdatedAt: doc.UpdatedAt,
	}
	if s.Holder != "" {
		split.Until = s.until(doc)
	}
	for _, section := range s.Sections {
		split.Sections = append(split.Sections, Section{End: string(section.End), Bytes: section.Bytes})
	}
	for _, r := range s.Ranges {
		split.Ranges = append(split.Ranges,
			rowrange.Range{Start: string(r.Start), End: string(r.End), StartOpen: r.StartOpen, EndClosed: r.EndClosed})
	}
	return split
}

// splits is the collection of a plan's splits.
func (l *Ledger) splits(scan, attempt string) string { return l.plan(scan, attempt) + "/splits" }

func (l *Ledger) plan(scan, attempt string) string { return l.root + "/plans/" + id(scan, attempt) }

func (l *Ledger) splitKey(t Task) Key {
	return Key{Collection: l.splits(t.Scan, t.Attempt), ID: id(t.Scan, t.Attempt, strconv.Itoa(t.Index))}
}

// describe names a split in errors.
func (t Task) describe() string { return fmt.Sprintf("split %d of scan %q", t.Index, t.Scan) }
