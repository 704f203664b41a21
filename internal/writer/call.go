package writer

import (
	"context"
	"runtime"
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
	errs     []error
	bytes    int64
	muts     int
	failures int // attempts that these items have failed together
	cookies  metadata.MD
	deadline time.Time // the latest of the items
	end      btrpc.End
	present  *Present // what has kept the entry from being applied, where it asks

	repairing bool // a table that is still being made is missing, too
	refused   bool // something was refused or missing
	unsettled bool // of something nothing is known
}

func (c *call) reset() {
	clear(c.items)
	clear(c.rows)
	clear(c.errs)
	*c = call{items: c.items[:0], rows: c.rows[:0], errs: c.errs[:0]}
}

func (c *call) add(it *item) {
	c.items = append(c.items, it)
	c.rows = append(c.rows, it.row)
	c.errs = append(c.errs, nil)
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
	for first := true; ; first = false {
		runtime.Gosched() // requests that are ready to run join this batch
		w.mu.Lock()
		if first {
			t.starting--
		}
		if !t.take(c) {
			t.running--
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

// send makes one call; its context is the writer's, not that of any caller.
func (t *table) send(c *call) {
	deadline := time.Now().Add(attemptTimeout)
	if c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	ctx, cancel := context.WithDeadline(t.w.ctx, deadline)
	defer cancel()
	conn, err := t.client.dataConn(t.w)
	switch {
	case err != nil:
		c.end = btrpc.End{Err: &retry.NotSent{Err: err}}
	case c.items[0].unless != nil:
		c.end = t.mutateUnless(ctx, conn, c)
	default:
		c.end = t.rpc.MutateRows(ctx, conn, c.rows, c.cookies, c.errs)
		return
	}
	for i := range c.errs {
		c.errs[i] = c.end.Err
	}
	if c.end.Err == nil && c.present != nil {
		c.errs[0] = c.present
	}
}

// mutateUnless sends an entry under its condition and, where the entry asks for it, reads
// what has kept it from being applied. If that read fails, the call has: to send both again
// changes nothing.
func (t *table) mutateUnless(ctx context.Context, conn Conn, c *call) btrpc.End {
	end := t.rpc.MutateUnless(ctx, conn, c.rows[0], c.items[0].unless, c.cookies)
	if end.Err != nil || !end.Matched || !c.items[0].tell {
		return end
	}
	found, err := t.rpc.Qualifiers(ctx, conn, c.rows[0].RowKey, c.items[0].unless)
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
	var o outcome
	var last error // most failures share one error
	var class retry.Class
	for i, it := range c.items {
		err := c.errs[i]
		if err == nil || c.present != nil {
			o.applied++
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
	t.pace.sent(now, len(c.items))
	t.pace.limit(now, c.end.RateLimit, o.transient > 0)
	switch {
	case o.exhausted:
		t.pace.exhausted(len(c.items))
	case o.applied == len(c.items):
		t.pace.succeeded()
	}
	// Retries of single entries that fail again are one tablet's matter, not the table's.
	if o.transient == len(c.items) && (c.end.Err != nil || c.failures == 0 || o.exhausted) {
		t.failures++
		until := now.Add(max(o.delay, pause.Delay(t.failures, w.cfg.Random())))
		if until.After(t.failedUntil) {
			t.failedUntil = until
		}
		return
	}
	if o.transient < len(c.items) {
		t.failures, t.failedUntil = 0, time.Time{}
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
