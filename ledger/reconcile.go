package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// StreamLease is the right to reconcile a stream, for one at a time. It is for one
// goroutine.
type StreamLease struct {
	doc *DocLease[streamDoc, *streamDoc]
	id  StreamID
	// For Stream.TickedAt, ListedAt and NextList; zero: it stays.
	ticked, listed, next time.Time
}

// AcquireStream takes the lease of a stream that nobody holds, or whose lease is over by
// the store's clock. The error is a *HeldError, or ErrNotFound where the stream was not
// begun.
func (l *Ledger) AcquireStream(ctx context.Context, s StreamID, holder Holder) (*StreamLease, error) {
	doc, err := AcquireDoc[streamDoc](ctx, l, l.streamKey(s), holder, nil)
	if err != nil {
		return nil, fmt.Errorf("acquiring change stream %q: %w", s.Name, err)
	}
	return &StreamLease{doc: doc, id: s}, nil
}

// Release gives the stream back.
func (s *StreamLease) Release(ctx context.Context, cause error) error {
	err := s.doc.Release(ctx, Cause{Err: cause}, func(v *streamDoc) error {
		if !s.ticked.IsZero() {
			v.TickedAt = s.ticked
		}
		if !s.listed.IsZero() {
			v.ListedAt, v.NextList = s.listed, s.next
		}
		if cause == nil {
			v.LastError = ""
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("releasing change stream %q: %w", s.id.Name, err)
	}
	return nil
}

// errVoid says that a recovery was decided from documents that have changed since.
var errVoid = errors.New("decided from the past")

// Recovered is what a reconciliation has done.
type Recovered struct {
	Opened []PartitionID
	// Tokenless are those of Opened whose keys had no token, and are read again from a
	// time.
	Tokenless int
	// Void counts the recoveries that others have made pointless meanwhile; they are
	// decided anew by the next reconciliation.
	Void int
}

// Reconcile does what a reconciliation of t asks for, and keeps what it has missed. It may
// be repeated from anywhere with a new topology. What it has done stands beside an error.
func (s *StreamLease) Reconcile(ctx context.Context, t *Topology, r changestream.Reconciled) (Recovered, error) {
	a := &applying{ctx: ctx, ledger: s.doc.ledger, stream: s.id, topology: t}
	err := a.recover(r.Recover)
	if err == nil {
		err = a.forget(r.Stale)
	}
	if err == nil {
		missing := append(slices.Clone(r.Missing), stillMissing(t.Stream.Missing, a.void)...)
		initial := t.Stream.Initial && !a.covers()
		err = s.doc.Commit(ctx, func(v *streamDoc) error {
			v.Missing, v.Initial = missingDocs(missing), initial
			return nil
		})
	}
	if err != nil {
		err = fmt.Errorf("reconciling change stream %q: %w", s.id.Name, err)
	}
	a.done.Void = len(a.void)
	return a.done, err
}

// stillMissing returns what was known of keys whose recovery was void: their time goes on.
func stillMissing(known []changestream.Missing, void []rowrange.Range) []changestream.Missing {
	var out []changestream.Missing
	for _, m := range known {
		for _, r := range void {
			if both, some := rowrange.Intersect(m.Range, r); some {
				out = append(out, changestream.Missing{Range: both, FirstSeen: m.FirstSeen, Seen: m.Seen + 1, LowWatermark: m.LowWatermark})
			}
		}
	}
	return out
}

// applying is one reconciliation.
type applying struct {
	ctx      context.Context
	ledger   *Ledger
	stream   StreamID
	topology *Topology
	done     Recovered
	opened   []rowrange.Range
	void     []rowrange.Range
}

// recover opens what is missing: keys without a token many at a time, others each in a
// transaction of its own, so that one that is void leaves the others alone.
func (a *applying) recover(recoveries []changestream.Recovery) error {
	for len(recoveries) > 0 {
		n := a.together(recoveries)
		err := a.open(recoveries[:n])
		switch {
		case errors.Is(err, errVoid):
			for _, r := range recoveries[:n] {
				a.void = append(a.void, r.Range)
			}
		case err != nil:
			return err
		}
		recoveries = recoveries[n:]
	}
	return nil
}

// together is how many of the recoveries are opened in one transaction.
func (a *applying) together(recoveries []changestream.Recovery) int {
	bytes := 0
	for i, r := range recoveries {
		bytes += 2*len(r.Range.Start) + 2*len(r.Range.End) + 512
		if i > 0 && (len(r.From) > 0 || i == MaxWrites/2 || bytes > MaxCommitBytes/2) {
			return i
		}
		if len(r.From) > 0 {
			return 1
		}
	}
	return len(recoveries)
}

// open is one transaction. It depends on unheldDoc as it was before the topology was
// listed, and on every pending partition that has tokens for the keys.
func (a *applying) open(recoveries []changestream.Recovery) error {
	names := make([]string, len(recoveries))
	for i := range names {
		names[i] = rand.Text()
	}
	seen, mark := a.topology.unheld, rand.Text()
	doc, err := a.ledger.edit(a.ctx, seen, func(doc Doc) (stamped, []Write, error) {
		if doc.Version != seen.Version {
			return nil, nil, errVoid
		}
		rest, err := a.writes(recoveries, names, mark)
		return &unheldDoc{}, rest, err
	})
	if err != nil {
		return err
	}
	a.topology.unheld = doc
	for i, r := range recoveries {
		if err := a.refresh(r, mark); err != nil {
			return err
		}
		a.opened = append(a.opened, r.Range)
		a.done.Opened = append(a.done.Opened, PartitionID{Stream: a.stream, Incarnation: names[i]})
		if len(r.Tokens) == 0 && !a.topology.Stream.Initial {
			a.done.Tokenless++
		}
	}
	return nil
}

func (a *applying) writes(recoveries []changestream.Recovery, names []string, mark string) ([]Write, error) {
	var out []Write
	for i, r := range recoveries {
		key := a.ledger.partitionKey(PartitionID{Stream: a.stream, Incarnation: names[i]})
		w, err := a.ledger.put(Doc{Key: key}, newPartitionDoc(r.Opening))
		if err != nil {
			return nil, err
		}
		out = append(out, w)
		for _, target := range r.From {
			w, err := a.consume(target, r.Tokens, mark)
			if err != nil {
				return nil, err
			}
			out = append(out, w)
		}
	}
	return out, nil
}

// consume takes tokens from a pending partition, unless it has changed since.
func (a *applying) consume(target rowrange.Range, tokens []changestream.Token, mark string) (Write, error) {
	seen, known := a.topology.pending[target]
	if !known {
		return Write{}, errVoid
	}
	doc, err := a.ledger.get(a.ctx, seen.Key)
	if err != nil {
		return Write{}, err
	}
	if doc.Version != seen.Version {
		return Write{}, errVoid
	}
	p, err := decodePending(seen)
	if err != nil {
		return Write{}, err
	}
	p.Tokens = slices.DeleteFunc(p.Tokens, func(t changestream.Token) bool { return slices.Contains(tokens, t) })
	return a.ledger.putPending(seen, *p, mark)
}

// refresh reads the pending partitions that a recovery has changed, which another
// recovery may take from. One that somebody else has changed since stays as it was seen, so
// that what is decided from it is void.
func (a *applying) refresh(r changestream.Recovery, mark string) error {
	for _, target := range r.From {
		doc, err := a.ledger.get(a.ctx, a.topology.pending[target].Key)
		switch {
		case err != nil:
			return err
		case doc.Body == nil:
			delete(a.topology.pending, target)
		case doc.mark() == mark:
			a.topology.pending[target] = doc
		}
	}
	return nil
}

// forget removes tokens whose keys a partition holds.
func (a *applying) forget(stale []changestream.StaleToken) error {
	for _, s := range stale {
		seen, known := a.topology.pending[s.Target]
		if !known {
			continue
		}
		doc, err := a.ledger.edit(a.ctx, seen, func(doc Doc) (stamped, []Write, error) {
			if doc.Version != seen.Version {
				return nil, nil, errVoid
			}
			p, err := decodePending(doc)
			if err != nil {
				return nil, nil, err
			}
			p.Tokens = slices.DeleteFunc(p.Tokens, func(t changestream.Token) bool { return t.Range == s.Range })
			if len(p.Tokens) == 0 {
				return &tombstone{Deleted: true}, nil, nil
			}
			return newPendingDoc(*p), nil, nil
		})
		switch {
		case errors.Is(err, errVoid):
		case err != nil:
			return err
		case doc.Body == nil:
			delete(a.topology.pending, s.Target)
		default:
			a.topology.pending[s.Target] = doc
		}
	}
	return nil
}

// covers reports whether every key is held, completed or has a token. That stays so,
// because a partition that gives a key up leaves its token.
func (a *applying) covers() bool {
	all := slices.Concat(a.opened, a.topology.Completed)
	for _, p := range a.topology.Partitions {
		all = append(all, p.Range)
	}
	for _, p := range a.topology.Pending {
		for _, t := range p.Tokens {
			all = append(all, t.Range)
		}
	}
	return rowrange.Covers(rowrange.Merge(all), rowrange.Range{})
}
