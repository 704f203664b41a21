package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A partition is watched from when it is leased until a visit finds that it has had no
// changes for long. So whoever looks at the watched partitions sees each that may have
// changes, was left by a dead holder or has closed, without reading the idle ones. It is a
// hint for the coordinator: nothing is lost without it.

// watchedDoc says that the partition of that incarnation is watched. It is made and, while
// the partition lives, deleted in transactions that also write the partition.
type watchedDoc struct {
	Permanent
	stamp
}

const watchedOf = "watched"

func (l *Ledger) watchedKey(p PartitionID) Key {
	return Key{Collection: l.below(p.Stream, watchedOf), ID: p.Incarnation}
}

// watch returns what is written with v to watch it.
func (l *Ledger) watch(ctx context.Context, p PartitionID, v *partitionDoc) ([]Write, error) {
	if v.Watched {
		return nil, nil
	}
	v.Watched = true
	doc, err := l.get(ctx, l.watchedKey(p))
	if err != nil || doc.Body != nil {
		return nil, err
	}
	w, err := l.put(doc, &watchedDoc{})
	return []Write{w}, err
}

// unwatch returns what is written with v to watch it no more.
func (l *Ledger) unwatch(ctx context.Context, p PartitionID, v *partitionDoc) ([]Write, error) {
	if !v.Watched {
		return nil, nil
	}
	v.Watched = false
	doc, err := l.get(ctx, l.watchedKey(p))
	if err != nil || doc.Version == "" {
		return nil, err
	}
	return []Write{{Op: OpDelete, Key: doc.Key, Version: doc.Version}}, nil
}

// maxRead is how many documents are asked for in one call.
const maxRead = 300

// Watched returns the watched partitions, and those that were watched and have closed, until
// StreamLease.Forget. It reads two documents for each.
func (l *Ledger) Watched(ctx context.Context, s StreamID) (partitions []*Partition, closed []PartitionID, err error) {
	var keys []Key
	err = l.list(ctx, func(doc Doc) error {
		keys = append(keys, l.partitionKey(PartitionID{Stream: s, Incarnation: doc.Key.ID}))
		return nil
	}, l.below(s, watchedOf))
	for some := range slices.Chunk(keys, maxRead) {
		var docs []Doc
		if err == nil {
			docs, err = l.read(ctx, some...)
		}
		for _, doc := range docs {
			v, wrong := decodeDoc[partitionDoc](doc)
			switch {
			case errors.Is(wrong, ErrNotFound):
				closed = append(closed, PartitionID{Stream: s, Incarnation: doc.Key.ID})
			case wrong != nil:
				err = wrong
			default:
				partitions = append(partitions, v.partition(s, doc))
			}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the watched partitions of change stream %q: %w", s.Name, err)
	}
	return partitions, closed, nil
}

// Forget removes what says that partitions are watched which have closed: an incarnation does
// not come again.
func (s *StreamLease) Forget(ctx context.Context, closed []PartitionID) error {
	l := s.doc.ledger
	for some := range slices.Chunk(closed, maxRead) {
		keys := make([]Key, len(some))
		for i, p := range some {
			keys[i] = l.watchedKey(p)
		}
		docs, err := l.store.Get(ctx, keys...)
		var writes []Write
		for _, doc := range docs {
			if doc.Version != "" {
				writes = append(writes, Write{Op: OpDelete, Key: doc.Key, Version: doc.Version})
			}
		}
		if err == nil && len(writes) > 0 {
			_, err = l.store.Commit(ctx, writes)
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			return fmt.Errorf("forgetting the closed partitions of change stream %q: %w", s.id.Name, err)
		}
	}
	return nil
}

// Stream returns the stream as of the last write, and Now the time by the store's clock.
func (s *StreamLease) Stream() *Stream { return s.doc.Value().stream() }

// Now returns the time by the store's clock, reckoned from when the stream was last read.
func (s *StreamLease) Now() time.Time { return s.doc.doc.now() }

// Ticked notes for Release that all is published that was due at a time among the watched
// partitions.
func (s *StreamLease) Ticked(at time.Time) { s.ticked = at }

// Listed notes the same of all partitions, and when they are to be listed next.
func (s *StreamLease) Listed(at, next time.Time) { s.ticked, s.listed, s.next = at, at, next }
