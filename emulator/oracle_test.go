package emulator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// request is a random request, and the deviations (ids of the table in
// docs/emulator.md) that it may run into.
type request struct {
	what string
	may  []string
	ask  func(ctx context.Context, s *side) string
}

// draw makes random requests over a few rows, families and columns, so that
// they meet.
type draw struct{ *rapid.T }

func (d draw) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(d.T, label)
}

func (d draw) one(label string, in int) bool { return rapid.IntRange(1, in).Draw(d.T, label) == 1 }

func (d draw) key() string { return d.pick("key", "k", "k\x00", "l", "m", "\xff") }

func (d draw) family() string { return d.pick("family", "a", "b") }

func (d draw) qualifier() string { return d.pick("qualifier", "", "q", "r\xff") }

func (d draw) value() []byte { return []byte(d.pick("value", "", "v", "w", "12345678", "\x00\xff")) }

func (d draw) ts() int64 { return 1000 * rapid.Int64Range(0, 3).Draw(d.T, "ts") }

// mutation draws a mutation and the deviations that it causes.
func (d draw) mutation() (*bigtablepb.Mutation, string) {
	f, q := d.family(), []byte(d.qualifier())
	if d.one("flaw", 20) {
		return d.flawed(f)
	}
	switch rapid.IntRange(0, 15).Draw(d.T, "mutation") {
	case 0:
		return deleteFromRow(), ""
	case 1:
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: f}}}, ""
	case 2, 3:
		from := d.ts()
		m := deleteFromColumn(f, from, from+1000+d.ts())
		m.GetDeleteFromColumn().ColumnQualifier = q
		return m, ""
	case 4:
		m := deleteFromColumn(f, 0, 0)
		m.GetDeleteFromColumn().ColumnQualifier = q
		return m, ""
	case 5, 6:
		return addToCell("sum", d.ts(), rapid.Int64().Draw(d.T, "n")), ""
	default:
		return setCell(f, string(q), d.ts(), d.value()), ""
	}
}

// flawed draws a mutation that one side refuses, and the deviation.
func (d draw) flawed(f string) (*bigtablepb.Mutation, string) {
	switch rapid.IntRange(0, 4).Draw(d.T, "flawed") {
	case 0:
		return setCell("nope", "q", 0, d.value()), "family"
	case 1:
		return setCell(f, "q", rapid.SampledFrom([]int64{1, 999, -2, -1001}).Draw(d.T, "bad"), d.value()), "timestamp"
	case 2:
		return setCell("sum", "q", d.ts(), make([]byte, 8)), "aggregate-set"
	case 3:
		return addToCell(f, 0, 1), "aggregate-add-elsewhere"
	default:
		return deleteFromColumn(f, 2000, 1000), "delete-range-unchecked"
	}
}

func (d draw) mutations() (muts []*bigtablepb.Mutation, may []string) {
	for range rapid.IntRange(1, 4).Draw(d.T, "mutations") {
		m, flaw := d.mutation()
		muts = append(muts, m)
		if flaw != "" {
			may = append(may, flaw)
		}
	}
	return muts, may
}

func (d draw) write() request {
	muts, may := d.mutations()
	key := d.key()
	return request{fmt.Sprintf("MutateRow %q %v", key, muts), may, func(ctx context.Context, s *side) string { return s.mutateRow(ctx, key, muts...) }}
}

func (d draw) batch() request {
	var entries []*bigtablepb.MutateRowsRequest_Entry
	var may []string
	for range rapid.IntRange(1, 4).Draw(d.T, "entries") {
		muts, flaws := d.mutations()
		key := d.key()
		switch {
		case d.one("empty key", 40):
			key, flaws = "", append(flaws, "empty-key-entry")
		case d.one("empty entry", 40):
			muts, flaws = nil, append(flaws, "empty-entry")
		}
		entries = append(entries, entry(key, muts...))
		may = append(may, flaws...)
	}
	return request{fmt.Sprintf("MutateRows %v", entries), may, func(ctx context.Context, s *side) string { return s.mutateRows(ctx, entries...) }}
}

func (d draw) conditional() request {
	yes, may := d.mutations()
	no, more := d.mutations()
	predicate, filterMay := d.filter(2)
	if d.one("no predicate", 4) {
		predicate, filterMay = nil, nil
	}
	key := d.key()
	return request{fmt.Sprintf("CheckAndMutateRow %q if %v then %v else %v", key, predicate, yes, no), append(append(may, more...), filterMay...),
		func(ctx context.Context, s *side) string { return s.check(ctx, key, predicate, yes, no) }}
}

