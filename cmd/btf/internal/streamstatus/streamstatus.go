// Package streamstatus guarantees that a reader sees of a change stream what the ledger knows
// of every key: which partition reads it and from when, or why none does. It is pure.
package streamstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Stream is the state of a change stream as btf status prints it. The names of its fields in
// JSON are a contract. Ranges are in the notation of rowrange.
type Stream struct {
	Name  string    `json:"name"`
	Table string    `json:"table"` // in full
	Begun bool      `json:"begun"` // if not, there is nothing more
	Start time.Time `json:"start,omitzero"`
	// Initial says that the stream has not covered all keys of the table yet.
	Initial bool `json:"initial,omitempty"`
	// Partitions begin with the one whose position is the oldest.
	Partitions []Partition `json:"partitions,omitempty"`
	// Pending are partitions that wait for the tokens of other parents.
	Pending []Pending `json:"pending,omitempty"`
	// Missing are the keys that the last reconciliation has found in no partition.
	Missing []Missing `json:"missing,omitempty"`
	// Completed are the ranges that were read up to the stream's end time.
	Completed []string `json:"completed,omitempty"`
	// Coverage holds one letter for each piece between two neighbouring bounds, in the order
	// of the keys: # is read, = was read to the end time, ? waits, . is in no partition.
	Coverage string `json:"coverage,omitempty"`
}

// Partition is a range of keys that is read.
type Partition struct {
	ID           string        `json:"id"`
	Range        string        `json:"range"`
	LowWatermark time.Time     `json:"lowWatermark"`
	AgeSeconds   float64       `json:"ageSeconds"` // of the low watermark
	Holder       ledger.Holder `json:"holder,omitempty"`
	LeaseSeconds float64       `json:"leaseSeconds,omitempty"` // that are left
	VisitedAt    time.Time     `json:"visitedAt,omitzero"`
	// Fruitless is how often in a row a holder has given it back for a reason that does not
	// pass by itself.
	Fruitless int    `json:"fruitless,omitempty"`
	LastError string `json:"lastError,omitempty"`
}

// Pending is a partition that waits.
type Pending struct {
	Range string `json:"range"`
	// Tokens are the ranges whose tokens have come.
	Tokens       []string  `json:"tokens"`
	LowWatermark time.Time `json:"lowWatermark"`
	UpdatedAt    time.Time `json:"updatedAt"` // when the last token came
}

// Missing are keys in no partition.
type Missing struct {
	Range     string    `json:"range"`
	FirstSeen time.Time `json:"firstSeen"`
	Seen      int       `json:"seen"` // in how many reconciliations in a row
}

// Of returns the state of a stream.
func Of(t *ledger.Topology) Stream {
	s := Stream{
		Name: t.Stream.Name, Table: t.Stream.Table, Begun: true, Start: t.Stream.Start, Initial: t.Stream.Initial,
		Coverage: coverage(t),
	}
	for _, p := range t.Partitions {
		out := Partition{
			ID: p.Incarnation, Range: p.Range.String(), LowWatermark: p.LowWatermark, AgeSeconds: t.ReadAt.Sub(p.LowWatermark).Seconds(),
			VisitedAt: p.VisitedAt, Fruitless: p.Fruitless, LastError: p.LastError,
		}
		if p.Left > 0 {
			out.Holder, out.LeaseSeconds = p.Holder, p.Left.Seconds()
		}
		s.Partitions = append(s.Partitions, out)
	}
	slices.SortFunc(s.Partitions, func(a, b Partition) int {
		return cmp.Or(a.LowWatermark.Compare(b.LowWatermark), cmp.Compare(a.Range, b.Range))
	})
	for _, p := range t.Pending {
		s.Pending = append(s.Pending, Pending{
			Range: p.Target.String(), Tokens: texts(tokenRanges(p)), LowWatermark: p.LowWatermark, UpdatedAt: p.UpdatedAt,
		})
	}
	slices.SortFunc(s.Pending, func(a, b Pending) int { return cmp.Compare(a.Range, b.Range) })
	for _, m := range t.Stream.Missing {
		s.Missing = append(s.Missing, Missing{Range: m.Range.String(), FirstSeen: m.FirstSeen, Seen: m.Seen})
	}
	s.Completed = texts(rowrange.Merge(t.Completed))
	return s
}

func tokenRanges(p changestream.Pending) []rowrange.Range {
	out := make([]rowrange.Range, len(p.Tokens))
	for i, t := range p.Tokens {
		out[i] = t.Range
	}
	return out
}

func texts(ranges []rowrange.Range) []string {
	var out []string
	for _, r := range ranges {
		out = append(out, r.String())
	}
	return out
}

// Letters of a coverage, from the best to the worst.
const letters = "#=?."

// coverage gives each piece of the key space its letter.
func coverage(t *ledger.Topology) string {
	var read, waits, bounded []rowrange.Range
	for _, p := range t.Partitions {
		read = append(read, p.Range)
	}
	for _, p := range t.Pending {
		waits = append(waits, tokenRanges(p)...)
	}
	for _, m := range t.Stream.Missing {
		bounded = append(bounded, m.Range)
	}
	var cuts []string
	for _, r := range slices.Concat(bounded, read, waits, t.Completed) {
		cuts = append(cuts, r.Start, r.End)
	}
	read, waits = rowrange.Merge(read), rowrange.Merge(waits)
	completed := rowrange.Merge(t.Completed)
	var out strings.Builder
	for _, piece := range rowrange.Cut(rowrange.Range{}, cuts) {
		switch {
		case rowrange.Covers(read, piece):
			out.WriteByte('#')
		case rowrange.Covers(completed, piece):
			out.WriteByte('=')
		case rowrange.Covers(waits, piece):
			out.WriteByte('?')
		default:
			out.WriteByte('.')
		}
	}
	return out.String()
}

// Bar draws a coverage with that many letters. All pieces are of one width, since how many
// rows lie in each is not known. Of several pieces in one place the worst is shown, so that
// no gap is hidden.
func Bar(coverage string, width int) string {
	n := len(coverage)
	if n == 0 {
		return ""
	}
	out := make([]byte, width)
	for i := range out {
		from, to := i*n/width, max((i+1)*n/width, i*n/width+1)
		worst := 0
		for _, letter := range coverage[from:to] {
			worst = max(worst, strings.IndexRune(letters, letter))
		}
		out[i] = letters[worst]
	}
	return string(out)
}
