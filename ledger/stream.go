package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// StreamID names a change stream that is read. The same name with another table is
// another stream, with positions of its own.
type StreamID struct {
	Name  string // in the pipeline file
	Table string // the full name (projects/P/instances/I/tables/T)
}

// Stream is what is known of a change stream as a whole.
type Stream struct {
	StreamID
	// Start is the time from which the stream is read, decided once.
	Start time.Time
	// Initial says that the stream has never covered all keys of the table.
	Initial bool
	// Missing are the keys that the last reconciliation has missed.
	Missing []changestream.Missing
	// TickedAt is the time of the last tick that has published all that was due among the
	// watched partitions, ListedAt that of the last that has done so among all, and NextList
	// when the next of these is due; by the store's clock, zero: not yet.
	TickedAt, ListedAt, NextList time.Time
}

// streamDoc is a stream as it is kept. A process must hold its lease to reconcile it.
type streamDoc struct {
	Name     string       `json:"name"`
	Table    string       `json:"table"`
	Start    time.Time    `json:"start"`
	Initial  bool         `json:"initial,omitempty"`
	Missing  []missingDoc `json:"missing,omitempty"`
	TickedAt time.Time    `json:"tickedAt,omitzero"`
	ListedAt time.Time    `json:"listedAt,omitzero"`
	NextList time.Time    `json:"nextList,omitzero"`
	Permanent
	LeaseState
}

type missingDoc struct {
	Range        rangeDoc  `json:"range"`
	FirstSeen    time.Time `json:"firstSeen"`
	Seen         int       `json:"seen"`
	LowWatermark time.Time `json:"lowWatermark"`
}

func (s *streamDoc) stream() *Stream {
	out := &Stream{StreamID: StreamID{Name: s.Name, Table: s.Table}, Start: s.Start, Initial: s.Initial, TickedAt: s.TickedAt, ListedAt: s.ListedAt, NextList: s.NextList}
	for _, m := range s.Missing {
		out.Missing = append(out.Missing, changestream.Missing{
			Range: m.Range.keys(), FirstSeen: m.FirstSeen, Seen: m.Seen, LowWatermark: m.LowWatermark,
		})
	}
	return out
}

func missingDocs(missing []changestream.Missing) []missingDoc {
	var out []missingDoc
	for _, m := range missing {
		out = append(out, missingDoc{Range: rangeDocOf(m.Range), FirstSeen: m.FirstSeen, Seen: m.Seen, LowWatermark: m.LowWatermark})
	}
	return out
}

func rangeDocOf(r rowrange.Range) rangeDoc {
	return rangeDoc{Start: []byte(r.Start), End: []byte(r.End), StartOpen: r.StartOpen, EndClosed: r.EndClosed}
}

func (r rangeDoc) keys() rowrange.Range {
	return rowrange.Range{Start: string(r.Start), End: string(r.End), StartOpen: r.StartOpen, EndClosed: r.EndClosed}
}

// rangeID is the id of a document about a range of keys.
func rangeID(r rowrange.Range) string { return id(r.Start, r.End) }

func (l *Ledger) streamKey(s StreamID) Key {
	return Key{Collection: l.root + "/streams", ID: id(s.Name, s.Table)}
}

// below names a collection of documents of the stream.
func (l *Ledger) below(s StreamID, collection string) string {
	key := l.streamKey(s)
	return key.Collection + "/" + key.ID + "/" + collection
}

// BeginStream returns a stream, and records its start where there is none yet: start is
// asked for it, with the time by the store's clock. A stream that was begun keeps its
// start, whoever asks again.
func (l *Ledger) BeginStream(ctx context.Context, s StreamID, start func(now time.Time) (time.Time, error)) (*Stream, error) {
	doc, err := l.get(ctx, l.streamKey(s))
	var begun Doc
	if err == nil {
		doc, err = l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
			if doc.Body != nil {
				begun = doc
				return nil, nil, errSettled
			}
			at, err := start(doc.now())
			if err != nil {
				return nil, nil, err
			}
			return &streamDoc{Name: s.Name, Table: s.Table, Start: at.UTC(), Initial: true}, nil, nil
		})
	}
	if errors.Is(err, errSettled) {
		doc, err = begun, nil
	}
	if err != nil {
		return nil, fmt.Errorf("beginning change stream %q: %w", s.Name, err)
	}
	return decodeStream(doc)
}

