package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
)

// PartitionID names a partition of a stream. Its incarnation is random: the same range
// may close and be formed again.
type PartitionID struct {
	Stream      StreamID
	Incarnation string
}

func (p PartitionID) describe() string {
	return fmt.Sprintf("partition %s of change stream %q", p.Incarnation, p.Stream.Name)
}

// Partition is a range of keys and the place where its stream goes on.
type Partition struct {
	PartitionID
	changestream.Opening
	// Idle is how long after VisitedAt the next visit is due; 0: at once.
	Idle time.Duration
	// VisitedAt is when a lease was last given back or the position refreshed, MovedAt when
	// the position moved; both by the store's clock, zero: not yet.
	VisitedAt, MovedAt time.Time
	// Watched says that Ledger.Watched returns it.
	Watched bool
	// Holder has its lease, or had it last if Left is 0; empty: nobody has.
	Holder Holder
	// Left is how long its lease lasts; 0: nobody has it.
	Left  time.Duration
	Fence int64
	// Fruitless and Deaths are how often in a row it was given back on a verdict, and how
	// many holders have died, since its position moved.
	Fruitless, Deaths int
	// LastError is why a holder last gave up; empty since the position has moved.
	LastError string

	doc Doc // as it was read
}

// Abandoned reports whether its lease is over and its holder has not given it back.
func (p *Partition) Abandoned() bool { return p.Holder != "" && p.Left == 0 }

// LogValue gives what may be logged: ranges are row keys, and tokens are opaque.
func (p *Partition) LogValue() slog.Value {
	return slog.GroupValue(slog.String("stream", p.Stream.Name), slog.String("incarnation", p.Incarnation),
		slog.Int("tokens", len(p.Tokens)), slog.Time("lowWatermark", p.LowWatermark), slog.Int64("fence", p.Fence))
}

// partitionDoc is a partition as it is kept. Its id is the incarnation.
type partitionDoc struct {
	Range        rangeDoc   `json:"range"`
	Tokens       []tokenDoc `json:"tokens,omitempty"`
	Start        time.Time  `json:"start,omitzero"`
	LowWatermark time.Time  `json:"lowWatermark"`
	IdleMillis   int64      `json:"idleMillis,omitempty"`
	VisitedAt    time.Time  `json:"visitedAt,omitzero"`
	MovedAt      time.Time  `json:"movedAt,omitzero"`
	Watched      bool       `json:"watched,omitempty"`
	Permanent
	LeaseState
}

func newPartitionDoc(o changestream.Opening) *partitionDoc {
	return &partitionDoc{Range: rangeDocOf(o.Range), Tokens: tokenDocs(o.Tokens), Start: o.Start, LowWatermark: o.LowWatermark}
}

func (p *partitionDoc) opening() changestream.Opening {
	return changestream.Opening{Range: p.Range.keys(), Tokens: tokensOf(p.Tokens), Start: p.Start, LowWatermark: p.LowWatermark}
}

func (p *partitionDoc) partition(s StreamID, doc Doc) *Partition {
	out := &Partition{
		PartitionID: PartitionID{Stream: s, Incarnation: doc.Key.ID}, Opening: p.opening(),
		Idle: time.Duration(p.IdleMillis) * time.Millisecond, VisitedAt: p.VisitedAt, MovedAt: p.MovedAt, Watched: p.Watched,
		Holder: p.Holder, Fence: p.Fence, Fruitless: p.Fruitless, Deaths: p.Deaths, LastError: p.LastError, doc: doc,
	}
	if p.Holder != "" {
		out.Left = max(0, p.until(doc).Sub(doc.ReadAt))
	}
	return out
}

func (l *Ledger) partitionKey(p PartitionID) Key {
	return Key{Collection: l.below(p.Stream, partitionsOf), ID: p.Incarnation}
}

// Now returns the time by the store's clock, reckoned from when the partition was read.
func (p *Partition) Now() time.Time { return p.doc.now() }

// Partition reads a partition and leaves it alone. The error is ErrNotFound where it has
// closed.
func (l *Ledger) Partition(ctx context.Context, p PartitionID) (*Partition, error) {
	doc, err := Doc{}, ErrNotFound
	if isIncarnation(p.Incarnation) {
		doc, err = l.get(ctx, l.partitionKey(p))
	}
	if err == nil {
		var v *partitionDoc
		if v, err = decodeDoc[partitionDoc](doc); err == nil {
			return v.partition(p.Stream, doc), nil
		}
	}
	return nil, fmt.Errorf("reading %s: %w", p.describe(), err)
}

// Refresh makes a position durable up to which somebody without a lease has read and found
// no change, in one write. It does so only if nobody has taken or written the partition
// since p was read: then no holder lives, and what lies between the two positions is known
// to be empty. The error wraps ErrLost otherwise. idle is as in PartitionLease.Release. If unwatch
// is true, the partition is not watched any more.
func (l *Ledger) Refresh(ctx context.Context, p *Partition, at changestream.Position, idle time.Duration, unwatch bool) error {
	_, err := l.edit(ctx, p.doc, func(doc Doc) (stamped, []Write, error) {
		if doc.Version != p.doc.Version {
			return nil, nil, ErrLost
		}
		v, err := decodeDoc[partitionDoc](doc)
		if err != nil {
			return nil, nil, err
		}
		if v.Holder != "" {
			return nil, nil, ErrLost
		}
		v.move(at, doc.now())
		v.IdleMillis, v.VisitedAt = idle.Milliseconds(), doc.now()
		if !unwatch {
			return v, nil, nil
		}
		rest, err := l.unwatch(ctx, p.PartitionID, v)
		return v, rest, err
	})
	if err != nil {
		return fmt.Errorf("refreshing %s: %w", p.describe(), err)
	}
	return nil
}

