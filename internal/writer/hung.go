package writer

import (
	"context"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// A call that is not answered holds its entries and its place among the table's calls
// until it ends, which may be long after the service answers again. So a call is given up
// as hung after a few seconds: its place is free, and those of its entries that are
// harmless when they are applied late are sent again, over another connection if the
// table has answered nothing at all. The others wait for the call's own end, and so does
// every later entry that a late application of a harmless one would undo (see late.go).
//
// While a table answers nothing, one small call at a time tells when it does again.
const (
	// leastPatience is how long a call that carries little may go unanswered. A call that
	// is answered after it was given up raises it for its table, up to attemptTimeout.
	leastPatience = 3 * time.Second
	// slowestSend is the rate in bytes per second that a large call is granted on top.
	slowestSend = 4 << 20
	// probeEntries bounds a call to a table that answers nothing: entries that may not be
	// sent again are stuck in it until the call ends.
	probeEntries = 16
	// lateMargin is how long after a call's deadline the service may still apply it: the
	// deadline reaches it as a time that is left, later than it was counted.
	lateMargin = time.Second
)

// hungPause spreads the calls that are made while a table answers nothing. Its longest pause
// and the time after which a call is given up keep the promise that harmless entries are
// applied within ten seconds of the table's recovery.
var hungPause = retry.Backoff{Initial: 50 * time.Millisecond, Max: 4 * time.Second, Jitter: 0.25}

// inFlight holds the calls that have not ended, and what their table has answered.
type inFlight struct {
	calls    []*call
	heard    time.Time     // when the table last answered, or work began
	heardOf  time.Time     // when the latest call that it has answered was sent
	patience time.Duration // how long a call may go unanswered
	silent   bool          // it answers nothing: one small call at a time tells when it does
	looking  alarm
	late     lateRows
}

// launch makes a call of what c holds: it is in flight until landed. The writer's lock is held.
func (t *table) launch(c *call, now time.Time) {
	deadline := now.Add(attemptTimeout)
	if c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	c.ctx, c.cancel = context.WithDeadline(t.w.ctx, deadline)
	c.client, c.sent, c.ends, c.probing = t.client, now, deadline, t.silent
	for _, it := range c.items {
		t.w.move(it, called)
		it.call = c
	}
	if len(t.calls) == 0 {
		t.heard = now // nothing was to be heard until now
	}
	t.calls = append(t.calls, c)
	t.lookOut(now.Add(t.patienceFor(c)))
}

// landed ends the attempt that launch began.
func (t *table) landed(c *call, now time.Time) {
	c.cancel()
	if i := slices.Index(t.calls, c); i >= 0 {
		t.calls = slices.Delete(t.calls, i, i+1)
	}
	if c.heard() {
		t.heard = now
		if c.sent.After(t.heardOf) {
			t.heardOf = c.sent
		}
		t.learn(c, now.Sub(c.sent))
	}
}

// cancelNeedless ends the hung calls of which every entry has an outcome from another call.
func (t *table) cancelNeedless() {
	for _, c := range t.calls {
		if c.hung && !slices.ContainsFunc(c.items, func(it *item) bool { return it.state != ended }) {
			c.cancel()
		}
	}
}

// heard reports whether the service has said anything of the call's entries.
func (c *call) heard() bool {
	if c.end.Err == nil || c.end.Answered {
		return true
	}
	verdict := classify(c.end.Err).Verdict
	return verdict == retry.VerdictRejected || verdict == retry.VerdictMissing
}

// learn fits the patience to how long an answer took.
func (t *table) learn(c *call, took time.Duration) {
	switch {
	case c.hung:
		t.patience = min(max(t.patience, 2*took), attemptTimeout)
	case 4*took < t.patience:
		t.patience = max(leastPatience, t.patience-t.patience/8)
	}
}

func (t *table) patienceFor(c *call) time.Duration {
	return t.patience + time.Duration(c.bytes)*time.Second/slowestSend
}

// lookOut looks for hung calls at a time, or before.
func (t *table) lookOut(at time.Time) { t.looking.set(t.w, at, t.findHung) }

// findHung gives up the calls that are hung: those unanswered for longer than the table's
// patience, while it answers nothing, or while it has answered a call that was sent later.
func (t *table) findHung() {
	if t.w.stopped {
		return
	}
	now := time.Now()
	silent := now.Sub(t.heard) >= t.patience
	found := false
	var next time.Time
	for _, c := range t.calls {
		if c.hung {
			continue
		}
		due := c.sent.Add(t.patienceFor(c))
		switch {
		case now.Before(due):
		case silent || t.heardOf.After(c.sent):
			t.giveUpHung(c, now)
			found = true
			continue
		default: // the others are answered: it may be its turn next
			due = now.Add(leastPatience)
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	if !next.IsZero() {
		t.lookOut(next)
	}
	if !found {
		return
	}
	if silent {
		t.silent = true
		t.failures++
		t.failedUntil = now.Add(hungPause.Delay(t.failures, t.w.cfg.Random()))
		if t.client != nil {
			t.client.renew.Store(true)
		}
	}
	t.dispatch()
}

// giveUpHung takes from a call its place and the entries that may be sent again beside it.
func (t *table) giveUpHung(c *call, now time.Time) {
	c.hung = true
	if c.slot {
		c.slot = false
		t.running--
	}
	var moved []*item
	left := 0
	for i, it := range c.items {
		switch {
		case it.state == ended || it.call != c:
		case c.applied(i):
			t.w.stats.Applied++
			t.w.end(it, nil)
		case t.harmless(it):
			t.w.move(it, delayed)
			it.call, it.hung = nil, &hungPlace{c, i, it.hung}
			t.late.add(it, c.ends.Add(lateMargin))
			moved = append(moved, it)
		default:
			left++
		}
	}
	if len(moved) > 0 {
		t.again = append(t.again, &retries{items: moved, due: now, failures: 1})
	}
	// A first call goes on: if the table is slow, its answer says so. A later one ends,
	// for the transport keeps a copy of it.
	if left == 0 && c.probing {
		c.cancel()
	}
}

// mayComeLate remembers an entry that an earlier call has applied, if it is in flight once
// more.
func (t *table) mayComeLate(it *item) {
	for _, c := range t.calls {
		if c == it.call && slices.Contains(c.items, it) {
			t.late.add(it, c.ends.Add(lateMargin))
		}
	}
}

// hungPlace is an entry's place in a call that was given up and has not ended.
type hungPlace struct {
	call *call
	i    int
	next *hungPlace
}

// applied reports whether the service has said, in an answer that goes on, that the i-th
// entry of the call is applied.
func (c *call) applied(i int) bool {
	c.guard.Lock()
	defer c.guard.Unlock()
	return c.errs[i] == nil
}

// appliedMeanwhile reports whether a call that was given up with the entry has applied it.
func (it *item) appliedMeanwhile() bool {
	for p := it.hung; p != nil; p = p.next {
		if p.call.applied(p.i) {
			return true
		}
	}
	return false
}

// forget drops a call that has ended.
func (it *item) forget(c *call) {
	for at := &it.hung; *at != nil; at = &(*at).next {
		if (*at).call == c {
			*at = (*at).next
			return
		}
	}
}

// harmless reports whether the entry may be sent while an earlier call with it may still
// be applied. Under message ordering none is: a later entry of its row may come to
// another process, and so cannot be held back here.
func (t *table) harmless(it *item) bool {
	return !t.w.cfg.Ordered && harmlessLate(it)
}
