package changestream

import (
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// Opening is a partition that is to be held from now on, from tokens that hold exactly its
// keys, or from a time where there are none.
type Opening struct {
	Range        rowrange.Range
	Tokens       []Token
	Start        time.Time // where there are no tokens
	LowWatermark time.Time
}

// Pending is a partition that waits for the tokens of all its parents.
type Pending struct {
	Target rowrange.Range
	// Tokens are those that have come, one for each parent's range.
	Tokens       []Token
	LowWatermark time.Time // the earliest of the parents'
	UpdatedAt    time.Time // when the last token came
}

// Put keeps a token. One for the same range replaces the older one, whose position is not
// later.
func (p *Pending) Put(t Token, lowWatermark, now time.Time) {
	if i := slices.IndexFunc(p.Tokens, func(o Token) bool { return o.Range == t.Range }); i >= 0 {
		p.Tokens[i] = t
	} else {
		p.Tokens = append(p.Tokens, t)
	}
	p.LowWatermark = earliest(p.LowWatermark, lowWatermark)
	p.UpdatedAt = now
}

// earliest returns the earlier of two times, where zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Handover is what replaces a partition that has closed. All of it is to be written in one
// transaction, in which the partition is deleted.
type Handover struct {
	Open []Opening
	Wait []Pending
	// Forget are targets of which nothing is to be pending any more: they are opened, or
	// held already.
	Forget []rowrange.Range
}

// HandOver says what replaces a partition that has closed with the given successors at
// lowWatermark.
//
// pending returns what is pending for a target, nil for nothing. held are the ranges of
// the other partitions, at least of those that overlap a target; they must exist in the
// same transaction. A target that another partition holds is that one's business: its
// position was given to it later. One that is held in part waits for the reconciliation,
// so that no key is read in two places.
func HandOver(successors []Successor, lowWatermark, now time.Time, pending func(target rowrange.Range) *Pending, held []rowrange.Range) Handover {
	var out Handover
	for _, target := range targetsOf(successors) {
		p := Pending{Target: target}
		if before := pending(target); before != nil {
			p = *before
			p.Tokens = slices.Clone(before.Tokens)
		}
		for _, s := range successors {
			if s.Target == target {
				p.Put(s.Token, lowWatermark, now)
			}
		}
		if rowrange.Covers(held, target) {
			out.Forget = append(out.Forget, target)
			continue
		}
		tokens, complete := Tile(target, p.Tokens)
		if !complete || overlaps(held, target) {
			out.Wait = append(out.Wait, p)
			continue
		}
		out.Open = append(out.Open, Opening{Range: target, Tokens: tokens, LowWatermark: p.LowWatermark})
		out.Forget = append(out.Forget, target)
	}
	return out
}

// targetsOf returns the targets of successors, each once, in order.
func targetsOf(successors []Successor) []rowrange.Range {
	var out []rowrange.Range
	for _, s := range successors {
		if !slices.Contains(out, s.Target) {
			out = append(out, s.Target)
		}
	}
	return out
}

func overlaps(ranges []rowrange.Range, r rowrange.Range) bool {
	return slices.ContainsFunc(ranges, func(o rowrange.Range) bool {
		_, some := rowrange.Intersect(o, r)
		return some
	})
}
