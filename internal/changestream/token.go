package changestream

import (
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// ReadRange reads the range of a partition, which the service gives as [start, end). A
// bound that is not set and one that is set to the empty key are both no bound: the
// service may send either.
func ReadRange(r *bigtablepb.RowRange) (rowrange.Range, error) {
	var out rowrange.Range
	switch b := r.GetStartKey().(type) {
	case nil:
	case *bigtablepb.RowRange_StartKeyClosed:
		out.Start = string(b.StartKeyClosed)
	default:
		return out, protocolError("a partition whose start is not in it")
	}
	switch b := r.GetEndKey().(type) {
	case nil:
	case *bigtablepb.RowRange_EndKeyOpen:
		out.End = string(b.EndKeyOpen)
	default:
		return out, protocolError("a partition whose end is in it")
	}
	if out.IsEmpty() {
		return out, protocolError("a partition without keys")
	}
	return out, nil
}

// ProtoRange writes a partition's range. Both bounds are always set, to the empty key
// where there is none: the service refuses bounds that are not set.
func ProtoRange(r rowrange.Range) *bigtablepb.RowRange {
	return &bigtablepb.RowRange{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(r.Start)},
		EndKey:   &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(r.End)},
	}
}

// ReadToken reads a continuation token, which must have a partition and a value.
func ReadToken(t *bigtablepb.StreamContinuationToken) (Token, error) {
	if t.GetPartition().GetRowRange() == nil {
		return Token{}, protocolError("a continuation token without a partition")
	}
	if t.GetToken() == "" {
		return Token{}, protocolError("a continuation token without a value")
	}
	r, err := ReadRange(t.Partition.RowRange)
	return Token{Range: r, Value: t.Token}, err
}

// ProtoTokens writes tokens in the order of their ranges.
func ProtoTokens(tokens []Token) *bigtablepb.StreamContinuationTokens {
	sorted := slices.Clone(tokens)
	sortTokens(sorted)
	out := &bigtablepb.StreamContinuationTokens{}
	for _, t := range sorted {
		out.Tokens = append(out.Tokens, &bigtablepb.StreamContinuationToken{
			Partition: &bigtablepb.StreamPartition{RowRange: ProtoRange(t.Range)}, Token: t.Value,
		})
	}
	return out
}

func sortTokens(tokens []Token) {
	slices.SortStableFunc(tokens, func(a, b Token) int { return compareRanges(a.Range, b.Range) })
}

// compareRanges orders partitions by their starts, then by their ends, no end being the
// last one.
func compareRanges(a, b rowrange.Range) int {
	if c := strings.Compare(a.Start, b.Start); c != 0 {
		return c
	}
	switch {
	case a.End == b.End:
		return 0
	case a.End == "":
		return 1
	case b.End == "":
		return -1
	}
	return strings.Compare(a.End, b.End)
}

// Tile returns tokens whose ranges lie side by side and hold exactly the keys of target,
// in key order. It reports false where there are none. Tokens that are not needed may
// overlap those that are: a range that closed more than once left several.
func Tile(target rowrange.Range, tokens []Token) ([]Token, bool) {
	sorted := slices.Clone(tokens)
	sortTokens(sorted)
	// from[i] is the token before sorted[i] in a chain that begins with target; -1 where
	// sorted[i] begins it itself. Chains grow to the right, and the sort goes by starts,
	// so that one pass finds them all.
	from := make([]int, len(sorted))
	endsAt := map[string]int{} // a bound that a chain reaches, and its last token
	for i, t := range sorted {
		before, reached := endsAt[t.Range.Start]
		switch {
		case t.Range.Start == target.Start:
			from[i] = -1
		case reached && t.Range.Start != "":
			from[i] = before
		default:
			continue
		}
		if t.Range.End == target.End {
			return chain(sorted, from, i), true
		}
		if t.Range.End != "" {
			endsAt[t.Range.End] = i
		}
	}
	return nil, false
}

// HoldOnce reports whether tokens hold each key of target once, and no other key.
func HoldOnce(target rowrange.Range, tokens []Token) bool {
	tiles, ok := Tile(target, tokens)
	return ok && len(tiles) == len(tokens)
}

func chain(tokens []Token, from []int, last int) []Token {
	var out []Token
	for i := last; i >= 0; i = from[i] {
		out = append(out, tokens[i])
	}
	slices.Reverse(out)
	return out
}
