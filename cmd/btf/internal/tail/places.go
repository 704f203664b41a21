package tail

import (
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// place is a partition that is read.
type place struct {
	changestream.Opening // its LowWatermark is that of the last change or heartbeat
	id                   int
}

// places are where each key is read, or what is known of it if nothing reads it: for one
// process what the ledger is for functions/changes.
type places struct {
	start     time.Time // of the whole stream
	held      map[int]*place
	next      int // the number of the next partition
	pending   []changestream.Pending
	missing   []changestream.Missing
	completed []rowrange.Range // read up to the end time
}

func (p *places) open(o changestream.Opening) {
	p.held[p.next] = &place{Opening: o, id: p.next}
	p.next++
}

// complete notes that a partition was read up to the end time.
func (p *places) complete(id int) {
	p.completed = append(p.completed, p.held[id].Range)
	delete(p.held, id)
}

// finished reports whether all of keys were read up to the end time.
func (p *places) finished(keys rowrange.Range) bool {
	return len(p.held) == 0 && rowrange.Covers(rowrange.Merge(p.completed), keys)
}

// areRead reports whether each of keys is read, or was read up to the end time.
func (p *places) areRead(keys rowrange.Range) bool {
	return rowrange.Covers(rowrange.Merge(append(p.ranges(), p.completed...)), keys)
}

func (p *places) ranges() []rowrange.Range {
	var out []rowrange.Range
	for _, h := range p.held {
		out = append(out, h.Range)
	}
	return out
}

// lowest is the earliest low watermark of what is read and of what waits.
func (p *places) lowest() time.Time {
	var low time.Time
	earlier := func(t time.Time) {
		if low.IsZero() || t.Before(low) {
			low = t
		}
	}
	for _, h := range p.held {
		earlier(h.LowWatermark)
	}
	for _, w := range p.pending {
		earlier(w.LowWatermark)
	}
	for _, m := range p.missing {
		earlier(m.LowWatermark)
	}
	return low
}

// close replaces a partition by its successors. Of those without any of keys nothing is
// read.
func (p *places) close(id int, successors []changestream.Successor, keys rowrange.Range, now time.Time) {
	closed := p.held[id]
	delete(p.held, id)
	wanted := slices.DeleteFunc(slices.Clone(successors), func(s changestream.Successor) bool {
		_, some := rowrange.Intersect(s.Target, keys)
		return !some
	})
	h := changestream.HandOver(wanted, closed.LowWatermark, now, p.pendingFor, p.ranges())
	for _, target := range h.Forget {
		p.forget(target)
	}
	for _, w := range h.Wait {
		p.forget(w.Target)
		p.pending = append(p.pending, w)
	}
	for _, o := range h.Open {
		p.open(o)
	}
	for _, w := range h.Wait {
		p.openNeighbours(w, keys, closed.LowWatermark.Add(-neighbourRewind).Truncate(time.Microsecond))
	}
}

func (p *places) pendingFor(target rowrange.Range) *changestream.Pending {
	for i := range p.pending {
		if p.pending[i].Target == target {
			return &p.pending[i]
		}
	}
	return nil
}

func (p *places) forget(target rowrange.Range) {
	p.pending = slices.DeleteFunc(p.pending, func(w changestream.Pending) bool { return w.Target == target })
}

// neighbourRewind is how much earlier than a low watermark neighbours begin, so that their
// start is not in the future by the service's clock.
const neighbourRewind = time.Minute

// openNeighbours opens ranges outside keys whose tokens a pending partition waits for. Their
// changes are not shown, so that it does not matter from where they begin. They are no
// partitions of the service any more: it closes their streams at once, with the tokens.
func (p *places) openNeighbours(w changestream.Pending, keys rowrange.Range, start time.Time) {
	if start.Before(p.start) {
		start = p.start
	}
	have := append(p.ranges(), p.needed(keys)...)
	for _, r := range rowrange.Subtract(w.Target, have) {
		p.open(changestream.Opening{Range: r, Start: start, LowWatermark: start})
	}
}

// needed are keys, and those that share a token with keys.
func (p *places) needed(keys rowrange.Range) []rowrange.Range {
	out := []rowrange.Range{keys}
	for _, w := range p.pending {
		for _, t := range w.Tokens {
			out = append(out, t.Range)
		}
	}
	return out
}

// reconcile compares the places with the partitions that the service has, and returns the
// ranges that it has opened.
func (p *places) reconcile(service []rowrange.Range, keys rowrange.Range, now time.Time) []changestream.Opening {
	top := changestream.Topology{
		Service: service, Completed: append(rowrange.Subtract(rowrange.Range{}, p.needed(keys)), p.completed...), Pending: p.pending, Missing: p.missing, Start: p.start,
	}
	for _, h := range p.held {
		top.Partitions = append(top.Partitions, changestream.Held{Range: h.Range, LowWatermark: h.LowWatermark})
	}
	r := changestream.Reconcile(top, changestream.DefaultGraces(), now)
	p.missing = r.Missing
	for _, s := range r.Stale {
		p.dropTokens(s.Target, func(t changestream.Token) bool { return t.Range == s.Range })
	}
	var opened []changestream.Opening
	for _, rec := range r.Recover {
		for _, target := range rec.From {
			p.dropTokens(target, func(t changestream.Token) bool { return slices.Contains(rec.Tokens, t) })
		}
		p.open(rec.Opening)
		opened = append(opened, rec.Opening)
	}
	return opened
}

// dropTokens takes tokens from a pending partition, and forgets it if none is left.
func (p *places) dropTokens(target rowrange.Range, drop func(changestream.Token) bool) {
	w := p.pendingFor(target)
	if w == nil {
		return
	}
	if w.Tokens = slices.DeleteFunc(w.Tokens, drop); len(w.Tokens) == 0 {
		p.forget(target)
	}
}