// move sets the position.
func (p *partitionDoc) move(at changestream.Position, now time.Time) {
	p.Tokens = []tokenDoc{{Range: p.Range, Token: at.Token}}
	p.Start, p.LowWatermark, p.MovedAt = time.Time{}, at.LowWatermark, now
	p.Fruitless, p.Deaths, p.LastError = 0, 0, ""
}

// PartitionLease is the right to move one partition forward. It is for one goroutine at
// a time.
type PartitionLease struct {
	doc     *DocLease[partitionDoc, *partitionDoc]
	id      PartitionID
	opening map[string]string // incarnations of successors, by range id
	moved   bool              // a position was committed
}

// AcquirePartition takes the lease of a partition that nobody holds, or whose lease was over
// by the store's clock when p was read, and raises its fence. It reads p again only if somebody
// has written it since. holder is the process that takes the lease. The error is a *HeldError,
// or ErrNotFound if the partition has closed.
func (l *Ledger) AcquirePartition(ctx context.Context, p *Partition, holder Holder) (*PartitionLease, error) {
	leased, err := acquireDoc[partitionDoc](ctx, l, p.doc, time.Now(), holder, func(v *partitionDoc) ([]Write, error) {
		return l.watch(ctx, p.PartitionID, v)
	})
	if err != nil {
		return nil, fmt.Errorf("acquiring %s: %w", p.describe(), err)
	}
	return &PartitionLease{doc: leased, id: p.PartitionID, opening: make(map[string]string)}, nil
}

// isIncarnation reports whether a text may be the name of a document: a task may hold
// anything.
func isIncarnation(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return text != "" && len(text) <= 64
}

// Partition returns the partition as of the last commit.
func (p *PartitionLease) Partition() *Partition {
	return p.doc.Value().partition(p.id.Stream, p.doc.doc)
}

// Fence returns the fence under which the partition is held.
func (p *PartitionLease) Fence() int64 { return p.doc.Fence() }

// Now returns the time by the store's clock, reckoned from when the partition was last
// read.
func (p *PartitionLease) Now() time.Time { return p.doc.doc.now() }

// Deadline is until when, by this process's clock, nobody else can have taken the
// partition: what is sent to a sink later may be sent by another holder too. A commit
// moves it. A commit after it succeeds if nobody has.
func (p *PartitionLease) Deadline() time.Time { return p.doc.Deadline() }

// Commit makes a position durable, of which all before it is acknowledged, and renews the
// lease. nil: only the latter. An error that wraps ErrLost is final; after any other, the
// lease may be tried again, with the same position or a later one.
func (p *PartitionLease) Commit(ctx context.Context, at *changestream.Position) error {
	err := p.doc.Commit(ctx, func(v *partitionDoc) error {
		p.move(v, at)
		return nil
	})
	p.moved = p.moved || err == nil && at != nil
	return p.settle("committing", err)
}

// move sets the position, if there is one.
func (p *PartitionLease) move(v *partitionDoc, at *changestream.Position) {
	if at != nil {
		v.move(*at, p.Now())
	}
}

// Release makes a position durable, as Commit does, and gives the partition back, for
// anyone to take at once. idle is how long from now its next visit is due. The cause
// counts as fruitless only if no position has been committed under this lease.
func (p *PartitionLease) Release(ctx context.Context, at *changestream.Position, idle time.Duration, cause Cause) error {
	if at != nil || p.moved {
		cause.Fruitless = false
	}
	return p.settle("releasing", p.doc.Release(ctx, cause, func(v *partitionDoc) error {
		said := v.LastError
		p.move(v, at)
		if cause.Err != nil {
			v.LastError = said
		}
		v.IdleMillis, v.VisitedAt = idle.Milliseconds(), p.Now()
		return nil
	}))
}

// Restart sets the partition to a time from which it is to be read anew, and renews the
// lease: what lies between its position and that time is lost.
func (p *PartitionLease) Restart(ctx context.Context, start time.Time) error {
	return p.settle("restarting", p.doc.Commit(ctx, func(v *partitionDoc) error {
		v.Tokens, v.Start, v.LowWatermark, v.MovedAt = nil, start, start, p.Now()
		return nil
	}))
}

// Complete records that the partition was read up to the end of a bounded stream: its
// keys are never read again. The partition is gone then.
func (p *PartitionLease) Complete(ctx context.Context) error {
	l := p.doc.ledger
	return p.settle("completing", p.doc.Delete(ctx, func(v *partitionDoc) ([]Write, error) {
		key := Key{Collection: l.below(p.id.Stream, completedOf), ID: rangeID(v.Range.keys())}
		doc, err := l.get(ctx, key)
		if err != nil {
			return nil, err
		}
		w, err := l.put(doc, &completedDoc{Range: v.Range, At: p.Now()})
		return []Write{w}, err
	}))
}

func (p *PartitionLease) settle(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", doing, p.id.describe(), err)
	}
	return nil
}
