package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// LeaseState is embedded in the type of each document that is leased. Only this package
// changes it.
type LeaseState struct {
	// Holder has the lease; empty: nobody.
	Holder Holder `json:"holder,omitempty"`
	// LeaseMillis is how long the lease lasts from the holder's last write, by the
	// store's clock.
	LeaseMillis int64 `json:"leaseMillis,omitempty"`
	// HeldSince is the time of that write if somebody else has written the document
	// since. Otherwise it is zero, and the document's own time counts.
	HeldSince time.Time `json:"heldSince,omitzero"`
	// Fence rises each time the lease is taken or broken.
	Fence int64 `json:"fence"`
	// Fruitless is how many holders in a row gave the document back with a Cause that
	// counts; Deaths is how many did not give it back. Whoever moves the work forward
	// sets both to 0.
	Fruitless int `json:"fruitless,omitempty"`
	Deaths    int `json:"deaths,omitempty"`
	// Trying says that the holder has called DocLease.Try.
	Trying bool `json:"trying,omitempty"`
	// LastError is why a holder last gave up.
	LastError string `json:"lastError,omitempty"`
	stamp
}

func (s *LeaseState) lease() *LeaseState { return s }

// until is when the lease of the document, read as doc, is over.
func (s *LeaseState) until(doc Doc) time.Time {
	since := s.HeldSince
	if since.IsZero() {
		since = doc.UpdatedAt
	}
	return since.Add(time.Duration(s.LeaseMillis) * time.Millisecond)
}

// ManyDeaths is how many deaths at one place count in any case. Beyond them only those
// count of a holder that had said that it was trying.
const ManyDeaths = 3

// bury takes the lease from a holder that did not give it back.
func (s *LeaseState) bury() {
	if s.Deaths < ManyDeaths || s.Trying {
		s.Deaths++
	}
	s.drop()
}

// drop ends the lease.
func (s *LeaseState) drop() {
	s.Holder, s.LeaseMillis, s.HeldSince, s.Trying = "", 0, time.Time{}, false
}

// Leased is a pointer to a document's type that embeds LeaseState and is JSON.
type Leased[T any] interface {
	*T
	stamped
	lease() *LeaseState
}

// Permanent is embedded in the type of each document that does not expire.
type Permanent struct{}

func (Permanent) permanent() {}

// Cause is why a lease is given back.
type Cause struct {
	Err error // its text must not quote user data
	// Fruitless says that the next attempt will meet the error too. An error that passes
	// by itself, such as an outage, is not fruitless.
	Fruitless bool
}

// DocLease is the right to change one document, of any type that embeds LeaseState,
// while nobody else takes it. It is for one goroutine at a time.
type DocLease[T any, P Leased[T]] struct {
	ledger   *Ledger
	fence    int64
	doc      Doc // as last known
	value    P
	deadline time.Time
	over     error
}

// AcquireDoc takes the lease of a document that nobody holds, or whose lease is over by
// the store's clock, and raises its fence. holder is the process that takes it. refuse, if it is
// not nil, returns an error if the document cannot be leased as it is. AcquireDoc returns
// that error, a *HeldError if another has the lease, and ErrNotFound if there is no document.
func AcquireDoc[T any, P Leased[T]](ctx context.Context, l *Ledger, key Key, holder Holder, refuse func(P) error) (*DocLease[T, P], error) {
	before := time.Now()
	doc, err := l.get(ctx, key)
	if err != nil {
		return nil, err
	}
	return acquireDoc[T, P](ctx, l, doc, before, holder, func(v P) ([]Write, error) {
		if refuse != nil {
			return nil, refuse(v)
		}
		return nil, nil
	})
}

// acquireDoc is AcquireDoc of a document that was read; the lease begins no earlier than
// before. with may refuse it too, and returns what is written with the lease.
func acquireDoc[T any, P Leased[T]](ctx context.Context, l *Ledger, doc Doc, before time.Time, holder Holder, with func(P) ([]Write, error)) (*DocLease[T, P], error) {
	if holder == "" {
		return nil, errors.New("a holder needs a name")
	}
	doc, err := l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
		v, err := decodeDoc[T, P](doc)
		var rest []Write
		if err == nil {
			rest, err = with(v)
		}
		if err != nil {
			return nil, nil, err
		}
		s := v.lease()
		if s.Holder != "" {
			if left := s.until(doc).Sub(doc.ReadAt); left > 0 {
				return nil, nil, &HeldError{Left: left}
			}
			s.bury()
		}
		s.Fence++
		s.Holder, s.LeaseMillis = holder, l.lease.Milliseconds()
		return v, rest, nil
	})
	if err != nil {
		return nil, err
	}
	d := &DocLease[T, P]{ledger: l}
	if err := d.keep(doc, before); err != nil {
		return nil, err
	}
	d.fence = d.value.lease().Fence
	return d, nil
}

