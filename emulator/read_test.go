package emulator_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func keysOf(rows []string) []string {
	var keys []string
	for _, r := range rows {
		key, _, _ := strings.Cut(r, " ")
		keys = append(keys, key)
	}
	return keys
}

func TestKeysAndRangesAreReadInOrderAndOnce(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		f.write(t, put(k, "a", k))
	}
	reverse := withFeatures(t.Context(), &bigtablepb.FeatureFlags{ReverseScans: true})
	for _, test := range []struct {
		name string
		set  *bigtablepb.RowSet
		want string
	}{
		{"all", nil, "abcdef"},
		{"empty set", &bigtablepb.RowSet{}, "abcdef"},
		{"keys", &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("d"), []byte("a"), []byte("x"), []byte("d")}}, "ad"},
		{"overlaps", &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("b"), []byte("f")}, RowRanges: []*bigtablepb.RowRange{closedOpen("c", "e"), openClosed("a", "c")}}, "bcdf"},
		{"unbounded", &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{closedOpen("e", ""), closedOpen("", "b")}}, "aef"},
		{"within an unbounded", &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{closedOpen("c", ""), closedOpen("d", "e")}}, "cdef"},
		{"nothing there", &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{openOpen("a", "b")}}, ""},
	} {
		rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: test.set})
		if got := strings.Join(keysOf(rows), ""); got != test.want || err != nil {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
		rows, err = read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: test.set, RowsLimit: 2})
		if got := strings.Join(keysOf(rows), ""); got != test.want[:min(2, len(test.want))] || err != nil {
			t.Errorf("%s, limited: %q, %v", test.name, got, err)
		}
		rows, err = read(reverse, f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: test.set, Reversed: true})
		keys := keysOf(rows)
		slices.Reverse(keys)
		if got := strings.Join(keys, ""); got != test.want || err != nil {
			t.Errorf("%s, reversed: %q, %v", test.name, got, err)
		}
	}
	rows, err := read(reverse, f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Reversed: true, RowsLimit: 2})
	if got := strings.Join(keysOf(rows), ""); got != "fe" || err != nil {
		t.Errorf("reversed and limited: %q, %v", got, err)
	}
}

func valueFilter(regex string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte(regex)}}
}

func TestRequestStatsCountWhatWasSeenAndReturned(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.write(t, entry("a", setCell("a", "q", 0, []byte("x")), setCell("a", "r", 0, []byte("y"))), put("b", "a", "y"), put("c", "a", "x"), put("d", "a", "x"))
	stream, err := f.data.ReadRows(t.Context(), &bigtablepb.ReadRowsRequest{TableName: tableT, Filter: valueFilter("x"), RowsLimit: 2,
		RequestStatsView: bigtablepb.ReadRowsRequest_REQUEST_STATS_FULL})
	if err != nil {
		t.Fatal(err)
	}
	var last *bigtablepb.ReadRowsResponse
	for {
		res, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = res
	}
	full := last.GetRequestStats().GetFullReadStatsView()
	s := full.GetReadIterationStats()
	if s.GetRowsSeenCount() != 3 || s.RowsReturnedCount != 2 || s.CellsSeenCount != 4 || s.CellsReturnedCount != 2 || full.RequestLatencyStats == nil {
		t.Errorf("stats %v", full)
	}
	empty, err := f.data.ReadRows(t.Context(), &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("x")}},
		RequestStatsView: bigtablepb.ReadRowsRequest_REQUEST_STATS_FULL})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := empty.Recv(); err != nil || res.GetRequestStats().GetFullReadStatsView() == nil {
		t.Errorf("an empty read: %v, %v", res, err)
	}
}