// Stream returns a stream. The error is ErrNotFound where it was not begun.
func (l *Ledger) Stream(ctx context.Context, s StreamID) (*Stream, error) {
	doc, err := l.get(ctx, l.streamKey(s))
	if err == nil {
		var out *Stream
		if out, err = decodeStream(doc); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("reading change stream %q: %w", s.Name, err)
}

func decodeStream(doc Doc) (*Stream, error) {
	v, err := decodeDoc[streamDoc](doc)
	if err != nil {
		return nil, err
	}
	return v.stream(), nil
}

// Topology is what the ledger knows of a stream's keys, all as of one moment but for
// Stream, which its lease's holder alone changes.
type Topology struct {
	Stream     *Stream
	Partitions []*Partition
	Pending    []changestream.Pending
	Completed  []rowrange.Range
	ReadAt     time.Time // by the store's clock

	unheld  Doc
	pending map[rowrange.Range]Doc
}

// Compare returns what a reconciliation compares, with the partitions that the service
// has now.
func (t *Topology) Compare(service []rowrange.Range) changestream.Topology {
	out := changestream.Topology{
		Service: service, Completed: t.Completed, Pending: t.Pending, Missing: t.Stream.Missing, Start: t.Stream.Start, Initial: t.Stream.Initial,
	}
	for _, p := range t.Partitions {
		out.Partitions = append(out.Partitions, changestream.Held{Range: p.Range, LowWatermark: p.LowWatermark})
	}
	return out
}

// Topology returns what the ledger knows of the stream's keys. It reads every partition.
func (l *Ledger) Topology(ctx context.Context, s StreamID) (*Topology, error) {
	stream, err := l.Stream(ctx, s)
	if err != nil {
		return nil, err
	}
	t := &Topology{Stream: stream, pending: make(map[rowrange.Range]Doc)}
	// Before the list: what becomes held after this read changes the version.
	if t.unheld, err = l.get(ctx, l.unheldKey(s)); err != nil {
		return nil, fmt.Errorf("reading change stream %q: %w", s.Name, err)
	}
	t.ReadAt = t.unheld.ReadAt
	partitions, pending, completed := l.below(s, partitionsOf), l.below(s, pendingOf), l.below(s, completedOf)
	err = l.list(ctx, func(doc Doc) error {
		switch doc.Key.Collection {
		case partitions:
			return t.addPartition(s, doc)
		case pending:
			return t.addPending(doc)
		}
		return t.addCompleted(doc)
	}, partitions, pending, completed)
	if err != nil {
		return nil, fmt.Errorf("listing the partitions of change stream %q: %w", s.Name, err)
	}
	return t, nil
}

func (t *Topology) addPartition(s StreamID, doc Doc) error {
	v, err := decodeDoc[partitionDoc](doc)
	if err == nil {
		t.Partitions = append(t.Partitions, v.partition(s, doc))
	}
	return err
}

func (t *Topology) addPending(doc Doc) error {
	p, err := decodePending(doc)
	if err == nil {
		t.Pending = append(t.Pending, *p)
		t.pending[p.Target] = doc
	}
	return err
}

func (t *Topology) addCompleted(doc Doc) error {
	var c completedDoc
	if err := json.Unmarshal(doc.Body, &c); err != nil {
		return fmt.Errorf("decoding a completed range of %d bytes: %w", len(doc.Body), err)
	}
	t.Completed = append(t.Completed, c.Range.keys())
	return nil
}

// The collections of a stream's documents.
const (
	partitionsOf = "partitions"
	pendingOf    = "pending"
	completedOf  = "completed"
	unheldOf     = "unheld"
)

// unheldDoc is written with every transaction that takes keys which no partition held. A
// process reads it before it looks whether somebody holds the keys, so that of two
// processes that take the same keys one fails. Keys that a partition holds change hands
// only in the transaction that deletes the partition.
type unheldDoc struct {
	Permanent
	stamp
}

func (l *Ledger) unheldKey(s StreamID) Key {
	return Key{Collection: l.below(s, unheldOf), ID: unheldOf}
}

// pendingDoc is a partition that waits for the tokens of all its parents. Its id is that
// of its range.
type pendingDoc struct {
	Target       rangeDoc   `json:"target"`
	Tokens       []tokenDoc `json:"tokens"`
	LowWatermark time.Time  `json:"lowWatermark"`
	UpdatedAt    time.Time  `json:"updatedAt"`
	Permanent
	stamp
}

type tokenDoc struct {
	Range rangeDoc `json:"range"`
	Token string   `json:"token"`
}

func tokenDocs(tokens []changestream.Token) []tokenDoc {
	var out []tokenDoc
	for _, t := range tokens {
		out = append(out, tokenDoc{Range: rangeDocOf(t.Range), Token: t.Value})
	}
	return out
}

func tokensOf(docs []tokenDoc) []changestream.Token {
	var out []changestream.Token
	for _, d := range docs {
		out = append(out, changestream.Token{Range: d.Range.keys(), Value: d.Token})
	}
	return out
}

func newPendingDoc(p changestream.Pending) *pendingDoc {
	return &pendingDoc{Target: rangeDocOf(p.Target), Tokens: tokenDocs(p.Tokens), LowWatermark: p.LowWatermark, UpdatedAt: p.UpdatedAt}
}

func decodePending(doc Doc) (*changestream.Pending, error) {
	var p pendingDoc
	if err := json.Unmarshal(doc.Body, &p); err != nil {
		return nil, fmt.Errorf("decoding a pending partition of %d bytes: %w", len(doc.Body), err)
	}
	return &changestream.Pending{Target: p.Target.keys(), Tokens: tokensOf(p.Tokens), LowWatermark: p.LowWatermark, UpdatedAt: p.UpdatedAt}, nil
}

func (l *Ledger) pendingKey(s StreamID, target rowrange.Range) Key {
	return Key{Collection: l.below(s, pendingOf), ID: rangeID(target)}
}

// putPending is the write that turns doc into p, and deletes it where p has no tokens. The
// version changes even where the text does not.
func (l *Ledger) putPending(doc Doc, p changestream.Pending, mark string) (Write, error) {
	if len(p.Tokens) == 0 {
		return Write{Op: OpDelete, Key: doc.Key, Version: doc.Version}, nil
	}
	d := newPendingDoc(p)
	d.mark(mark)
	return l.put(doc, d)
}

// completedDoc is a range that has been read up to the end of a bounded stream.
type completedDoc struct {
	Range rangeDoc  `json:"range"`
	At    time.Time `json:"at"`
	Permanent
	stamp
}
