package emulator

import (
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// span is the row keys from start up to end; unbounded has no end.
type span struct {
	start, end string
	unbounded  bool
}

func (s span) contains(key string) bool {
	return key >= s.start && (s.unbounded || key < s.end)
}

// spanOf is a range's span. A range that cannot hold a key is refused, as the
// service does, (K, K\x00) included (apache/beam#39842). A bound set to the
// empty key is no bound.
func spanOf(r *bigtablepb.RowRange) (span, error) {
	s := span{}
	switch k := r.GetStartKey().(type) {
	case *bigtablepb.RowRange_StartKeyClosed:
		s.start = string(k.StartKeyClosed)
	case *bigtablepb.RowRange_StartKeyOpen:
		if len(k.StartKeyOpen) > 0 {
			s.start = string(k.StartKeyOpen) + "\x00"
		}
	}
	switch k := r.GetEndKey().(type) {
	case *bigtablepb.RowRange_EndKeyClosed:
		if len(k.EndKeyClosed) > 0 {
			s.end = string(k.EndKeyClosed) + "\x00"
		}
	case *bigtablepb.RowRange_EndKeyOpen:
		s.end = string(k.EndKeyOpen)
	}
	s.unbounded = s.end == ""
	if !s.unbounded && s.start >= s.end {
		return span{}, status.Error(codes.InvalidArgument, "start_key must be less than end_key")
	}
	return s, nil
}

// spansOf are the keys of a row set in order, without overlap. No row set,
// or an empty one, is the whole table.
func (e *Emulator) spansOf(set *bigtablepb.RowSet) ([]span, error) {
	if len(set.GetRowKeys())+len(set.GetRowRanges()) == 0 {
		return []span{{unbounded: true}}, nil
	}
	spans := make([]span, 0, len(set.RowKeys)+len(set.RowRanges))
	for i, key := range set.RowKeys {
		if err := e.checkKey(key); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'row_keys' : Error in element #%d : %s", i, status.Convert(err).Message())
		}
		spans = append(spans, span{start: string(key), end: string(key) + "\x00"})
	}
	for i, r := range set.RowRanges {
		s, err := spanOf(r)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'row_ranges' : Error in element #%d : %s", i, status.Convert(err).Message())
		}
		spans = append(spans, s)
	}
	return merge(spans), nil
}

// merge sorts spans and joins those that overlap or touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return strings.Compare(a.start, b.start) })
	out := spans[:1]
	for _, s := range spans[1:] {
		last := &out[len(out)-1]
		if !last.unbounded && s.start > last.end {
			out = append(out, s)
			continue
		}
		last.unbounded = last.unbounded || s.unbounded
		last.end = max(last.end, s.end)
	}
	return out
}
