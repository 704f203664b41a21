package writer

import (
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// pause spreads a table's attempts while it fails. The first wait is short, since most
// failures are one moved tablet; the last bounds how late the end of an outage is seen.
var pause = retry.Backoff{Initial: 50 * time.Millisecond, Max: 8 * time.Second, Jitter: 0.25}

// table is what a writer has of one Bigtable table. Its parts are in the files of their methods;
// states.go says how they hand entries to one another. The writer's lock guards it.
type table struct {
	w       *Writer
	ref     pipeline.TableRef
	schema  Schema
	rpc     *btrpc.Table
	client  *client // nil until an entry is accepted
	held    hold
	waiting waitlist
	used    time.Time
	refs    int // items without an outcome

	batching   // table.go
	inFlight   // hung.go
	repairs    // repair.go
	inspection // missing.go
}

// batching holds what is accepted and not in a call, and decides when it is sent.
type batching struct {
	pace        pace
	queue, solo queue      // for a batch; alone, under a condition
	batchNext   bool       // after the next entry that goes alone
	again       []*retries // to be sent again, later
	running     int        // workers
	starting    int        // workers that have not yet taken a batch
	failures    int        // calls in a row that ended without any outcome
	failedUntil time.Time
	waking      alarm
}

// retries are entries that failed together.
type retries struct {
	items    []*item
	due      time.Time
	failures int
	cookies  metadata.MD
}

// queue is first in, first out.
type queue struct {
	items []*item
	head  int
}

func (q *queue) len() int     { return len(q.items) - q.head }
func (q *queue) first() *item { return q.items[q.head] }
func (q *queue) push(it *item) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, it)
}

func (q *queue) pop() *item {
	it := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return it
}

// table returns the batcher of a table, made on first use.
func (w *Writer) table(ref pipeline.TableRef, now time.Time) (*table, error) {
	if t := w.tables[ref]; t != nil {
		t.used = now
		if t.client != nil {
			t.client.used = now
		}
		return t, nil
	}
	s, err := w.cfg.Schema(ref)
	if err != nil {
		return nil, fmt.Errorf("finding the schema of a table: %w", err)
	}
	t := &table{
		w: w, ref: ref, schema: s, used: now,
		rpc:        btrpc.NewTable(ref.String(), s.AppProfile).Through(s.View),
		batching:   batching{pace: newPace(w.cfg.Limits.Batch)},
		inFlight:   inFlight{patience: leastPatience, late: lateRows{seed: w.seed}},
		inspection: inspection{turn: make(chan struct{}, 1)},
	}
	w.tables[ref] = t
	return t, nil
}

// title names the table in errors and log lines. An id that is computed of records is
// user data: the table's name in the pipeline file stands for it.
func (t *table) title() string {
	if !t.schema.Computed {
		return t.ref.String()
	}
	return "a table of tables." + t.schema.Name + " in " + t.ref.Parent()
}

// enqueue takes an accepted item.
func (t *table) enqueue(it *item) {
	switch {
	case t.w.stopped:
		t.w.end(it, ErrClosed)
	case t.waitsForLate(it):
	case it.unless != nil:
		t.w.move(it, queued)
		t.solo.push(it)
	default:
		t.w.move(it, queued)
		t.queue.push(it)
	}
	t.dispatch()
}

// waitsForLate puts an entry aside that another one, which may be applied late, would undo.
func (t *table) waitsForLate(it *item) bool {
	if len(t.late.rows) == 0 {
		return false
	}
	until := t.late.wait(it.row, time.Now())
	if until.IsZero() {
		return false
	}
	t.w.move(it, delayed)
	if n := len(t.again); n > 0 && t.again[n-1].due.Equal(until) && t.again[n-1].failures == 0 {
		t.again[n-1].items = append(t.again[n-1].items, it)
	} else {
		t.again = append(t.again, &retries{items: []*item{it}, due: until})
	}
	return true
}

// dispatch starts workers for what may be sent now, and a timer for what may be later.
func (t *table) dispatch() {
	for !t.w.stopped && t.running < t.slots() && t.wanting() {
		now := time.Now()
		if at := t.earliest(now); at.After(now) {
			t.wake(at)
			return
		}
		t.running++
		t.starting++
		t.w.wg.Add(1)
		go t.work()
	}
}

// wanting reports whether there is more to send than the workers that are about to
// take a batch will take.
func (t *table) wanting() bool {
	return t.queue.len() > t.starting*t.pace.entries || t.solo.len() > t.starting || len(t.again) > t.starting
}

// slots is how many calls may be in flight: one, as a probe, while the table fails.
func (t *table) slots() int {
	if t.failures > 0 {
		return 1
	}
	return t.pace.slots
}

