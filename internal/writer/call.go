package writer

import (
	"context"
	"runtime"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// call is one attempt at a batch. Its slices are used again.
type call struct {
	items    []*item
	rows     []*bigtablepb.MutateRowsRequest_Entry
	guard    sync.Mutex // of errs, while the call is in flight
	errs     []error
	bytes    int64
	muts     int
	failures int // attempts that these items have failed together
	cookies  metadata.MD
	deadline time.Time // the latest of the items
	end      btrpc.End

	attemptState

	slot bool // the goroutine that works with it is one of the table's workers
}

// attemptState describes the attempt at hand, from launch on.
type attemptState struct {
	client     *client
	ctx        context.Context
	cancel     context.CancelFunc
	sent, ends time.Time
	probing    bool // sent while the table answered nothing
	hung       bool // given up: items whose call is another one, or none, were taken from it

	present *Present // the columns that have kept the entry from being applied, if it asks for them

	repairing bool // a table that is still being made is missing, too
	refused   bool // something was refused or missing
	unsettled bool // of something nothing is known
}

func (c *call) reset() {
	clear(c.items)
	clear(c.rows)
	clear(c.errs)
	c.items, c.rows, c.errs = c.items[:0], c.rows[:0], c.errs[:0]
	c.bytes, c.muts, c.failures, c.cookies, c.deadline, c.end = 0, 0, 0, nil, time.Time{}, btrpc.End{}
	c.attemptState = attemptState{}
}

func (c *call) add(it *item) {
	c.items = append(c.items, it)
	c.rows = append(c.rows, it.row)
	c.errs = append(c.errs, btrpc.ErrOmitted)
	c.bytes += it.size
	c.muts += it.muts
	if it.req.deadline.After(c.deadline) {
		c.deadline = it.req.deadline
	}
}

// work sends batches until there is nothing to send now.
func (t *table) work() {
	w := t.w
	defer w.wg.Done()
	c := w.calls.Get().(*call)
	defer w.calls.Put(c)
	defer c.reset()
	c.slot = true
	for first := true; ; first = false {
		runtime.Gosched() // requests that are ready to run join this batch
		w.mu.Lock()
		if first {
			t.starting--
		}
		if !c.slot || !t.take(c) { // it has no slot if its call hung
			if c.slot {
				c.slot = false
				t.running--
			}
			t.dispatch()
			w.mu.Unlock()
			return
		}
		t.dispatch()
		w.mu.Unlock()
		t.isolateAll(c, t.attempt(c))
	}
}

// attempt sends the batch and settles what came of it. It returns the entries that were
// refused together, of which at least one may be guilty.
func (t *table) attempt(c *call) []*item {
	t.send(c)
	o := t.settle(c)
	if len(o.missing) > 0 {
		o.suspects = append(o.suspects, t.missing(o.missing, o.cause)...)
	}
	return o.suspects
}

// send makes the call; its context is the writer's, not that of any caller.
func (t *table) send(c *call) {
	conn, err := c.client.dataConn(t.w)
	if err == nil {
		defer c.client.release(t.w, conn)
	}
	switch {
	case err != nil:
		c.end = btrpc.End{Err: &retry.NotSent{Err: err}}
	case c.items[0].unless != nil:
		c.end = t.mutateUnless(conn, c)
	default:
		c.end = t.rpc.MutateRows(c.ctx, conn, c.rows, c.cookies, c.errs, &c.guard)
		return
	}
	c.guard.Lock()
	defer c.guard.Unlock()
	for i := range c.errs {
		c.errs[i] = c.end.Err
	}
	if c.end.Err == nil && c.present != nil {
		c.errs[0] = c.present
	}
}

// mutateUnless sends an entry under its condition and, if the entry asks for it, reads the
// columns that have kept it from being applied. If that read fails, the call has failed: to
// send both again changes nothing.
func (t *table) mutateUnless(conn Conn, c *call) btrpc.End {
	end := t.rpc.MutateUnless(c.ctx, conn, c.rows[0], c.items[0].unless, c.cookies)
	if end.Err != nil || !end.Matched || !c.items[0].tell {
		return end
	}
	found, err := t.rpc.Qualifiers(c.ctx, conn, c.rows[0].RowKey, c.items[0].unless)
	if err != nil {
		return btrpc.End{Err: err}
	}
	c.present = &Present{Qualifiers: found}
	return end
}

// outcome sorts the entries of one call.
type outcome struct {
	again     []*item
	delay     time.Duration // the longest that the service asks to wait
	suspects  []*item
	missing   []*item
	cause     error // of missing
	own       int   // the entries that are still this call's to decide about
	applied   int
	transient int
	exhausted bool
}

// settle gives every entry of the call its outcome, or its next step.
func (t *table) settle(c *call) outcome {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Calls++
	now := time.Now()
	t.landed(c, now)
	var o outcome
	var last error // most failures share one error
	var class retry.Class
	for i, it := range c.items {
		err := c.errs[i]
		if it.call != c {
			it.forget(c)
		}
		if it.ended || err != nil && it.call != c { // another call decides, or has
			continue
		}
		o.own++
		if err == nil || c.present != nil { // it is applied even if it is in another call by now, which then counts for nothing
			o.applied++
			if it.call != c {
				t.mayComeLate(it)
			}
			w.end(it, err)
			continue
		}
		if err != last {
			last, class = err, classify(err)
			class.NotApplied = class.NotApplied && (err != c.end.Err || !c.end.Answered)
		}
		t.sort(&o, c, it, err, class)
	}
	c.refused, c.unsettled = len(o.suspects)+len(o.missing) > 0, o.applied+len(o.suspects)+len(o.missing) < len(c.items)
	t.adjust(c, &o, now)
	t.sendAgain(c, &o, now)
	o.suspects = t.confirm(c, o.suspects)
	t.cancelNeedless()
	w.settled(t)
	t.dispatch()
	return o
}

// sort decides about one failed entry.
func (t *table) sort(o *outcome, c *call, it *item, err error, class retry.Class) {
	if class.Verdict != retry.VerdictRejected {
		t.w.stats.countError(class.Code)
	}
	safe := it.repeat || class.NotApplied
	switch {
	case class.Verdict == retry.VerdictTransient:
		o.transient++
		o.exhausted = o.exhausted || class.Code == codes.ResourceExhausted
		if safe {
			o.again = append(o.again, it)
			o.delay = max(o.delay, class.Delay)
			return
		}
		t.w.end(it, t.failure(class.Code, "the outcome is unknown and the entry may not be repeated", err))
	case class.Verdict == retry.VerdictRejected && safe:
		o.suspects = append(o.suspects, it)
	case class.Verdict == retry.VerdictMissing && safe,
		c.repairing && class.Code == codes.FailedPrecondition && safe: // the table is still being made
		o.missing, o.cause = append(o.missing, it), err
	default:
		t.w.end(it, t.failure(class.Code, "", err))
	}
}

func (t *table) failure(code codes.Code, reason string, err error) error {
	return &Error{Table: t.title(), Code: code, Reason: reason, Err: err}
}

// adjust draws the call's lesson for the next ones.
func (t *table) adjust(c *call, o *outcome, now time.Time) {
	w := t.w
	if o.applied > 0 {
		w.breaker.applied()
		w.stats.Applied += int64(o.applied)
	}
	if o.applied > 0 || len(o.suspects) > 0 {
		w.watch.answered(now)
	}
	if c.hung && !c.heard() {
		return // it was counted when it was given up
	}
	t.pace.sent(now, len(c.items))
	t.pace.limit(now, c.end.RateLimit, o.transient > 0)
	switch {
	case o.exhausted:
		t.pace.exhausted(len(c.items))
	case o.applied == len(c.items):
		t.pace.succeeded()
	}
	// Retries of single entries that fail again are one tablet's matter, not the table's.
	if o.own > 0 && o.transient == o.own && (c.end.Err != nil || c.failures == 0 || o.exhausted) {
		t.failures++
		until := now.Add(max(o.delay, pause.Delay(t.failures, w.cfg.Random())))
		if until.After(t.failedUntil) {
			t.failedUntil = until
		}
		return
	}
	if o.transient < o.own || c.heard() {
		t.failures, t.failedUntil, t.silent = 0, time.Time{}, false
	}
}

// sendAgain puts what failed for now aside, unless its turn would come too late.
func (t *table) sendAgain(c *call, o *outcome, now time.Time) {
	if len(o.again) == 0 {
		return
	}
	failures := c.failures + 1
	due := now.Add(max(o.delay, pause.Delay(failures, t.w.cfg.Random())))
	if t.failedUntil.After(now) {
		due = t.failedUntil
	}
	if late := c.ends.Add(lateMargin); !now.Before(c.ends) && due.Before(late) {
		due = late // the service may have begun to count the call's time later
	}
	left := o.again[:0]
	for _, it := range o.again {
		if t.w.stopped || !due.Before(it.req.deadline) {
			err := c.err(it)
			t.w.end(it, t.failure(classify(err).Code, "no time left for another attempt", err))
			continue
		}
		left = append(left, it)
	}
	if len(left) > 0 {
		t.again = append(t.again, &retries{items: left, due: due, failures: failures, cookies: c.end.Cookies})
	}
}

// err returns what the call says of an item.
func (c *call) err(it *item) error {
	for i, other := range c.items {
		if other == it {
			return c.errs[i]
		}
	}
	return nil
}
