package ledger

import (
	"context"
	"sync/atomic"
)

// Meter counts what passes to a Store as Firestore bills it: a read for every
// document asked for (also one that is not there, and one that a commit checks),
// for every document listed, and for a list of nothing; a write or a delete for
// every document of a commit, counted whether or not the commit succeeds. It is
// safe for concurrent use.
type Meter struct {
	Store
	reads, writes, deletes, calls atomic.Int64
}

// NewMeter returns a Meter over store.
func NewMeter(store Store) *Meter { return &Meter{Store: store} }

// Usage is what a Meter has counted. Calls are those of the Store's methods.
type Usage struct{ Reads, Writes, Deletes, Calls int64 }

// Usage returns the counts so far.
func (m *Meter) Usage() Usage {
	return Usage{Reads: m.reads.Load(), Writes: m.writes.Load(), Deletes: m.deletes.Load(), Calls: m.calls.Load()}
}

// Minus returns what u has more than before.
func (u Usage) Minus(before Usage) Usage {
	return Usage{
		Reads: u.Reads - before.Reads, Writes: u.Writes - before.Writes,
		Deletes: u.Deletes - before.Deletes, Calls: u.Calls - before.Calls,
	}
}

// Get implements Store.
func (m *Meter) Get(ctx context.Context, keys ...Key) ([]Doc, error) {
	m.calls.Add(1)
	m.reads.Add(int64(len(keys)))
	return m.Store.Get(ctx, keys...)
}

// Commit implements Store.
func (m *Meter) Commit(ctx context.Context, writes []Write) ([]string, error) {
	m.calls.Add(1)
	for _, w := range writes {
		switch w.Op {
		case OpPut:
			m.writes.Add(1)
		case OpDelete:
			m.deletes.Add(1)
		case OpCheck:
			m.reads.Add(1)
		}
	}
	return m.Store.Commit(ctx, writes)
}

// List implements Store.
func (m *Meter) List(ctx context.Context, each func(Doc) error, collections ...string) error {
	m.calls.Add(1)
	found := make(map[string]bool)
	err := m.Store.List(ctx, func(doc Doc) error {
		m.reads.Add(1)
		found[doc.Key.Collection] = true
		return each(doc)
	}, collections...)
	if err == nil {
		m.reads.Add(int64(len(collections) - len(found)))
	}
	return err
}
