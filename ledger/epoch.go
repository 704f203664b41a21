package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Epoch says what BeginEpoch has found.
type Epoch struct {
	Partitions int
	// LowWatermark is the oldest of the partitions; zero: there are none.
	LowWatermark time.Time
}

// BeginEpoch is called after the ledger was restored from a backup, before the stream is read
// again. Whoever has read the ledger before loses then: every partition goes on at its position
// in the backup under a new incarnation, which no earlier lease and no earlier task names, and
// the coordinator's fence rises above each that was ever given. holder is the process that
// calls it; a tick finds the stream held meanwhile.
//
// BeginEpoch may be called again after any error, and while others use the ledger. The error is
// ErrNotFound if the backup does not have the stream. It changes nothing if two partitions hold
// the same keys: the backup was then restored over a ledger that was not empty.
func (l *Ledger) BeginEpoch(ctx context.Context, s StreamID, holder Holder) (Epoch, error) {
	epoch, err := l.beginEpoch(ctx, s, holder)
	if err != nil {
		err = fmt.Errorf("beginning an epoch of change stream %q: %w", s.Name, err)
	}
	return epoch, err
}

func (l *Ledger) beginEpoch(ctx context.Context, s StreamID, holder Holder) (Epoch, error) {
	top, err := l.Topology(ctx, s)
	if err == nil {
		err = checkApart(top.Partitions)
	}
	if err != nil {
		return Epoch{}, err
	}
	lease, err := l.seizeStream(ctx, s, holder)
	if err != nil {
		return Epoch{}, err
	}
	epoch, err := l.renew(ctx, s, lease)
	if err != nil {
		return epoch, errors.Join(err, lease.Release(context.WithoutCancel(ctx), err))
	}
	return epoch, lease.doc.Release(ctx, Cause{}, func(v *streamDoc) error {
		v.TickedAt, v.ListedAt, v.NextList, v.LastError = time.Time{}, time.Time{}, time.Time{}, ""
		return nil
	})
}

// checkApart returns an error if partitions hold the same keys.
func checkApart(partitions []*Partition) error {
	sorted := slices.SortedFunc(slices.Values(partitions), func(a, b *Partition) int {
		return strings.Compare(a.Range.Start, b.Range.Start)
	})
	for i := 1; i < len(sorted); i++ {
		if _, some := rowrange.Intersect(sorted[i-1].Range, sorted[i].Range); some {
			return errors.New("two partitions hold the same keys: restore the backup into an empty ledger")
		}
	}
	return nil
}

// seizeStream takes the lease of the stream, whoever has it, and makes void what others have
// decided about keys that nobody holds.
func (l *Ledger) seizeStream(ctx context.Context, s StreamID, holder Holder) (*StreamLease, error) {
	before := time.Now()
	doc, err := l.get(ctx, l.streamKey(s))
	if err != nil {
		return nil, err
	}
	doc, err = l.edit(ctx, doc, func(doc Doc) (stamped, []Write, error) {
		v, err := decodeDoc[streamDoc](doc)
		if err != nil {
			return nil, nil, err
		}
		v.drop()
		// Leases that were taken after the backup are unknown. Each has raised the fence by
		// one, so it has not come as far as a count of microseconds.
		v.Fence = max(v.Fence+1, doc.now().UnixMicro())
		v.Holder, v.LeaseMillis = holder, l.lease.Milliseconds()
		return v, nil, nil
	})
	if err != nil {
		return nil, err
	}
	lease := &StreamLease{doc: &DocLease[streamDoc, *streamDoc]{ledger: l}, id: s}
	if err := lease.doc.keep(doc, before); err != nil {
		return nil, err
	}
	lease.doc.fence = lease.doc.value.Fence
	unheld, err := l.get(ctx, l.unheldKey(s))
	if err == nil {
		_, err = l.edit(ctx, unheld, func(Doc) (stamped, []Write, error) { return &unheldDoc{}, nil, nil })
	}
	return lease, err
}

// renewed is how many partitions get a new incarnation in one transaction.
const renewed = 100

// renew gives every partition a new incarnation, also those that others make meanwhile.
func (l *Ledger) renew(ctx context.Context, s StreamID, lease *StreamLease) (Epoch, error) {
	made := make(map[string]bool) // incarnations
	var doubt error
	for attempt := range maxAttempts {
		if doubt != nil {
			if err := retry.Sleep(ctx, backoff.Delay(attempt, mathrand.Float64())); err != nil {
				return Epoch{}, errors.Join(err, doubt)
			}
		}
		if err := lease.doc.Commit(ctx, func(*streamDoc) error { return nil }); err != nil {
			return Epoch{}, err
		}
		top, err := l.Topology(ctx, s)
		if err != nil {
			return Epoch{}, err
		}
		old := slices.DeleteFunc(slices.Clone(top.Partitions), func(p *Partition) bool { return made[p.Incarnation] })
		if len(old) == 0 {
			return epochOf(top), nil
		}
		// A transaction fails if a reader writes one of its partitions: the next one has fewer.
		if doubt, err = l.renewAll(ctx, old, max(1, renewed>>attempt), made); err != nil {
			return Epoch{}, err
		}
	}
	return Epoch{}, fmt.Errorf("after %d attempts: %w", maxAttempts, doubt)
}

func epochOf(top *Topology) Epoch {
	e := Epoch{Partitions: len(top.Partitions)}
	for _, p := range top.Partitions {
		if e.LowWatermark.IsZero() || p.LowWatermark.Before(e.LowWatermark) {
			e.LowWatermark = p.LowWatermark
		}
	}
	return e
}

// renewAll replaces partitions, up to size of them in a transaction, and returns why some may
// be left.
func (l *Ledger) renewAll(ctx context.Context, old []*Partition, size int, made map[string]bool) (doubt, err error) {
	var writes []Write
	bytes := 0
	flush := func() {
		if len(writes) == 0 || err != nil {
			return
		}
		_, err = l.store.Commit(ctx, writes)
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrUnavailable) {
			doubt, err = err, nil
		}
		writes, bytes = nil, 0
	}
	for _, p := range old {
		incarnation := rand.Text()
		made[incarnation] = true
		put, wrong := l.put(Doc{Key: l.partitionKey(PartitionID{Stream: p.Stream, Incarnation: incarnation})}, newPartitionDoc(p.Opening))
		if wrong != nil {
			return doubt, wrong
		}
		if len(writes) >= 2*size || bytes+put.size() > MaxCommitBytes/2 {
			flush()
		}
		writes = append(writes, put, Write{Op: OpDelete, Key: p.doc.Key, Version: p.doc.Version})
		bytes += put.size()
	}
	flush()
	return doubt, err
}
