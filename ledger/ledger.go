// Package ledger guarantees that work survives the processes that do it: what a scan has
// planned and how far each of its splits has come outlives every invocation, one
// holder at a time moves a split forward, and a holder that was overtaken cannot.
//
// The documents are typed here and kept by a Store. A lease is a document that names its
// holder. It ends when the store's clock says so, or when a process that knows that the holder
// is dead breaks it. Either way the split's fence rises, and a commit is one compare-and-set
// that checks the fence at the same time. If a reply is lost, the document is read back: every
// write carries an id of its own.
//
// The package is for the programs of this repository. Its API follows their needs and may
// change with any commit.
package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

const (
	// LeaseTime is how long a lease lasts after its last commit where Options say
	// nothing.
	LeaseTime = 90 * time.Second
	// Retention is how long a document is kept after its last change where Options
	// say nothing. The messages that could bring work back live seven days.
	Retention = 30 * 24 * time.Hour
)

// maxAttempts bounds the tries of one change: about ten seconds of backoff.
const maxAttempts = 16

// backoff is waited between the tries of one change.
var backoff = retry.Backoff{Initial: 20 * time.Millisecond, Max: time.Second, Jitter: 0.5}

// ErrNotFound: there is no such document, or it was kept long enough.
var ErrNotFound = errors.New("not in the ledger")

// Options are what may differ from the defaults, which zero values stand for.
type Options struct {
	Lease     time.Duration // at least a millisecond
	Retention time.Duration
}

// Ledger is the memory of one pipeline. It is safe for concurrent use.
type Ledger struct {
	store     Store
	root      string
	lease     time.Duration
	retention time.Duration
}

// New returns the ledger of the pipeline of that name in store, which other
// pipelines may share. The name is one of a path, as Key says.
func New(store Store, pipeline string, o Options) *Ledger {
	l := &Ledger{store: store, root: "pipelines/" + pipeline, lease: LeaseTime, retention: Retention}
	if o.Lease > 0 {
		l.lease = o.Lease
	}
	if o.Retention > 0 {
		l.retention = o.Retention
	}
	return l
}

// id names a document by what it is about: a hash of the parts, each with its
// length before it, so that no two lists of parts share a name and the names are
// spread evenly over the store.
func id(parts ...string) string {
	var key []byte
	for _, p := range parts {
		key = binary.AppendUvarint(key, uint64(len(p)))
		key = append(key, p...)
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16])
}

// read reads documents. What is deleted or past its expiry has no body, whether or not
// the store still keeps it; its version stands, for a write that replaces it.
func (l *Ledger) read(ctx context.Context, keys ...Key) ([]Doc, error) {
	docs, err := l.store.Get(ctx, keys...)
	now := time.Now()
	for i := range docs {
		docs[i].raw, docs[i].readHere = docs[i].Body, now
		if docs[i].gone() {
			docs[i].Body = nil
		}
	}
	return docs, err
}

// list calls each with the documents of the collections that are not gone.
func (l *Ledger) list(ctx context.Context, each func(Doc) error, collections ...string) error {
	return l.store.List(ctx, func(doc Doc) error {
		if doc.gone() {
			return nil
		}
		doc.raw = doc.Body
		return each(doc)
	}, collections...)
}

func (l *Ledger) get(ctx context.Context, key Key) (Doc, error) {
	docs, err := l.read(ctx, key)
	if err != nil {
		return Doc{}, err
	}
	return docs[0], nil
}

// gone reports whether the document is deleted or past its expiry.
func (d Doc) gone() bool {
	return !d.ExpireAt.IsZero() && !d.ReadAt.Before(d.ExpireAt) || bytes.HasPrefix(d.Body, deleted)
}

// now is the time by the store's clock, reckoned from when the document was read.
func (d Doc) now() time.Time {
	if d.readHere.IsZero() {
		return d.ReadAt
	}
	return d.ReadAt.Add(time.Since(d.readHere))
}

// tombstone stands in the place of a deleted document for an hour, which is longer than an
// edit may take. A process whose reply was lost reads in it whether its own write deleted
// the document.
type tombstone struct {
	Deleted bool `json:"deleted"` // first, see deleted
	stamp
}

const tombstoneTime = time.Hour

// deleted is how the body of a tombstone begins, and no other does.
var deleted = []byte(`{"deleted":true`)

// stamp is part of every document that edit writes.
type stamp struct {
	Write string `json:"write,omitempty"`
}

func (s *stamp) mark(id string) { s.Write = id }

type stamped interface{ mark(id string) }

// build decides, from a document as it is, what it becomes and what must change
// with it. It may be asked again, about a later state.
type build func(Doc) (next stamped, rest []Write, err error)

// edit changes or, by a tombstone, deletes doc, and the rest with it, and returns it as
// changed. It is called with the document as last read: when that is out of date, or when a
// reply is lost, edit reads it back. It then finds its own write, or a later document to
// decide on.
func (l *Ledger) edit(ctx context.Context, doc Doc, b build) (Doc, error) {
	mark := rand.Text()
	var doubt error
	for attempt := range maxAttempts {
		if doubt != nil {
			if err := retry.Sleep(ctx, backoff.Delay(attempt, mathrand.Float64())); err != nil {
				return Doc{}, fmt.Errorf("%w: %w", err, doubt)
			}
			read, err := l.get(ctx, doc.Key)
			if errors.Is(err, ErrUnavailable) {
				continue
			}
			if err != nil {
				return Doc{}, fmt.Errorf("reading back after %w: %w", doubt, err)
			}
			if doc = read; doc.mark() == mark {
				return doc, nil
			}
		}
		next, err := l.try(ctx, doc, mark, b)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnavailable) {
			return Doc{}, err
		}
		doubt = err
	}
	return Doc{}, fmt.Errorf("after %d attempts: %w", maxAttempts, doubt)
}

// mark is the id of the write that made the document.
func (d Doc) mark() string {
	var s stamp
	if json.Unmarshal(d.raw, &s) != nil {
		return ""
	}
	return s.Write
}

func (l *Ledger) try(ctx context.Context, doc Doc, mark string, b build) (Doc, error) {
	next, rest, err := b(doc)
	if err != nil {
		return Doc{}, err
	}
	next.mark(mark)
	put, err := l.put(doc, next)
	if err != nil {
		return Doc{}, err
	}
	versions, err := l.store.Commit(ctx, append([]Write{put}, rest...))
	if err != nil {
		return Doc{}, err
	}
	doc.Version, doc.Body, doc.raw, doc.ExpireAt = versions[0], put.Body, put.Body, put.ExpireAt
	if _, gone := next.(*tombstone); gone {
		doc.Body = nil
	}
	return doc, nil
}

// put is the write that turns doc into next.
func (l *Ledger) put(doc Doc, next any) (Write, error) {
	body, err := json.Marshal(next)
	if err != nil {
		return Write{}, err
	}
	w := Write{Key: doc.Key, Version: doc.Version, Body: body}
	switch next.(type) {
	case interface{ permanent() }:
	case *tombstone:
		w.ExpireAt = doc.now().Add(tombstoneTime).Truncate(time.Microsecond)
	default:
		w.ExpireAt = doc.now().Add(l.retention).Truncate(time.Microsecond)
	}
	return w, nil
}