func (d draw) rmw() request {
	var rules []*bigtablepb.ReadModifyWriteRule
	var may []string
	for range rapid.IntRange(1, 3).Draw(d.T, "rules") {
		r := increase(d.family(), d.pick("counter", "n", "q"))
		switch rapid.IntRange(0, 9).Draw(d.T, "rule") {
		case 0:
			r.FamilyName, may = "nope", append(may, "family-increment")
		case 1:
			r.FamilyName, may = "sum", append(may, "aggregate-increment")
		case 2, 3, 4:
			r.Rule = &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: d.value()}
		default:
			may = append(may, "increment-no-number")
		}
		rules = append(rules, r)
	}
	key := d.key()
	return request{fmt.Sprintf("ReadModifyWriteRow %q %v", key, rules), may, func(ctx context.Context, s *side) string { return s.rmw(ctx, key, rules...) }}
}

func (d draw) rowRange() (*bigtablepb.RowRange, []string) {
	from, to := d.pick("from", "", "k", "k\x00", "l", "z"), d.pick("to", "", "k\x00", "l", "m", "z")
	r := &bigtablepb.RowRange{}
	switch rapid.IntRange(0, 2).Draw(d.T, "start") {
	case 0:
		r.StartKey = &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(from)}
	case 1:
		r.StartKey = &bigtablepb.RowRange_StartKeyOpen{StartKeyOpen: []byte(from)}
	}
	switch rapid.IntRange(0, 2).Draw(d.T, "end") {
	case 0:
		r.EndKey = &bigtablepb.RowRange_EndKeyClosed{EndKeyClosed: []byte(to)}
		if to == "" {
			return r, []string{"range-end-empty"}
		}
	case 1:
		r.EndKey = &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(to)}
	}
	return r, []string{"range"}
}

func (d draw) scan() request {
	req := &bigtablepb.ReadRowsRequest{Reversed: d.one("reversed", 3), RowsLimit: rapid.Int64Range(0, 3).Draw(d.T, "limit")}
	var may []string
	if d.one("rows", 2) {
		req.Rows = &bigtablepb.RowSet{}
		for range rapid.IntRange(0, 2).Draw(d.T, "keys") {
			req.Rows.RowKeys = append(req.Rows.RowKeys, []byte(d.key()))
		}
		for range rapid.IntRange(0, 2).Draw(d.T, "ranges") {
			r, flaws := d.rowRange()
			req.Rows.RowRanges, may = append(req.Rows.RowRanges, r), append(may, flaws...)
		}
	}
	if d.one("filter", 2) {
		f, flaws := d.filter(3)
		req.Filter, may = f, append(may, flaws...)
	}
	return request{fmt.Sprintf("ReadRows %v", req), may, func(ctx context.Context, s *side) string { return s.read(ctx, req) }}
}

// filter draws a filter. Where several cells with one column and timestamp
// may come in, what follows must not depend on their order; and what counts
// cells of a row looks at one family, since bttest orders families at random.
func (d draw) filter(depth int) (*bigtablepb.RowFilter, []string) {
	if depth > 0 {
		switch rapid.IntRange(0, 7).Draw(d.T, "node") {
		case 0, 1:
			var fs []*bigtablepb.RowFilter
			var may []string
			for range rapid.IntRange(1, 2).Draw(d.T, "links") {
				f, flaw := d.leaf()
				fs, may = append(fs, f), append(may, flaw...)
			}
			f, flaw := d.filter(depth - 1)
			return chain(append(fs, f)...), append(may, flaw...)
		case 2:
			f, may := d.filter(depth - 1)
			g, more := d.filter(depth - 1)
			return interleave(f, g), append(may, more...)
		case 3:
			p, may := d.filter(depth - 1)
			yes, more := d.filter(depth - 1)
			no, rest := d.filter(depth - 1)
			if d.one("one branch", 3) {
				no = nil
			}
			return condition(p, yes, no), append(append(may, more...), rest...)
		}
	}
	return d.leaf()
}

