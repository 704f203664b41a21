package writer

import (
	"container/list"
	"context"
	"fmt"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// hold is what is accepted and has no outcome yet.
type hold struct {
	entries int
	bytes   int64
}

// waitlist holds requests with entries that wait for room, first come, first served.
type waitlist struct{ list list.List } // of *request

// begin gives the request's entries their tables, ends what cannot be sent and accepts
// what it may. If some entries wait for room, it returns a channel that is closed once they
// are in.
func (w *Writer) begin(r *request) <-chan struct{} {
	now := time.Now()
	if err := w.gate(r, now); err != nil {
		for i := range r.items {
			w.move(&r.items[i], ended)
			r.errs[i] = err
		}
		close(r.done)
		return nil
	}
	for i := range r.items {
		it := &r.items[i]
		if it.state == ended {
			continue
		}
		if err := w.prepare(it, r.entries[i].Table, now); err != nil {
			w.end(it, err)
		}
	}
	w.watch.arm(w)
	w.admitOrWait(r)
	if r.queue == nil {
		return nil
	}
	r.entered = make(chan struct{})
	return r.entered
}

// gate refuses the whole request if the writer is closed or the breaker is open.
func (w *Writer) gate(r *request, now time.Time) error {
	if w.closed {
		return ErrClosed
	}
	ok, probe := w.breaker.admit(now, w.cfg.Random())
	if !ok {
		w.logBreaker(now)
		return w.breaker.err()
	}
	r.probe = probe
	return nil
}

// prepare checks one item and finds its table.
func (w *Writer) prepare(it *item, ref pipeline.TableRef, now time.Time) error {
	if err := w.unfit(it); err != nil {
		return err
	}
	t, err := w.table(ref, now)
	if err != nil {
		return err
	}
	it.table = t
	t.refs++
	return nil
}

// admitOrWait accepts the request's entries of this phase, in order, as far as there is
// room. If it is stuck, the request waits in the list that it is stuck at.
func (w *Writer) admitOrWait(r *request) {
	if q := w.advance(r); q != nil {
		r.queue = q
		q.list.PushBack(r)
	}
}

// advance accepts entries until it is stuck; nil: all are accepted.
func (w *Writer) advance(r *request) *waitlist {
	for ; r.next < len(r.items); r.next++ {
		it := &r.items[r.next]
		if !it.waits() {
			continue
		}
		if q := w.full(it.table); q != nil {
			return q
		}
		w.accept(it)
	}
	return nil
}

// full returns the list in which an entry of the table has to wait, or nil if it need not. The rule is
// "below the bound", never "does it fit": an entry larger than the bound goes alone.
func (w *Writer) full(t *table) *waitlist {
	entries, bytes := w.cfg.Limits.InFlight.MaxEntries, w.cfg.Limits.InFlight.MaxBytes
	switch {
	case w.held.entries >= entries || w.held.bytes >= bytes:
		return &w.waiting
	case !w.cfg.SingleTable && (2*t.held.entries >= entries || 2*t.held.bytes >= bytes):
		return &t.waiting
	case !w.connect(t):
		return &w.clients.waiting
	}
	return nil
}

func (w *Writer) accept(it *item) {
	it.held = true
	if w.held.entries == 0 {
		w.watch.answered(time.Now()) // nothing waited until now
	}
	w.count(it.table, 1, it.size)
	w.stats.RecordsSend++
	w.stats.BytesSend += it.size
	it.table.enqueue(it)
}

// count changes what is held.
func (w *Writer) count(t *table, entries int, bytes int64) {
	w.held.entries += entries
	w.held.bytes += bytes
	t.held.entries += entries
	t.held.bytes += bytes
	t.client.busy += entries
}

// release frees what an item holds. The caller calls settled once it is done.
func (w *Writer) release(it *item) {
	if it.held {
		it.held = false
		w.count(it.table, -1, -it.size)
	}
}

// settled lets requests in that wait, after entries of t have ended.
func (w *Writer) settled(t *table) {
	w.admitFrom(&t.waiting)
	w.admitFrom(&w.waiting)
	w.closeDrained(t.client)
	w.checkDrained()
}

// admitFrom lets requests in from the front until one is stuck there again.
func (w *Writer) admitFrom(l *waitlist) {
	for e := l.list.Front(); e != nil; e = l.list.Front() {
		r := e.Value.(*request)
		q := w.advance(r)
		if q == l {
			return
		}
		l.list.Remove(e)
		if r.queue = q; q != nil {
			q.list.PushBack(r)
		} else if r.entered != nil {
			close(r.entered)
			r.entered = nil
		}
	}
}

// awaitAdmission waits for room for half of the time that the request has, so that the
// other half is left to write. It reports false when ctx ended first.
func (w *Writer) awaitAdmission(ctx context.Context, r *request, entered <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(r.deadline) / 2)
	defer timer.Stop()
	select {
	case <-entered:
	case <-r.done:
	case <-ctx.Done():
		return false
	case <-timer.C:
		w.mu.Lock()
		w.withdraw(r, fmt.Errorf("%w after %v", ErrNotAdmitted, time.Until(r.deadline).Round(time.Second)))
		w.mu.Unlock()
	}
	return true
}

// withdraw ends the request's entries that were not accepted.
func (w *Writer) withdraw(r *request, err error) {
	if r.queue == nil {
		return
	}
	for e := r.queue.list.Front(); e != nil; e = e.Next() {
		if e.Value == r {
			r.queue.list.Remove(e)
			break
		}
	}
	r.queue = nil
	for ; r.next < len(r.items); r.next++ {
		if it := &r.items[r.next]; it.waits() {
			w.end(it, err)
		}
	}
}

// refuseWaiting ends every request that waits.
func (w *Writer) refuseWaiting() {
	lists := []*waitlist{&w.waiting, &w.clients.waiting}
	for _, t := range w.tables {
		lists = append(lists, &t.waiting)
	}
	for _, l := range lists {
		for e := l.list.Front(); e != nil; e = l.list.Front() {
			w.withdraw(e.Value.(*request), ErrClosed)
		}
	}
}

func (w *Writer) checkDrained() {
	if w.closed && w.held.entries == 0 {
		select {
		case <-w.drained:
		default:
			close(w.drained)
		}
	}
}