// earliest is when the next call may be made: now, or after a pause, or when the first
// of the retries is due and there is nothing else.
func (t *table) earliest(now time.Time) time.Time {
	at := now
	if t.queue.len() == 0 && t.solo.len() == 0 {
		at = t.again[0].due
		for _, g := range t.again {
			if g.due.Before(at) {
				at = g.due
			}
		}
	}
	for _, other := range []time.Time{t.failedUntil, t.pace.next} {
		if other.After(at) {
			at = other
		}
	}
	return at
}

// wake dispatches again at a time.
func (t *table) wake(at time.Time) { t.waking.set(t.w, at, t.dispatch) }

// alarm calls a function, under the writer's lock, at the earliest of the times that it is
// set to. Each alarm has one function.
type alarm struct {
	timer *time.Timer
	at    time.Time
}

func (a *alarm) set(w *Writer, at time.Time, ring func()) {
	if !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	if a.timer != nil {
		a.timer.Reset(time.Until(at))
		return
	}
	a.timer = time.AfterFunc(time.Until(at), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		a.at = time.Time{}
		ring()
	})
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// take moves what goes next into c: retries that are due, an entry that goes alone, or
// a batch. It reports false when there is nothing to send now.
func (t *table) take(c *call) bool {
	c.reset()
	if t.w.stopped || t.running > t.slots() || t.queue.len() == 0 && t.solo.len() == 0 && len(t.again) == 0 {
		return false
	}
	now := time.Now()
	if at := t.earliest(now); at.After(now) {
		t.wake(at)
		return false
	}
	t.takeAgain(c, now)
	// A batch and an entry that goes alone take turns.
	if t.batchNext = !t.batchNext; !t.batchNext {
		t.takeBatch(c, now)
	}
	for len(c.items) == 0 && t.solo.len() > 0 {
		t.add(c, t.solo.pop(), now)
	}
	t.takeBatch(c, now)
	t.w.settled(t) // what was dropped has made room
	if len(c.items) == 0 {
		return false
	}
	t.launch(c, now)
	return true
}

// takeBatch fills c from the queue, unless something is in it.
func (t *table) takeBatch(c *call, now time.Time) {
	if len(c.items) > 0 {
		return
	}
	for t.queue.len() > 0 && t.fits(c, t.queue.first()) {
		t.add(c, t.queue.pop(), now)
	}
}

// takeAgain moves the first retries that are due, as many as make a batch.
func (t *table) takeAgain(c *call, now time.Time) {
	for i := 0; i < len(t.again) && len(c.items) == 0; i++ {
		g := t.again[i]
		if g.due.After(now) {
			continue
		}
		c.failures, c.cookies = g.failures, g.cookies
		for len(g.items) > 0 && t.fits(c, g.items[0]) {
			t.add(c, g.items[0], now)
			g.items = g.items[1:]
		}
		if len(g.items) == 0 {
			t.again = append(t.again[:i], t.again[i+1:]...)
			i--
		}
	}
	if len(c.items) == 0 {
		c.failures, c.cookies = 0, nil
	}
}

// fits reports whether the item may join the batch: the bounds of a request, and
// nothing beside an entry that goes alone.
func (t *table) fits(c *call, it *item) bool {
	if len(c.items) == 0 {
		return true
	}
	most := t.pace.entries
	if t.silent {
		most = min(most, probeEntries)
	}
	return it.unless == nil && c.items[0].unless == nil && len(c.items) < most &&
		c.bytes+it.size <= t.w.cfg.Limits.Batch.MaxBytes && c.muts+it.muts <= MaxMutations
}

// add puts the item into the batch, unless it is too late or the breaker is open.
func (t *table) add(c *call, it *item, now time.Time) {
	switch {
	case it.state == ended: // by another call with it, which was given up as hung
	case it.appliedMeanwhile():
		t.w.end(it, nil)
	case t.w.breaker.blocks(it.req.probe):
		t.w.end(it, t.w.breaker.err())
	case !now.Before(it.req.deadline):
		t.w.end(it, errExpired)
	default:
		c.add(it)
	}
}

func (t *table) stopAlarms() {
	t.waking.stop()
	t.looking.stop()
}

// abandon ends what waits to be sent.
func (t *table) abandon() {
	t.stopAlarms()
	for t.queue.len() > 0 {
		t.w.end(t.queue.pop(), ErrClosed)
	}
	for t.solo.len() > 0 {
		t.w.end(t.solo.pop(), ErrClosed)
	}
	for _, g := range t.again {
		for _, it := range g.items {
			t.w.end(it, ErrClosed)
		}
	}
	t.again = nil
}
