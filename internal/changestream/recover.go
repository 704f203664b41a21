package changestream

import (
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// waitingToken is a token of a pending partition.
type waitingToken struct {
	Token
	target       rowrange.Range
	lowWatermark time.Time
}

func waiting(pending []Pending) []waitingToken {
	var out []waitingToken
	for _, p := range pending {
		for _, t := range p.Tokens {
			out = append(out, waitingToken{t, p.Target, p.LowWatermark})
		}
	}
	slices.SortStableFunc(out, func(a, b waitingToken) int { return compareRanges(a.Range, b.Range) })
	return out
}

// recovering collects the recoveries of one reconciliation.
type recovering struct {
	t      *Topology
	tokens []waitingToken
	opened []rowrange.Range
	out    []Recovery
}

// begin opens what is missing at the stream's start, but for keys that have a token.
func (r *recovering) begin(gaps []rowrange.Range) {
	var waits []rowrange.Range
	for _, t := range r.tokens {
		waits = append(waits, t.Range)
	}
	for _, s := range r.t.Service {
		for _, gap := range gaps {
			piece, some := rowrange.Intersect(s, gap)
			if !some {
				continue
			}
			for _, free := range rowrange.Subtract(piece, waits) {
				r.open(Opening{Range: free, Start: r.t.Start, LowWatermark: r.t.Start})
			}
		}
	}
}

// withTokens opens what the waiting tokens tile: a partition of the service from several
// of them, or else each token's own range, if together they are all that is missing
// there.
func (r *recovering) withTokens(missing []rowrange.Range) {
	for _, s := range r.t.Service {
		if rowrange.Covers(missing, s) {
			if tokens, ok := Tile(s, r.inside(s)); ok {
				r.openTokens(s, tokens)
			}
		}
	}
	for _, gap := range r.left(missing) {
		if tokens, ok := Tile(gap, r.inside(gap)); ok {
			for _, t := range tokens {
				r.openTokens(t.Range, []Token{t})
			}
		}
	}
}

// eachToken opens the own range of every token whose keys are all missing. The service
// ends such a stream at once, and says which partitions have its keys now.
func (r *recovering) eachToken(missing []rowrange.Range) {
	for _, t := range r.tokens {
		if rowrange.Covers(r.left(missing), t.Range) {
			r.openTokens(t.Range, []Token{t.Token})
		}
	}
}

// tokenless opens what no token can bring back, from a time.
func (r *recovering) tokenless(missing []Missing, g Graces, now time.Time) {
	for _, m := range missing {
		for _, piece := range r.left(old([]Missing{m}, g.Tokenless, now)) {
			for _, s := range r.t.Service {
				part, some := rowrange.Intersect(s, piece)
				if !some {
					continue
				}
				start := m.LowWatermark.Add(-g.Rewind)
				if start.Before(r.t.Start) {
					start = r.t.Start
				}
				r.open(Opening{Range: part, Start: start, LowWatermark: m.LowWatermark})
			}
		}
	}
}

// left is what of missing is not opened yet.
func (r *recovering) left(missing []rowrange.Range) []rowrange.Range {
	var out []rowrange.Range
	for _, m := range missing {
		out = append(out, rowrange.Subtract(m, r.opened)...)
	}
	return out
}

// inside returns the tokens whose keys are all in a range.
func (r *recovering) inside(within rowrange.Range) []Token {
	var out []Token
	for _, t := range r.tokens {
		if rowrange.Covers([]rowrange.Range{within}, t.Range) {
			out = append(out, t.Token)
		}
	}
	return out
}

func (r *recovering) openTokens(target rowrange.Range, tokens []Token) {
	o := Opening{Range: target, Tokens: tokens}
	for _, t := range r.tokens {
		if slices.Contains(tokens, t.Token) {
			o.LowWatermark = earliest(o.LowWatermark, t.lowWatermark)
		}
	}
	r.open(o)
}

// open notes an opening, and the pending partitions that it takes keys from.
func (r *recovering) open(o Opening) {
	rec := Recovery{Opening: o}
	for _, t := range r.tokens {
		if overlaps([]rowrange.Range{o.Range}, t.Range) && !slices.Contains(rec.From, t.target) {
			rec.From = append(rec.From, t.target)
		}
	}
	r.out = append(r.out, rec)
	r.opened = append(r.opened, o.Range)
}