func (d draw) leaf() (*bigtablepb.RowFilter, []string) {
	count := rapid.Int32Range(1, 3).Draw(d.T, "count")
	counting := func(f *bigtablepb.RowFilter) *bigtablepb.RowFilter { return chain(familyFilter(d.family()), f) }
	switch rapid.IntRange(0, 15).Draw(d.T, "leaf") {
	case 0:
		return familyFilter(d.pick("families", "a", "b", "a|b", ".*", "c.*")), nil
	case 1:
		return familyFilter("nope"), []string{"filter-family"}
	case 2:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte(d.pick("qualifiers", "q", "", "r.", "[qr].*", "\\C*"))}}, nil
	case 3:
		return valueFilter(d.pick("values", "v", "", "[vw]", "\\C{2}", "1.*", "\x00.")), nil
	case 4:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_RowKeyRegexFilter{RowKeyRegexFilter: []byte(d.pick("keys", "k", "k.*", "[l-m]", "\xff", ".\\C"))}}, nil
	case 5:
		return counting(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{CellsPerRowLimitFilter: count}}), nil
	case 6:
		return counting(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowOffsetFilter{CellsPerRowOffsetFilter: count}}), nil
	case 7:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: count}}, nil
	case 8:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_TimestampRangeFilter{TimestampRangeFilter: &bigtablepb.TimestampRange{StartTimestampMicros: d.ts(), EndTimestampMicros: d.ts()}}}, nil
	case 9:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{FamilyName: d.family(),
			StartQualifier: &bigtablepb.ColumnRange_StartQualifierOpen{StartQualifierOpen: []byte(d.qualifier())},
			EndQualifier:   &bigtablepb.ColumnRange_EndQualifierClosed{EndQualifierClosed: []byte(d.qualifier())}}}}, nil
	case 10:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRangeFilter{ValueRangeFilter: &bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueClosed{StartValueClosed: d.value()},
			EndValue:   &bigtablepb.ValueRange_EndValueOpen{EndValueOpen: d.value()}}}}, nil
	case 11:
		return strip(), []string{"filter-strip-label"}
	case 12:
		return label(d.pick("label", "x", "y")), []string{"filter-two-labels"}
	case 13:
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{BlockAllFilter: true}}, nil
	case 14:
		return valueFilter("("), []string{"filter-invalid-unseen"}
	default:
		return passAll(), nil
	}
}

func (d draw) admin() request {
	name := d.pick("changed", "a", "b", "c")
	prefix := d.key()
	switch rapid.IntRange(0, 4).Draw(d.T, "admin") {
	case 0:
		return request{"create family " + name, nil, func(ctx context.Context, s *side) string {
			return code(s.modify(ctx, createFamily(name, &adminpb.ColumnFamily{})))
		}}
	case 1: // drop it and make it again: later requests want it
		return request{"recreate family " + name, []string{"family-drop-missing"}, func(ctx context.Context, s *side) string {
			dropped := code(s.modify(ctx, dropFamily(name)))
			return dropped + " " + code(s.modify(ctx, createFamily(name, &adminpb.ColumnFamily{})))
		}}
	case 2:
		return request{fmt.Sprintf("DropRowRange %q", prefix), nil, func(ctx context.Context, s *side) string {
			_, err := s.admin.DropRowRange(ctx, &adminpb.DropRowRangeRequest{Name: s.table, Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte(prefix)}})
			return code(err)
		}}
	case 3:
		return request{"GetTable", nil, func(ctx context.Context, s *side) string {
			t, err := s.admin.GetTable(ctx, &adminpb.GetTableRequest{Name: s.table})
			names := []string{}
			for _, n := range []string{"a", "b", "c", "max", "sum"} {
				if t.GetColumnFamilies()[n] != nil {
					names = append(names, n)
				}
			}
			return code(err) + fmt.Sprint(names)
		}}
	default:
		return request{"SampleRowKeys", []string{"samples"}, func(ctx context.Context, s *side) string { return s.samples(ctx, nil) }}
	}
}

func (d draw) request() request {
	switch rapid.IntRange(0, 11).Draw(d.T, "request") {
	case 0, 1, 2:
		return d.write()
	case 3, 4:
		return d.batch()
	case 5, 6:
		return d.conditional()
	case 7:
		return d.rmw()
	case 8:
		return d.admin()
	default:
		return d.scan()
	}
}

// covers: TST-06
func TestRandomRequestsAreAnsweredAsByBttestButForTheTable(t *testing.T) {
	known := map[string]bool{"timestamp": true, "range": true, "family": true} // prefixes of several ids
	for _, d := range deviations() {
		known[d.id] = true
	}
	// In a bubble both have one clock, which stands still during a request.
	synctest.Test(t, func(t *testing.T) { compareWithBttest(t, known) })
}

