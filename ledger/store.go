package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps small documents. Its clock is the only one that decides whether a
// lease is over. Two implementations, ledger/firestore and ledger/file, pass the
// suite of ledger/storetest, which is this interface's specification.
//
// There is no transaction that stays open between a read and a write: a writer
// names the version of every document its decision rests on, and nothing is locked
// in between.
type Store interface {
	// Get reads one document per key, in that order. A document that does not exist
	// has neither version nor body.
	Get(ctx context.Context, keys ...Key) ([]Doc, error)

	// Commit applies all writes or none and returns the version that each has made,
	// empty for OpDelete and OpCheck. ErrConflict: a document was not at the version
	// named; a store that repeats a call after a lost reply may also say so of a
	// commit that was applied. ErrUnavailable: it may have been applied, or be
	// applied yet. ErrTooLarge: it is over a limit, and was not. A document may be
	// named by one write only.
	Commit(ctx context.Context, writes []Write) ([]string, error)

	// List calls each with every document of the collections, all as of one moment,
	// in no particular order, and stops at each's first error, which it returns.
	// Documents of collections below these are not among them. each must not call
	// the store.
	List(ctx context.Context, each func(Doc) error, collections ...string) error
}

// Key names a document.
type Key struct {
	// Collection is an odd number of names with slashes between them, as in
	// pipelines/p/scans.
	Collection string
	// ID is one name. Names are letters, digits, - and _.
	ID string
}

// Doc is a document as it was read.
type Doc struct {
	Key Key
	// Version changes with every write that changes the document, and is never one
	// the key had before, not even after the document was deleted, nor after the store
	// was replaced by an older copy of it.
	Version string
	// Body is a JSON text.
	Body []byte
	// UpdatedAt is when the document was last changed, ReadAt when it was read, both
	// by the store's clock and to the microsecond at least.
	UpdatedAt, ReadAt time.Time
	// ExpireAt is after when the store may delete the document, at any time it
	// chooses; zero: never. To the microsecond.
	ExpireAt time.Time

	raw      []byte    // the body, also of what is gone; set by the Ledger
	readHere time.Time // when it was read by the clock of this process
}

// Op is what a Write does.
type Op uint8

// The three operations.
const (
	// OpPut creates the document, or replaces it whole.
	OpPut Op = iota
	// OpDelete deletes it.
	OpDelete
	// OpCheck changes nothing: the commit depends on the document's version.
	OpCheck
)

// Write is one document's part of a commit.
type Write struct {
	Op  Op
	Key Key
	// Version is what the document must be at; empty: it must not exist.
	Version string
	// Body and ExpireAt are those of Doc, for OpPut. A body that is the same as
	// before need not change the version.
	Body     []byte
	ExpireAt time.Time
}

// What one commit may hold. Firestore's own limits are 10 MiB for a request, 1 MiB
// for a document and, by tradition, 500 writes (firebase.google.com/docs/firestore/quotas);
// its emulator takes no request over 4 MiB.
const (
	MaxWrites      = 500
	MaxBodyBytes   = 1_000_000
	MaxCommitBytes = 3 << 20 // of bodies and keys
)

// The errors of a Store, found with errors.Is.
var (
	ErrConflict    = errors.New("a document has changed since it was read")
	ErrUnavailable = errors.New("the ledger's store did not answer")
	ErrTooLarge    = errors.New("over a limit of the ledger's store")
)

// size is what w counts towards MaxCommitBytes.
func (w Write) size() int { return len(w.Body) + len(w.Key.Collection) + len(w.Key.ID) }

// CheckLimits returns an error that wraps ErrTooLarge where no store would take the
// commit.
func CheckLimits(writes []Write) error {
	if len(writes) > MaxWrites {
		return fmt.Errorf("%d writes in one commit, the most is %d: %w", len(writes), MaxWrites, ErrTooLarge)
	}
	total := 0
	for _, w := range writes {
		if len(w.Body) > MaxBodyBytes {
			return fmt.Errorf("a document of %d bytes, the most is %d: %w", len(w.Body), MaxBodyBytes, ErrTooLarge)
		}
		total += w.size()
	}
	if total > MaxCommitBytes {
		return fmt.Errorf("%d bytes in one commit, the most is %d: %w", total, MaxCommitBytes, ErrTooLarge)
	}
	return nil
}
