package changestream

import (
	"fmt"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Graces are how long a key may be in no partition before something is done about it.
// They begin when a reconciliation first sees the key missing, and end at one that sees
// it missing again.
type Graces struct {
	// Tokens is after when the tokens that wait for other parents are used by themselves:
	// the other parents were split again before they could close.
	Tokens time.Duration
	// Tokenless is after when a key without any token is read again from a time.
	Tokenless time.Duration
	// Rewind is how much earlier than the low watermark that time is, since a low
	// watermark is an estimate.
	Rewind time.Duration
	// Stale is after when a waiting token is forgotten whose keys a partition holds.
	Stale time.Duration
}

// DefaultGraces are Apache Beam's, which has run against the service for years
// (docs/protocol.md, change streams).
func DefaultGraces() Graces {
	return Graces{Tokens: 2 * time.Minute, Tokenless: 20 * time.Minute, Rewind: time.Hour, Stale: 15 * time.Minute}
}

// Missing are keys that no partition holds.
type Missing struct {
	Range     rowrange.Range
	FirstSeen time.Time // by the ledger's clock
	Seen      int       // in how many reconciliations in a row
	// LowWatermark is the earliest of the whole stream when the keys were first missed.
	LowWatermark time.Time
}

// Held is a partition that the ledger has.
type Held struct {
	Range        rowrange.Range
	LowWatermark time.Time
}

// Topology is what a reconciliation compares.
type Topology struct {
	Service    []rowrange.Range // the partitions that the service has now, as CheckPartitions demands
	Partitions []Held
	Completed  []rowrange.Range // of a bounded run: they are neither missing nor read again
	Pending    []Pending
	Missing    []Missing // as the last reconciliation left them
	// Start is the stream's own start: nothing is read from before it.
	Start time.Time
	// Initial says that the stream has never covered all keys: what is missing and has no
	// token begins at Start, at once.
	Initial bool
}

// Recovery opens a range that no partition holds.
type Recovery struct {
	Opening
	// From are the pending targets that the tokens come from, or whose tokens share keys
	// with the range. The recovery is void if one of them has changed since.
	From []rowrange.Range
}

// Reconciled is what a reconciliation asks for.
type Reconciled struct {
	Recover []Recovery
	Missing []Missing // to be kept for the next one
	// Stale are tokens to be forgotten, unless their pending partition has changed since.
	Stale []StaleToken
	// Awaited are the indexes of the partitions whose close a pending one waits for.
	Awaited []int
}

// StaleToken names a token of a pending partition.
type StaleToken struct{ Target, Range rowrange.Range }

// CheckPartitions returns an error where partitions are not all keys of a table, each
// once: what the service has sent is incomplete then, and must not be reconciled with.
func CheckPartitions(partitions []rowrange.Range) error {
	tokens := make([]Token, len(partitions))
	for i, r := range partitions {
		tokens[i].Range = r
	}
	if !HoldOnce(rowrange.Range{}, tokens) {
		return fmt.Errorf("%w: %d partitions that do not hold every key once", ErrProtocol, len(partitions))
	}
	return nil
}

// Reconcile compares the service's partitions with those of the ledger. Pending
// partitions hold no key: their tokens are what a missing key is recovered from.
func Reconcile(t Topology, g Graces, now time.Time) Reconciled {
	held := heldRanges(t)
	gaps := rowrange.Subtract(rowrange.Range{}, held)
	r := recovering{t: &t, tokens: waiting(t.Pending)}
	if t.Initial {
		r.begin(gaps)
		return Reconciled{Recover: r.out, Awaited: awaited(t)}
	}
	missing := age(gaps, t, now)
	r.withTokens(old(missing, g.Tokens, now))
	r.eachToken(old(missing, g.Tokenless, now))
	r.tokenless(missing, g, now)
	return Reconciled{
		Recover: r.out, Missing: remaining(missing, r.opened), Stale: stale(t.Pending, held, g.Stale, now), Awaited: awaited(t),
	}
}

// heldRanges returns the keys that are held or completed, in as few ranges as can be.
func heldRanges(t Topology) []rowrange.Range {
	held := slices.Clone(t.Completed)
	for _, p := range t.Partitions {
		held = append(held, p.Range)
	}
	return rowrange.Merge(held)
}

// age gives every missing key the time at which it was first missed. What is missing
// changes its bounds while tablets move; a key's time does not begin anew with them.
func age(gaps []rowrange.Range, t Topology, now time.Time) []Missing {
	var out []Missing
	for _, gap := range gaps {
		var known []rowrange.Range
		for _, m := range t.Missing {
			if both, some := rowrange.Intersect(gap, m.Range); some {
				known = append(known, both)
				out = append(out, Missing{Range: both, FirstSeen: m.FirstSeen, Seen: m.Seen + 1, LowWatermark: m.LowWatermark})
			}
		}
		for _, piece := range rowrange.Subtract(gap, known) {
			out = append(out, Missing{Range: piece, FirstSeen: now, Seen: 1, LowWatermark: lowest(t)})
		}
	}
	return joined(out)
}

// lowest is the low watermark of the stream: nothing earlier is unread where none of its
// positions is lost.
func lowest(t Topology) time.Time {
	var low time.Time
	for _, p := range t.Partitions {
		low = earliest(low, p.LowWatermark)
	}
	for _, p := range t.Pending {
		low = earliest(low, p.LowWatermark)
	}
	if low.IsZero() {
		return t.Start
	}
	return low
}

// joined puts neighbours of one age together, so that the list does not grow with every
// move of a tablet.
func joined(missing []Missing) []Missing {
	slices.SortFunc(missing, func(a, b Missing) int { return compareRanges(a.Range, b.Range) })
	var out []Missing
	for _, m := range missing {
		if n := len(out); n > 0 {
			last := &out[n-1]
			same := last.FirstSeen.Equal(m.FirstSeen) && last.Seen == m.Seen && last.LowWatermark.Equal(m.LowWatermark)
			if same && last.Range.End == m.Range.Start {
				last.Range.End = m.Range.End
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

// old returns the keys that were missed that long ago and have been missed twice.
func old(missing []Missing, grace time.Duration, now time.Time) []rowrange.Range {
	var out []rowrange.Range
	for _, m := range missing {
		if m.Seen >= 2 && now.Sub(m.FirstSeen) >= grace {
			out = append(out, m.Range)
		}
	}
	return rowrange.Merge(out)
}

// remaining takes what is opened out of what is missing.
func remaining(missing []Missing, opened []rowrange.Range) []Missing {
	var out []Missing
	for _, m := range missing {
		for _, piece := range rowrange.Subtract(m.Range, opened) {
			m.Range = piece
			out = append(out, m)
		}
	}
	return out
}

// stale lists tokens whose keys are all held: they were opened another way.
func stale(pending []Pending, held []rowrange.Range, grace time.Duration, now time.Time) []StaleToken {
	var out []StaleToken
	for _, p := range pending {
		if now.Sub(p.UpdatedAt) < grace {
			continue
		}
		for _, t := range p.Tokens {
			if rowrange.Covers(held, t.Range) {
				out = append(out, StaleToken{Target: p.Target, Range: t.Range})
			}
		}
	}
	return out
}

// awaited finds the partitions that must close before a pending one can open.
func awaited(t Topology) []int {
	var without []rowrange.Range
	for _, p := range t.Pending {
		var have []rowrange.Range
		for _, token := range p.Tokens {
			have = append(have, token.Range)
		}
		without = append(without, rowrange.Subtract(p.Target, have)...)
	}
	var out []int
	for i, p := range t.Partitions {
		if overlaps(without, p.Range) {
			out = append(out, i)
		}
	}
	return out
}