func compareWithBttest(t *testing.T, known map[string]bool) {
	theirConn, f, n := bttestInMemory(t), start(t, emulator.Options{TabletBytes: 300}), 0
	// Without t's Deadline, which may not be asked for in a bubble.
	rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
		n++
		time.Sleep(100 * time.Millisecond) // or rapid would never think that it has shrunk a failure for long enough
		theirs, ours := newSide(t, theirConn, fmt.Sprint("o", n)), newSide(t, f.conn, fmt.Sprint("o", n))
		seed := rapid.Uint64().Draw(rt, "seed")
		theirs.fill(t, seed)
		ours.fill(t, seed)
		for range rapid.IntRange(1, 25).Draw(rt, "requests") {
			r := draw{rt}.request()
			time.Sleep(time.Duration(rapid.IntRange(0, 2).Draw(rt, "ms")) * time.Millisecond)
			before := ours.contents(t.Context())
			got, want := r.ask(t.Context(), ours), r.ask(t.Context(), theirs)
			for _, id := range r.may {
				if !known[id] {
					rt.Fatalf("%s is not in the table of deviations", id)
				}
			}
			if got != want && !r.mayDiffer(got) {
				rt.Fatalf("%s\nours   %q\nbttest %q", r.what, got, want)
			}
			after := ours.contents(t.Context())
			if refusedAnswer(got) && after != before {
				rt.Fatalf("%s\nwas refused (%s) and left %q\nwhere was %q", r.what, got, after, before)
			}
			if len(r.may) > 0 {
				theirs.become(t, ours)
			}
			if their := theirs.contents(t.Context()); after != their {
				rt.Fatalf("%s\nours   %q\nbttest %q", r.what, after, their)
			}
		}
	})
}

// fill writes rows with several versions of several columns.
func (s *side) fill(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	for _, key := range []string{"k", "k\x00", "l", "m", "\xff"} {
		var muts []*bigtablepb.Mutation
		for range random.IntN(12) {
			value := []string{"", "v", "w", "12345678", "\x00\xff"}[random.IntN(5)]
			muts = append(muts, setCell([]string{"a", "b"}[random.IntN(2)], []string{"", "q", "r\xff"}[random.IntN(3)], 1000*random.Int64N(4), []byte(value)))
		}
		if len(muts) == 0 {
			continue
		}
		if answer := s.mutateRow(t.Context(), key, muts...); answer != "OK" {
			t.Fatal(answer)
		}
	}
}

func bttestInMemory(t *testing.T) *grpc.ClientConn {
	l := bufconn.Listen(1 << 20)
	s, err := bttest.NewServerWithListener(l)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///bttest", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		l.Close() // before the server, whose Close waits for it
		s.Close()
	})
	return conn
}

// mayDiffer reports whether a deviation explains an answer of ours that is not
// bttest's: nearly all are that we refuse what it takes.
func (r request) mayDiffer(ours string) bool {
	for _, id := range []string{"filter-strip-label", "samples", "family-drop-missing", "range-end-empty"} {
		if slices.Contains(r.may, id) {
			return true
		}
	}
	return len(r.may) > 0 && refusedAnswer(ours)
}

func refusedAnswer(answer string) bool {
	for _, name := range []string{"INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"} {
		if answer == name || strings.HasPrefix(answer, "entry "+name) {
			return true
		}
	}
	return false
}

func (s *side) contents(ctx context.Context) string {
	return s.read(ctx, &bigtablepb.ReadRowsRequest{})
}

// become gives a bttest table the contents of another, from which a deviation
// has kept it.
func (s *side) become(t *testing.T, other *side) {
	t.Helper()
	if s.contents(t.Context()) == other.contents(t.Context()) {
		return
	}
	_, err := s.admin.DropRowRange(t.Context(), &adminpb.DropRowRangeRequest{Name: s.table, Target: &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{DeleteAllDataFromTable: true}})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := other.readRows(t.Context(), &bigtablepb.ReadRowsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		var muts []*bigtablepb.Mutation
		for _, c := range r.cells {
			muts = append(muts, setCell(c.family, c.qualifier, c.ts, []byte(c.value)))
		}
		if answer := s.mutateRow(t.Context(), r.key, muts...); answer != "OK" {
			t.Fatal(answer)
		}
	}
}
