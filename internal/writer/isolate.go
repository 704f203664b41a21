package writer

import "time"

// confirm rejects the entry that was refused alone. Where several were refused
// together, the service may have reported one's fault for all (its API says so, and
// whole requests are refused for one entry): those are returned, to be told apart.
func (t *table) confirm(c *call, suspects []*item) []*item {
	if len(suspects) != 1 || len(c.items) > 1 && c.end.Err != nil {
		return suspects
	}
	t.reject(suspects[0], c.err(suspects[0]))
	return nil
}

// reject ends an entry with the service's verdict, unless the breaker holds it back.
func (t *table) reject(it *item, err error) {
	w := t.w
	verdict := rejection(err)
	w.stats.countError(verdict.Code)
	now := time.Now()
	tripped, route := w.breaker.rejected(now, verdict.Code, w.cfg.Random())
	if tripped {
		w.logBreaker(now)
	}
	if !route {
		w.end(it, w.breaker.err())
		return
	}
	w.stats.Rejected++
	w.end(it, verdict)
}

// isolate sends entries that were refused together half by half until the guilty stand
// alone: one guilty of n costs at most 2·log₂n+1 requests. Where nothing of the first
// half is refused, the guilt is the second's, which is then not sent as a whole.
func (t *table) isolate(c *call, items []*item) {
	if len(items) < 2 {
		t.isolateAll(c, t.resend(c, items))
		return
	}
	half := len(items) / 2
	left, right := items[:half:half], items[half:]
	suspects := t.resend(c, left)
	clean := !c.refused && !c.unsettled
	t.isolateAll(c, suspects)
	if !clean {
		right = t.resend(c, right)
	}
	t.isolateAll(c, right)
}

func (t *table) isolateAll(c *call, items []*item) {
	if len(items) > 0 {
		t.isolate(c, items)
	}
}

// resend makes one attempt at the items; it returns those refused together.
func (t *table) resend(c *call, items []*item) []*item {
	t.w.mu.Lock()
	c.reset()
	now := time.Now()
	for _, it := range items {
		t.add(c, it, now)
	}
	t.w.settled(t)
	t.w.stats.Isolating++
	t.w.mu.Unlock()
	if len(c.items) == 0 {
		c.unsettled = true
		return nil
	}
	return t.attempt(c)
}
