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

// isolate finds the guilty among the suspects of an outcome: first by the entry that the
// service names, then half by half until the guilty stand alone, which costs at most
// 2·log₂n+1 requests for one of n. If nothing of the first half is refused, the guilt is the
// second's, which is then not sent as a whole.
func (t *table) isolate(c *call, o outcome) {
	items := t.isolateNamed(c, o)
	switch len(items) {
	case 0:
		return
	case 1:
		t.isolate(c, t.resend(c, items))
		return
	}
	half := len(items) / 2
	left, right := items[:half:half], items[half:]
	first := t.resend(c, left)
	t.isolate(c, first)
	second := outcome{suspects: right, named: -1}
	if !first.clean() {
		second = t.resend(c, right)
	}
	t.isolate(c, second)
}

// followNames is the size up to which it is cheaper to send the rest of a batch again for
// each entry that the service names than to halve it.
const followNames = 64

// isolateNamed sends the entry that the service names alone, then the rest, as long as
// that is cheap and the service is right. It returns those that are still refused together.
func (t *table) isolateNamed(c *call, o outcome) []*item {
	for first := true; first || len(o.suspects) <= followNames; first = false {
		n := o.named
		if n < 0 || len(o.suspects) <= 1 {
			break
		}
		rest := slices.Delete(slices.Clone(o.suspects), n, n+1)
		alone := t.resend(c, o.suspects[n:n+1])
		t.isolate(c, alone)
		if o = t.resend(c, rest); !alone.refused {
			break
		}
	}
	return o.suspects
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

// resend makes one attempt at those of the items that are still to be sent.
func (t *table) resend(c *call, items []*item) outcome {
	t.w.mu.Lock()
	c.reset()
	now := time.Now()
	for _, it := range items {
		t.add(c, it, now)
	}
	t.w.settled(t)
	t.w.stats.Isolating++
	if len(c.items) == 0 {
		t.w.mu.Unlock()
		return outcome{named: -1, unsettled: true}
	}
	t.launch(c, now)
	t.w.mu.Unlock()
	return t.attempt(c)
}