// AmendDoc changes a document, or makes one, as somebody who does not hold it: a holder's
// lease lasts as long as before. change gets nil where there is none, and may be asked
// again, about a later state; where it returns nil, the document stays as it is.
func AmendDoc[T any, P Leased[T]](ctx context.Context, l *Ledger, key Key, change func(P) (P, error)) error {
	doc, err := l.get(ctx, key)
	if err != nil {
		return err
	}
	_, err = l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
		v, err := decodeDoc[T, P](doc)
		if errors.Is(err, ErrNotFound) {
			v, err = nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if v != nil && v.lease().Holder != "" && v.lease().HeldSince.IsZero() {
			v.lease().HeldSince = doc.UpdatedAt
		}
		if v, err = change(v); err != nil {
			return nil, nil, err
		}
		if v == nil {
			return nil, nil, errSettled
		}
		return v, nil, nil
	})
	if errors.Is(err, errSettled) {
		return nil
	}
	return err
}

// decodeDoc reads a document's body; ErrNotFound: it has none.
func decodeDoc[T any, P Leased[T]](doc Doc) (P, error) {
	if doc.Body == nil {
		return nil, ErrNotFound
	}
	v := P(new(T))
	if err := json.Unmarshal(doc.Body, v); err != nil {
		return nil, fmt.Errorf("decoding a document of %d bytes: %w", len(doc.Body), err)
	}
	return v, nil
}

// keep notes the document as written, no earlier than before.
func (d *DocLease[T, P]) keep(doc Doc, before time.Time) error {
	d.doc = doc
	if doc.Body == nil { // deleted
		return nil
	}
	v, err := decodeDoc[T, P](doc)
	if err != nil {
		return err
	}
	d.value, d.deadline = v, before.Add(d.ledger.lease)
	return nil
}

// Value is the document as of the last write. The caller does not change it.
func (d *DocLease[T, P]) Value() P { return d.value }

// Fence returns the fence under which the document is held.
func (d *DocLease[T, P]) Fence() int64 { return d.fence }

// Deadline is until when, by this process's clock, nobody else can have taken the
// document. A commit moves it. A commit after it succeeds if nobody has.
func (d *DocLease[T, P]) Deadline() time.Time { return d.deadline }

// Commit changes the document and renews the lease. An error that wraps ErrLost is
// final; after any other, the lease may be tried again.
func (d *DocLease[T, P]) Commit(ctx context.Context, change func(P) error) error {
	return d.write(ctx, func(v P, _ Doc) (stamped, []Write, error) {
		v.lease().LeaseMillis = d.ledger.lease.Milliseconds()
		return v, nil, change(v)
	})
}

// Try is a Commit which says that the holder is at what may have killed those before it:
// if it dies now, its death counts.
func (d *DocLease[T, P]) Try(ctx context.Context) error {
	return d.Commit(ctx, func(v P) error {
		v.lease().Trying = true
		return nil
	})
}

// Release changes the document and gives it back, for anyone to take at once, and keeps
// the cause.
func (d *DocLease[T, P]) Release(ctx context.Context, cause Cause, change func(P) error) error {
	err := d.write(ctx, func(v P, _ Doc) (stamped, []Write, error) {
		s := v.lease()
		s.drop()
		if cause.Err != nil {
			s.LastError = clip(cause.Err.Error())
		}
		if err := change(v); err != nil {
			return nil, nil, err
		}
		if cause.Fruitless {
			s.Fruitless++
		}
		return v, nil, nil
	})
	if err == nil {
		d.over = errors.New("the lease was given back")
	}
	return err
}

// Delete deletes the document, with the writes that with, where it is not nil, decides on
// from the document as it is.
func (d *DocLease[T, P]) Delete(ctx context.Context, with func(P) ([]Write, error)) error {
	err := d.write(ctx, func(v P, _ Doc) (stamped, []Write, error) {
		var rest []Write
		var err error
		if with != nil {
			rest, err = with(v)
		}
		return &tombstone{Deleted: true}, rest, err
	})
	if err == nil {
		d.over = errors.New("the document was deleted")
	}
	return err
}

// write changes the document as its holder.
func (d *DocLease[T, P]) write(ctx context.Context, change func(P, Doc) (stamped, []Write, error)) error {
	if d.over != nil {
		return d.over
	}
	before := time.Now()
	doc, err := d.ledger.edit(ctx, d.doc, func(doc Doc) (stamped, []Write, error) {
		v, err := d.mine(doc)
		if err != nil {
			return nil, nil, err
		}
		v.lease().HeldSince = time.Time{}
		return change(v, doc)
	})
	if errors.Is(err, ErrLost) {
		d.over = ErrLost
	}
	if err != nil {
		return err
	}
	return d.keep(doc, before)
}

// mine returns the document if this lease still holds it. Under one fence there is one
// holder, so whatever else was written under it was written here, or leaves the lease
// alone.
func (d *DocLease[T, P]) mine(doc Doc) (P, error) {
	v, err := decodeDoc[T, P](doc)
	if errors.Is(err, ErrNotFound) || err == nil && v.lease().Fence != d.fence {
		return nil, ErrLost
	}
	return v, err
}
