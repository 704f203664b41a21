package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// item is an entry on its way.
type item struct {
	row    *bigtablepb.MutateRowsRequest_Entry
	unless *bigtablepb.RowFilter
	table  *table
	req    *request
	call   *call // the last attempt at it; nil while it waits for another beside a hung one
	hung   *hungPlace
	next   *item // the next entry of the same row in the same call
	index  int   // in the call
	size   int64 // serialized bytes, counted once
	muts   int

	tell    bool // the outcome says which columns its condition has yielded
	repeat  bool // may be sent again after an ambiguous end
	last    bool // carries a token: goes after everything else of the call
	held    bool // counted against the bounds
	cleared bool // names only families that the table has
	state   state
}

// waits reports whether the item is one that admission has to let in: its turn has come,
// and it has not taken the place of another of its row.
func (it *item) waits() bool {
	return it.state == outside && it.last == it.req.last
}

// request is one Apply call. The writer's lock guards it from begin on.
type request struct {
	entries  []Entry
	items    []item
	errs     []error
	deadline time.Time
	done     chan struct{}
	next     int           // the first item that admission has not passed
	left     int           // items of the phase without an outcome
	lasts    int           // items of the last phase
	last     bool          // the phase of items that carry tokens
	unclean  bool          // an item of the first phase is not applied
	probe    bool          // let through an open breaker
	queue    *waitlist     // in which it waits for room; nil: it does not wait
	entered  chan struct{} // closed when it need not wait any more; nil: it never had to

	one    [1]item // most calls have one entry
	oneErr [1]error
}

// newRequest measures the entries, outside every lock.
func (w *Writer) newRequest(ctx context.Context, entries []Entry) *request {
	r := &request{entries: entries, done: make(chan struct{})}
	r.items, r.errs = r.one[:], r.oneErr[:]
	if len(entries) > 1 {
		r.items, r.errs = make([]item, len(entries)), make([]error, len(entries))
	}
	r.deadline = deadlineOf(ctx)
	for i := range entries {
		e, it := &entries[i], &r.items[i]
		it.row, it.unless, it.req, it.index = e.Row, e.Unless, r, i
		it.size, it.muts = int64(proto.Size(e.Row)), len(e.Row.GetMutations())
		it.repeat, it.tell = repeatableEntry(e), e.Tell
		it.last = e.Unless == nil && len(e.Row.GetIdempotency().GetToken()) > 0
		if it.last {
			r.lasts++
		}
	}
	if len(entries) > 1 {
		w.chain(entries, r.items)
	}
	r.left = len(entries) - r.lasts
	r.last = r.left == 0
	if r.last {
		r.left = r.lasts
	}
	return r
}

// deadlineOf is when the entries' calls must end: a little before their caller leaves,
// so that it still hears what they applied.
func deadlineOf(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Now().Add(longestApply)
	}
	return deadline.Add(-min(time.Second, time.Until(deadline)/16))
}

// chain links the entries of one row within a phase. The table of the hash holds for
// each row the place of its last entry so far, counted from 1.
func (w *Writer) chain(entries []Entry, items []item) {
	size := 4
	for size < 2*len(items) {
		size *= 2
	}
	rows, mask := make([]int32, size), uint64(size-1)
	for i := range items {
		it := &items[i]
		if entries[i].Unordered {
			continue
		}
		for h := maphash.Bytes(w.seed, it.row.GetRowKey()); ; h++ {
			at := &rows[h&mask]
			if *at == 0 {
				*at = int32(i + 1)
				break
			}
			j := int(*at - 1)
			if before := &items[j]; before.last == it.last && bytes.Equal(before.row.GetRowKey(), it.row.GetRowKey()) && entries[j].Table == entries[i].Table {
				before.next, it.state = it, behind
				*at = int32(i + 1)
				break
			}
		}
	}
}

// end gives the item its outcome. The next entry of its row takes its place, or ends
// as well if this one is not applied.
func (w *Writer) end(it *item, err error) {
	for it != nil && it.state != ended {
		r := it.req
		w.move(it, ended)
		r.errs[it.index] = err
		r.unclean = r.unclean || err != nil && !isPresent(err) && !it.last
		if it.table != nil {
			it.table.refs--
		}
		next := it.next
		for next != nil && next.state == ended {
			next = next.next
		}
		if next != nil && Settled(err) {
			w.succeed(it, next)
			next = nil
		} else {
			w.release(it)
		}
		w.countDown(it)
		if next != nil && !errors.Is(err, ErrHeld) {
			err = errAfter
		}
		it = next
	}
}

// succeed gives next, of the same row, the place of it.
func (w *Writer) succeed(it, next *item) {
	if !it.held {
		w.move(next, outside) // admission comes to it later
		return
	}
	it.held, next.held = false, true
	w.count(it.table, 0, next.size-it.size)
	w.stats.RecordsSend++
	w.stats.BytesSend += next.size
	next.table.enqueue(next)
}

// countDown ends the phase or the request with its last item.
func (w *Writer) countDown(it *item) {
	r := it.req
	if it.last != r.last { // ended before its phase
		r.lasts--
		return
	}
	if r.left--; r.left > 0 {
		return
	}
	if r.last || r.lasts == 0 {
		close(r.done)
		return
	}
	r.last, r.left = true, r.lasts
	if !r.unclean {
		r.next = 0
		w.admitOrWait(r)
		return
	}
	for i := range r.items {
		if it := &r.items[i]; it.state == outside {
			w.end(it, ErrHeld)
		}
	}
}

// Settled reports whether an outcome is final: the entry is applied, or rejected, or its
// condition has kept it from being applied.
func Settled(err error) bool { return err == nil || retry.IsRejected(err) || isPresent(err) }

func isPresent(err error) bool {
	var p *Present
	return errors.As(err, &p)
}

// unfit returns an error if no request can carry the item. It checks the documented limits, which
// the service or the transport would report less clearly.
func (w *Writer) unfit(it *item) error {
	reason := ""
	switch {
	case it.muts == 0:
		reason = "no mutations"
	case it.muts > MaxMutations:
		reason = fmt.Sprintf("%d mutations in one entry, at most %d are taken", it.muts, MaxMutations)
	case it.size > w.cfg.MaxEntryBytes:
		reason = fmt.Sprintf("an entry of %d bytes, at most %d are taken", it.size, w.cfg.MaxEntryBytes)
	case !namesAreText(it.row): // the encoder would refuse the whole request
		reason = "a family name that is not UTF-8"
	default:
		return nil
	}
	return &retry.Rejected{Code: codes.InvalidArgument, Reason: reason}
}

func namesAreText(row *bigtablepb.MutateRowsRequest_Entry) bool {
	for _, m := range row.GetMutations() {
		if name, ok := familyOf(m); ok && !utf8.ValidString(name) {
			return false
		}
	}
	return true
}
