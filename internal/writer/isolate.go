package writer

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/status"
)

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

// isolate finds the guilty among entries that were refused together: first by the entry
// that the service names, then half by half until the guilty stand alone, which costs at
// most 2·log₂n+1 requests for one of n. Where nothing of the first half is refused, the
// guilt is the second's, which is then not sent as a whole.
func (t *table) isolate(c *call, items []*item) {
	if items = t.isolateNamed(c, items); len(items) == 0 {
		return
	}
	if len(items) == 1 {
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

// followNames is the size up to which it is cheaper to send the rest of a batch again for
// each entry that the service names than to halve it.
const followNames = 64

// isolateNamed sends the entry that the service names alone, then the rest, as long as
// that is cheap and the service is right. It returns those that are still refused together.
func (t *table) isolateNamed(c *call, items []*item) []*item {
	for first := true; first || len(items) <= followNames; first = false {
		n := named(c.end.Err)
		if n < 0 || n >= len(items) || len(items) != len(c.items) || len(items) == 1 {
			return items
		}
		rest := slices.Delete(slices.Clone(items), n, n+1)
		t.isolateAll(c, t.resend(c, items[n:n+1]))
		right := c.refused
		if items = t.resend(c, rest); len(items) == 0 || !right {
			return items
		}
	}
	return items
}

// named is the place of the entry that a refusal of a whole request names, as in go#4677;
// -1: it names none. It is a hint: the entry is rejected only when it is refused alone.
func named(err error) int {
	if err == nil {
		return -1
	}
	_, place, ok := strings.Cut(status.Convert(err).Message(), "Error in field 'Entry list' : Error in element #")
	if !ok {
		return -1
	}
	end := strings.IndexFunc(place, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(place)
	}
	n, err := strconv.Atoi(place[:end])
	if err != nil {
		return -1
	}
	return n
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
	if len(c.items) == 0 {
		c.unsettled = true
		t.w.mu.Unlock()
		return nil
	}
	t.launch(c, now)
	t.w.mu.Unlock()
	return t.attempt(c)
}
