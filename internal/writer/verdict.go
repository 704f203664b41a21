package writer

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// outcome is what one attempt at a batch has come to. The zero value, but for named, is that
// of entries of which every one is applied.
type outcome struct {
	again    []*item
	delay    time.Duration // the longest that the service asks to wait
	suspects []*item       // refused together: at least one of them may be guilty
	named    int           // the place among suspects of the one that the service names; -1: none
	missing  []*item
	cause    error // of missing

	refused   bool // something was refused or missing
	unsettled bool // of something nothing is known
	own       int  // the entries that are still this call's to decide about
	applied   int
	transient int
	exhausted bool
}

// clean reports whether every entry of the attempt is applied.
func (o *outcome) clean() bool { return !o.refused && !o.unsettled }

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
		if it.state == ended || err != nil && it.call != c { // another call decides, or has
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
	o.refused, o.unsettled = len(o.suspects)+len(o.missing) > 0, o.applied+len(o.suspects)+len(o.missing) < len(c.items)
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
		t.w.move(it, suspect)
		o.suspects = append(o.suspects, it)
	case class.Verdict == retry.VerdictMissing && safe,
		c.repairing && class.Code == codes.FailedPrecondition && safe: // the table is still being made
		t.w.move(it, lacking)
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
		t.w.move(it, delayed)
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