func TestAScanThatFiltersEverythingSaysHowFarItIs(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	var entries []*bigtablepb.MutateRowsRequest_Entry
	for i := range 2000 {
		entries = append(entries, put(fmt.Sprintf("k%04d", i), "a", "v"))
	}
	f.write(t, entries...)
	scanned := func(ctx context.Context) (keys []string) {
		stream, err := f.data.ReadRows(ctx, &bigtablepb.ReadRowsRequest{TableName: tableT, Filter: valueFilter("none")})
		if err != nil {
			t.Fatal(err)
		}
		for {
			res, err := stream.Recv()
			if err == io.EOF {
				return keys
			}
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, string(res.LastScannedRowKey))
		}
	}
	if got := scanned(withFeatures(t.Context(), &bigtablepb.FeatureFlags{LastScannedRowResponses: true})); !slices.Equal(got, []string{"k0511", "k1023", "k1535"}) {
		t.Errorf("with the feature flag: %q", got)
	}
	if got := scanned(t.Context()); len(got) != 0 {
		t.Errorf("without: %q", got)
	}
}

// issue-row: 26
func TestALargeRowComesInOneMessageAndItsCellsInChunks(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	large, medium := strings.Repeat("0123456789", 1<<19+1), strings.Repeat("x", 700_000)
	f.write(t, entry("k", setCell("a", "q", 0, []byte(large)), setCell("a", "r", 0, []byte(medium)), setCell("b", "q", 0, []byte(medium)), setCell("b", "q", 1000, []byte(medium))))
	f.write(t, put("l", "a", "small"))
	want := []string{
		fmt.Sprintf("k a:q@0=%s a:r@0=%s b:q@1000=%s b:q@0=%s", large, medium, medium, medium),
		"l a:q@1000=small",
	}
	if got := f.rows(t); !slices.Equal(got, want) {
		t.Error("the rows are not those that were written")
	}
	row, err := f.client(t).Open("t").ReadRow(t.Context(), "k")
	if err != nil || len(row["a"]) != 2 || string(row["a"][0].Value) != large {
		t.Errorf("the official client: %v", err)
	}
}

func TestAScanReadsOneStateOfTheTable(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	var entries []*bigtablepb.MutateRowsRequest_Entry
	for i := range 20_000 { // far more than fits into the flow control window
		entries = append(entries, entry(fmt.Sprintf("k%05d", i), setCell("a", "q", 0, make([]byte, 500))))
	}
	f.write(t, entries...)
	stream, err := f.data.ReadRows(t.Context(), &bigtablepb.ReadRowsRequest{TableName: tableT})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	f.write(t, entry("k19999", deleteFromRow()), put("k19998x", "a", "late"))
	rows, err := collect(stream)
	if err != nil {
		t.Fatal(err)
	}
	if last := keysOf(rows); last[len(last)-1] != "k19999" || slices.Contains(last, "k19998x") {
		t.Error("the scan saw a write that came after it began")
	}
}

// covers: EMU-08, SC-02
// issue-row: 15
func TestSamplesAreTheTabletsBoundariesAndTheEnd(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	show := func(req *bigtablepb.SampleRowKeysRequest) string {
		req.TableName = tableT
		samples, err := f.samples(t, req)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range samples {
			out = append(out, fmt.Sprintf("%s+%d", s.RowKey, s.OffsetBytes))
		}
		return strings.Join(out, " ")
	}
	if got := show(&bigtablepb.SampleRowKeysRequest{}); got != "+0" {
		t.Errorf("an empty table: %q", got)
	}
	for _, k := range []string{"g", "n", "t"} {
		if err := f.SplitTablet(tableT, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []string{"a", "h", "i", "o", "z"} {
		f.write(t, entry(k, setCell("a", "q", 0, make([]byte, 81)))) // 100 bytes with key and overhead
	}
	for _, test := range []struct {
		name string
		r    *bigtablepb.RowRange
		want string
	}{
		{"table", nil, "g+100 n+300 t+400 +500"},
		{"to the end", closedOpen("h", ""), "n+200 t+300 +400"},
		{"within", closedOpen("h", "p"), "n+200 p+300"},
		{"closed end", closedClosed("", "g"), "g+100 g+100"},
		{"one tablet", closedOpen("n", "o"), "o+0"},
		{"whole range", closedOpen("", ""), "g+100 n+300 t+400 +500"},
	} {
		if got := show(&bigtablepb.SampleRowKeysRequest{RowRange: test.r}); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestReadsStopWhenTheCallerGoesAway(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.write(t, put("k", "a", "v"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := read(ctx, f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
	refused(t, "cancelled", err, codes.Canceled, "")
}
