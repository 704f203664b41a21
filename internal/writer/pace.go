package writer

import (
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Bounds of what the service may ask for at once (its Java client has the same), and
// the load below which it is not obeyed: a writer must be able to notice that a limit
// is lifted.
const (
	leastFactor  = 0.7
	mostFactor   = 1.3
	slowdown     = 0.7 // if a limited call fails for now
	leastRate    = 10  // entries per second
	slowdownTime = 10 * time.Second
)

// pace is how much of a table's load may go at once: smaller batches and fewer calls
// while the service is exhausted, a rate if it asks for one. It has no clock.
type pace struct {
	maxEntries, maxSlots int
	entries, slots       int // of a batch; calls in flight
	good                 int // calls without failure since the last change of slots

	rate    float64   // entries per second; 0: not limited
	fixed   time.Time // until when the rate stays as it is
	next    time.Time // when the next call may go
	since   time.Time // start of the load's measurement
	latest  time.Time // last call
	entered int       // entries since then
}

func newPace(b pipeline.Batch) pace {
	return pace{maxEntries: b.MaxEntries, maxSlots: b.Concurrency, entries: b.MaxEntries, slots: b.Concurrency}
}

// exhausted halves the load after a call of n entries met RESOURCE_EXHAUSTED. A small call
// says little about large ones: it takes no more than three quarters.
func (p *pace) exhausted(n int) {
	p.entries = max(1, min(p.entries, max(n, p.entries/2))/2)
	p.slots = max(1, p.slots/2)
	p.good = 0
}

// succeeded gives some of it back: all of a batch within 16 calls, a slot every 8.
func (p *pace) succeeded() {
	p.entries = min(p.maxEntries, p.entries+(p.maxEntries+15)/16)
	if p.good++; p.good%8 == 0 {
		p.slots = min(p.maxSlots, p.slots+1)
	}
}

// sent counts a call of n entries that ended now, towards the load and the rate.
func (p *pace) sent(now time.Time, n int) {
	if p.since.IsZero() || now.Sub(p.latest) > time.Second { // idle time is no load
		p.since, p.entered = now, 0
	}
	p.latest = now
	p.entered += n
	if p.rate > 0 {
		if p.next.Before(now) {
			p.next = now
		}
		p.next = p.next.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	}
}

// limit obeys what the service asks of the load, at most once a period. Without a word
// from it after that the limit is lifted. A limited call that failed for now slows down.
func (p *pace) limit(now time.Time, asked *btrpc.RateLimit, failed bool) {
	if now.Before(p.fixed) {
		return
	}
	switch {
	case p.rate > 0 && failed:
		p.set(now, slowdown, slowdownTime)
	case asked != nil && asked.Factor > 0:
		factor := min(max(asked.Factor, leastFactor), mostFactor)
		if p.rate > 0 || factor < 1 { // without a limit there is nothing to raise
			p.set(now, factor, max(asked.Period, time.Second))
		}
	case asked == nil && !failed:
		p.rate, p.next = 0, time.Time{}
	}
}

func (p *pace) set(now time.Time, factor float64, period time.Duration) {
	if p.rate == 0 {
		p.rate = p.load(now)
	}
	p.rate = max(leastRate, p.rate*factor)
	p.fixed = now.Add(period)
}

// load is the measured load in entries per second, over a second at least.
func (p *pace) load(now time.Time) float64 {
	return float64(p.entered) / max(1, now.Sub(p.since).Seconds())
}
