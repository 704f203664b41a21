package scanworker

import (
	"context"
	"strings"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// unit is what a row has become, or how far rows were read that yield none. The row
// itself is gone by then: what it takes to hold it is many times its bytes.
type unit struct {
	key   string
	bytes int64 // of the row
	kind  unitKind
	body  []byte // of its record, where that is one and has nothing else
	extra *extra // nil: there is nothing else
}

type unitKind uint8

const (
	scanned   unitKind = iota // no row, but rows up to key were read
	wholeRow                  // a row
	unreadRow                 // a row that is too large to be read
)

// extra is what few rows have.
type extra struct {
	records []relay.Record
	err     error // why none can be made
}

func (u unit) size() relay.Size {
	switch u.kind {
	case wholeRow:
		return relay.Size{Rows: 1, Bytes: u.bytes}
	case unreadRow:
		return relay.Size{Dropped: 1}
	}
	return relay.Size{}
}

// source reads the rest of a split. The official client resumes a broken stream; what
// it gives up on ends the source.
type source struct {
	table  Table
	name   string
	ranges []rowrange.Range // what is left, none empty
	filter *bigtablepb.RowFilter
	limit  int64 // rows; 0: all
	emit   func(bigtable.Row) unit
	// skipLarge decides on a row that is too large to be read: nil skips it.
	skipLarge func(ctx context.Context, key string) error
	arrived   func() // is called when a response comes; may be nil

	bytes   int64      // of the rows that were read
	failed  codes.Code // of the last attempt that did
	yielded int64
	last    string
	cut     bool // yield has said stop
}

// Read implements relay.Source.
func (s *source) Read(ctx context.Context, yield func(unit) bool) error {
	put := func(u unit) bool {
		s.last = u.key
		s.cut = !yield(u)
		return !s.cut
	}
	for len(s.ranges) > 0 && (s.limit == 0 || s.yielded < s.limit) {
		large, err := s.read(ctx, put)
		if s.cut || err != nil || large == "" {
			return err
		}
		if err := s.skipLarge(ctx, large); err != nil {
			return err
		}
		if !put(unit{key: large, kind: unreadRow}) {
			return nil
		}
		s.ranges = after(s.ranges, large)
	}
	return nil
}

// read makes one call and returns the key of a row that is too large, if that ended it.
func (s *source) read(ctx context.Context, put func(unit) bool) (large string, err error) {
	var opts []bigtable.ReadOption
	if s.limit > 0 {
		opts = append(opts, bigtable.LimitRows(s.limit-s.yielded))
	}
	w := &btrpc.Watch{Filter: s.filter, Arrived: s.arrived}
	w.Scanned = func(key string) bool { return !s.cut && (key <= s.last || put(unit{key: key})) }
	err = s.table.ReadRows(w.Context(ctx), rowSet(s.ranges), func(r bigtable.Row) bool {
		s.yielded++
		u := s.emit(r)
		s.bytes += u.bytes
		return put(u)
	}, opts...)
	if w.Failed != codes.OK {
		s.failed = w.Failed
	}
	if s.cut {
		return "", nil
	}
	if err != nil && w.LargeRow == "" {
		return "", explain(err, s.name)
	}
	return w.LargeRow, nil
}

func after(ranges []rowrange.Range, key string) []rowrange.Range {
	var rest []rowrange.Range
	for _, r := range ranges {
		if r = r.After(key); !r.IsEmpty() {
			rest = append(rest, r)
		}
	}
	return rest
}

// rowSet turns ranges, none of them empty, into the client's. An end k\x00 that is not
// in the range becomes k, which is: interrupted after k, the client would ask for
// (k, k\x00), which the service refuses.
func rowSet(ranges []rowrange.Range) bigtable.RowSet {
	list := make(bigtable.RowRangeList, len(ranges))
	for i, r := range ranges {
		if k, zero := strings.CutSuffix(r.End, "\x00"); zero && !r.EndClosed && k != "" {
			r.End, r.EndClosed = k, true
		}
		switch {
		case r.StartOpen && r.EndClosed:
			list[i] = bigtable.NewOpenClosedRange(r.Start, r.End)
		case r.StartOpen:
			list[i] = bigtable.NewOpenRange(r.Start, r.End)
		case r.EndClosed:
			list[i] = bigtable.NewClosedRange(r.Start, r.End)
		default:
			list[i] = bigtable.NewClosedOpenRange(r.Start, r.End)
		}
	}
	return list
}
