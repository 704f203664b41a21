package emulator_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func entry(key string, muts ...*bigtablepb.Mutation) *bigtablepb.MutateRowsRequest_Entry {
	return &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key), Mutations: muts}
}

func put(key, family, value string) *bigtablepb.MutateRowsRequest_Entry {
	return entry(key, setCell(family, "q", 1000, []byte(value)))
}

func (f *fixture) write(t testing.TB, entries ...*bigtablepb.MutateRowsRequest_Entry) []*bigtablepb.MutateRowsResponse_Entry {
	t.Helper()
	got, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// withFeatures sends the feature flags that Google's clients send.
func withFeatures(ctx context.Context, flags *bigtablepb.FeatureFlags) context.Context {
	b, err := proto.Marshal(flags)
	if err != nil {
		panic(err)
	}
	return metadata.AppendToOutgoingContext(ctx, "bigtable-features", base64.URLEncoding.EncodeToString(b))
}

// gotCell is a cell as a read returned it.
type gotCell struct {
	family, qualifier string
	ts                int64
	value             string
	labels            []string
}

func (c gotCell) String() string {
	s := fmt.Sprintf("%s:%s@%d=%s", c.family, c.qualifier, c.ts, c.value)
	for _, l := range c.labels {
		s += "#" + l
	}
	return s
}

type gotRow struct {
	key   string
	cells []gotCell
}

func (r gotRow) String() string {
	s := r.key
	for _, c := range r.cells {
		s += " " + c.String()
	}
	return s
}

// read returns rows as "key family:qualifier@ts=value …", one per string.
func read(ctx context.Context, data bigtablepb.BigtableClient, req *bigtablepb.ReadRowsRequest) ([]string, error) {
	stream, err := data.ReadRows(ctx, req)
	if err != nil {
		return nil, err
	}
	return collect(stream)
}

func collect(stream grpc.ServerStreamingClient[bigtablepb.ReadRowsResponse]) ([]string, error) {
	rows, err := assemble(stream)
	var out []string
	for _, r := range rows {
		out = append(out, r.String())
	}
	return out, err
}

// assemble puts rows together from chunks.
func assemble(stream grpc.ServerStreamingClient[bigtablepb.ReadRowsResponse]) ([]gotRow, error) {
	var rows []gotRow
	var row gotRow
	var cell gotCell
	var value []byte
	split := false // within a cell
	for {
		res, err := stream.Recv()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		for _, c := range res.Chunks {
			if len(c.RowKey) > 0 && string(c.RowKey) != row.key { // bttest repeats it
				row = gotRow{key: string(c.RowKey)}
			}
			if c.FamilyName != nil {
				cell.family = c.FamilyName.Value
			}
			if c.Qualifier != nil {
				cell.qualifier = string(c.Qualifier.Value)
			}
			if !split {
				cell.ts, cell.labels = c.TimestampMicros, c.Labels
			}
			value = append(value, c.Value...)
			if split = c.ValueSize > 0; split {
				continue
			}
			cell.value, value = string(value), nil
			row.cells = append(row.cells, cell)
			if c.GetCommitRow() {
				rows = append(rows, row)
				row = gotRow{}
			}
		}
	}
}

func (f *fixture) rows(t testing.TB) []string {
	t.Helper()
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// refused checks a call's error: its code and a part of its text.
func refused(t testing.TB, what string, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("%s: %v, want %v with %q", what, err, code, text)
	}
}

const elementZero = "Error in field 'Entry list' : Error in element #0 : Error in field 'Mutation list' : Error in element #0 : "

// covers: EMU-04, EMU-05, SNK-12
// issue-row: 4
func TestARequestThatIsWrongAnywhereIsRefusedAsAWhole(t *testing.T) {
	f := start(t, emulator.Options{Limits: emulator.Limits{CellBytes: 1000}})
	f.create(t, func(r *adminpb.CreateTableRequest) { r.Table.ColumnFamilies["sum"] = sumFamily() })
	good := put("good", "a", "v")
	big := make([]byte, 20_000)
	for _, test := range []struct {
		name    string
		entries []*bigtablepb.MutateRowsRequest_Entry
		text    string
	}{
		{"timestamp below -1", []*bigtablepb.MutateRowsRequest_Entry{entry("k", setCell("a", "q", -6795364578871345, nil))}, elementZero + "Timestamps must be >= -1"},
		{"timestamp finer than a millisecond", []*bigtablepb.MutateRowsRequest_Entry{entry("k", setCell("a", "q", 1001, nil))}, elementZero + "Timestamp granularity mismatch. Expected a multiple of 1000 (millisecond granularity)"},
		{"bad entry among good ones", []*bigtablepb.MutateRowsRequest_Entry{good, good, entry("k", setCell("a", "q", 0, nil), setCell("a", "q", -2, nil))}, "Error in element #2 : Error in field 'Mutation list' : Error in element #1 : Timestamps"},
		{"empty key", []*bigtablepb.MutateRowsRequest_Entry{good, put("", "a", "v")}, "Error in element #1 : Row keys must be non-empty"},
		{"key of 4097 bytes", []*bigtablepb.MutateRowsRequest_Entry{put(strings.Repeat("k", 4097), "a", "v")}, "Row key size 4097"},
		{"no entries", nil, "At least one entry"},
		{"one empty entry among others", []*bigtablepb.MutateRowsRequest_Entry{good, entry("k")}, "Error in element #1 : Error in field 'Mutation list' : At least one mutation"},
		{"mutation of no kind", []*bigtablepb.MutateRowsRequest_Entry{entry("k", &bigtablepb.Mutation{})}, "No mutation"},
		{"qualifier of 20 KB", []*bigtablepb.MutateRowsRequest_Entry{entry("k", setCell("a", string(big), 0, nil))}, "qualifier size 20000"},
		{"cell over the limit", []*bigtablepb.MutateRowsRequest_Entry{entry("k", setCell("a", "q", 0, big[:1001]))}, "Cell value size 1001"},
		{"SetCell into an aggregate", []*bigtablepb.MutateRowsRequest_Entry{entry("k", setCell("sum", "q", 0, big[:8]))}, "aggregate family"},
		{"AddToCell outside one", []*bigtablepb.MutateRowsRequest_Entry{entry("k", addToCell("a", 0, 1))}, "not an aggregate family"},
		{"AddToCell at server time", []*bigtablepb.MutateRowsRequest_Entry{entry("k", addToCell("sum", -1, 1))}, "must be >= 0"},
		{"AddToCell finer than a millisecond", []*bigtablepb.MutateRowsRequest_Entry{entry("k", addToCell("sum", 1, 1))}, "granularity mismatch"},
		{"MergeToCell of raw_value", []*bigtablepb.MutateRowsRequest_Entry{entry("k", mergeToCell("sum", &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: big[:8]}}))}, "bytes_value"},
		{"inverted delete", []*bigtablepb.MutateRowsRequest_Entry{entry("k", deleteFromColumn("a", 2000, 1000))}, "start_timestamp_micros must be less"},
		{"delete of negative times", []*bigtablepb.MutateRowsRequest_Entry{entry("k", deleteFromColumn("a", -1, 0))}, "must be >= 0"},
		{"delete finer than a millisecond", []*bigtablepb.MutateRowsRequest_Entry{entry("k", deleteFromColumn("a", 0, 1001))}, "granularity mismatch"},
		{"short idempotency token", []*bigtablepb.MutateRowsRequest_Entry{{RowKey: []byte("k"), Mutations: good.Mutations, Idempotency: &bigtablepb.Idempotency{Token: []byte("1234567")}}}, "at least 8 bytes"},
	} {
		_, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: test.entries})
		refused(t, test.name, err, codes.InvalidArgument, test.text)
		if len(test.entries) == 1 {
			e := test.entries[0]
			_, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: e.RowKey, Mutations: e.Mutations, Idempotency: e.Idempotency})
			refused(t, test.name+", MutateRow", err, codes.InvalidArgument, "")
			if e.Idempotency == nil {
				_, err = f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: e.RowKey, FalseMutations: e.Mutations})
				refused(t, test.name+", CheckAndMutateRow", err, codes.InvalidArgument, "")
			}
		}
	}
	if rows := f.rows(t); len(rows) != 0 {
		t.Errorf("refused requests left %q", rows)
	}
}

// covers: SNK-31
// issue-row: 5, 7
func TestTheNumberOfMutationsIsBounded(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	m := setCell("a", "q", 0, nil)
	muts := slices.Repeat([]*bigtablepb.Mutation{m}, 100_001)
	write := func(entries ...*bigtablepb.MutateRowsRequest_Entry) error {
		_, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: entries})
		return err
	}
	refused(t, "100,001 in one entry", write(entry("k", muts...)), codes.InvalidArgument, "Too many mutations: 100001")
	refused(t, "100,001 in two entries", write(entry("k", muts[:60_000]...), entry("l", muts[:40_001]...)), codes.InvalidArgument, "Too many mutations: 100001")
	if err := write(entry("k", muts[:100_000]...)); err != nil {
		t.Error("100,000 in one entry:", err)
	}
	refused(t, "100,001 rules", func() error {
		rule := &bigtablepb.ReadModifyWriteRule{FamilyName: "a", Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}
		_, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("k"), Rules: slices.Repeat([]*bigtablepb.ReadModifyWriteRule{rule}, 100_001)})
		return err
	}(), codes.InvalidArgument, "Too many rules")
}

// covers: EMU-06
// issue-row: 1
func TestAMissingFamilyFailsEveryEntryAndWritesNothing(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	for name, bad := range map[string]*bigtablepb.Mutation{
		"set":    setCell("nope", "q", 0, nil),
		"delete": {Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: "nope"}}},
		"column": deleteFromColumn("nope", 0, 0),
		"add":    addToCell("nope", 0, 1),
	} {
		entries := f.write(t, put("k1", "a", "v"), entry("k2", setCell("a", "q", 0, nil), bad), put("k3", "a", "v"))
		if len(entries) != 3 {
			t.Fatalf("%s: %d entries", name, len(entries))
		}
		for i, e := range entries {
			if e.Index != int64(i) || e.Status.Code != int32(codes.NotFound) {
				t.Errorf("%s: entry %d: %v", name, i, e)
			}
		}
		_, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: []byte("k"), Mutations: []*bigtablepb.Mutation{bad}})
		refused(t, name, err, codes.NotFound, "column family not found")
		_, err = f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: []byte("k"), TrueMutations: []*bigtablepb.Mutation{bad}})
		refused(t, name+", the branch not taken", err, codes.NotFound, "column family not found")
	}
	_, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("k"),
		Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "nope", Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}}})
	refused(t, "read-modify-write", err, codes.NotFound, "column family not found")
	// A request that is also wrong is refused for that.
	_, err = mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: []*bigtablepb.MutateRowsRequest_Entry{
		put("k", "nope", "v"), entry("l", setCell("a", "q", -2, nil))}})
	refused(t, "both", err, codes.InvalidArgument, "Timestamps")
	if rows := f.rows(t); len(rows) != 0 {
		t.Errorf("refused requests left %q", rows)
	}
}

// covers: EMU-07, EMU-09, EMU-02
// issue-row: 31
func TestATableOrProfileThatIsMissingIsNotFound(t *testing.T) {
	f := start(t, emulator.Options{})
	if _, err := f.data.PingAndWarm(t.Context(), &bigtablepb.PingAndWarmRequest{Name: instance}); err != nil {
		t.Error("PingAndWarm without tables:", err)
	}
	f.create(t)
	for _, test := range []struct {
		name, table, profile string
		code                 codes.Code
		text                 string
	}{
		{"table", instance + "/tables/nope", "", codes.NotFound, "Table not found: " + instance + "/tables/nope"},
		{"profile", tableT, "nope", codes.NotFound, "App profile not found"},
		{"name", "t", "", codes.InvalidArgument, "table_name"},
	} {
		muts := []*bigtablepb.Mutation{setCell("a", "q", 0, nil)}
		key := []byte("k")
		_, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: test.table, AppProfileId: test.profile, Entries: []*bigtablepb.MutateRowsRequest_Entry{put("k", "a", "v")}})
		refused(t, test.name+", MutateRows", err, test.code, test.text)
		_, err = f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: test.table, AppProfileId: test.profile, RowKey: key, Mutations: muts})
		refused(t, test.name+", MutateRow", err, test.code, test.text)
		_, err = read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: test.table, AppProfileId: test.profile})
		refused(t, test.name+", ReadRows", err, test.code, test.text)
		_, err = f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: test.table, AppProfileId: test.profile, RowKey: key, TrueMutations: muts})
		refused(t, test.name+", CheckAndMutateRow", err, test.code, test.text)
		_, err = f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: test.table, AppProfileId: test.profile, RowKey: key})
		refused(t, test.name+", ReadModifyWriteRow", err, test.code, test.text)
		_, err = f.samples(t, &bigtablepb.SampleRowKeysRequest{TableName: test.table, AppProfileId: test.profile})
		refused(t, test.name+", SampleRowKeys", err, test.code, test.text)
	}
	_, err := f.data.PingAndWarm(t.Context(), &bigtablepb.PingAndWarmRequest{Name: instance, AppProfileId: "nope"})
	refused(t, "PingAndWarm", err, codes.NotFound, "App profile not found")
	_, err = read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{AuthorizedViewName: tableT + "/authorizedViews/v"})
	refused(t, "authorized view", err, codes.NotFound, "Authorized view not found")
	_, err = read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, MaterializedViewName: "v"})
	refused(t, "materialized view", err, codes.Unimplemented, "materialized views")
}

func closedOpen(start, end string) *bigtablepb.RowRange {
	return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(start)}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(end)}}
}

func openOpen(start, end string) *bigtablepb.RowRange {
	return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyOpen{StartKeyOpen: []byte(start)}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(end)}}
}

func openClosed(start, end string) *bigtablepb.RowRange {
	return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyOpen{StartKeyOpen: []byte(start)}, EndKey: &bigtablepb.RowRange_EndKeyClosed{EndKeyClosed: []byte(end)}}
}

func closedClosed(start, end string) *bigtablepb.RowRange {
	return &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(start)}, EndKey: &bigtablepb.RowRange_EndKeyClosed{EndKeyClosed: []byte(end)}}
}

// covers: EMU-10
// issue-row: 11, 13
func TestARangeThatCannotHoldARowIsRefused(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	for name, r := range map[string]*bigtablepb.RowRange{
		"[a,a)": closedOpen("a", "a"), "(a,a)": openOpen("a", "a"), "(a,a]": openClosed("a", "a"),
		"[b,a)": closedOpen("b", "a"), "[b,a]": closedClosed("b", "a"), "(K,K\\0)": openOpen("K", "K\x00"),
	} {
		for _, set := range []*bigtablepb.RowSet{
			{RowRanges: []*bigtablepb.RowRange{r}},
			{RowRanges: []*bigtablepb.RowRange{closedOpen("a", "z"), r}},
		} {
			_, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: set})
			refused(t, name, err, codes.InvalidArgument, "start_key must be less than end_key")
		}
		_, err := f.samples(t, &bigtablepb.SampleRowKeysRequest{TableName: tableT, RowRange: r})
		refused(t, name+", SampleRowKeys", err, codes.InvalidArgument, "start_key must be less than end_key")
	}
	for name, r := range map[string]*bigtablepb.RowRange{
		"[a,a]": closedClosed("a", "a"), "[a,a\\0)": closedOpen("a", "a\x00"), "[a,∞)": closedOpen("a", ""), "(−∞,∞)": openOpen("", ""), "none": {},
	} {
		if _, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{r}}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// covers: EMU-11
// issue-row: 9, 10
func TestAReadThatTheServiceRefusesIsRefused(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	var keys [][]byte
	for i := range 60_000 {
		keys = append(keys, fmt.Appendf(nil, "key%09d", i))
	}
	long := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: make([]byte, 20_481)}}
	for _, test := range []struct {
		name string
		req  *bigtablepb.ReadRowsRequest
		code codes.Code
		text string
	}{
		{"family of a filter", &bigtablepb.ReadRowsRequest{Filter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: "nope"}}}, codes.NotFound, "column family not found"},
		{"family of a column range", &bigtablepb.ReadRowsRequest{Filter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{FamilyName: "nope"}}}}, codes.NotFound, "column family not found"},
		{"request over 512 KiB", &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: keys}}, codes.InvalidArgument, "the limit is 524288"},
		{"filter over 20,480 bytes", &bigtablepb.ReadRowsRequest{Filter: long}, codes.InvalidArgument, "the limit is 20480"},
		{"negative limit", &bigtablepb.ReadRowsRequest{RowsLimit: -1}, codes.InvalidArgument, "rows_limit"},
		{"empty key", &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("a"), {}}}}, codes.InvalidArgument, "Error in element #1 : Row keys must be non-empty"},
		{"reversed without the feature flag", &bigtablepb.ReadRowsRequest{Reversed: true}, codes.Unimplemented, "reverse_scans"},
		{"broken filter", &bigtablepb.ReadRowsRequest{Filter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte("(")}}}, codes.InvalidArgument, "value_regex_filter"},
	} {
		test.req.TableName = tableT
		_, err := read(t.Context(), f.data, test.req)
		refused(t, test.name, err, test.code, test.text)
	}
	_, err := f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: []byte("k"), PredicateFilter: long,
		TrueMutations: []*bigtablepb.Mutation{setCell("a", "q", 0, nil)}})
	refused(t, "predicate over 20,480 bytes", err, codes.InvalidArgument, "the limit is 20480")
	_, err = f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: []byte("k")})
	refused(t, "nothing to do", err, codes.InvalidArgument, "at least one mutation")
}

// issue-row: 25
func TestARowTooLargeToReadNamesItsKeyInTheDetails(t *testing.T) {
	f := start(t, emulator.Options{Limits: emulator.Limits{RowBytes: 1000}})
	f.create(t)
	f.write(t, put("before", "a", "v"), entry("large", setCell("a", "q", 0, make([]byte, 600)), setCell("a", "r", 0, make([]byte, 600))), put("next", "a", "v"))
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT})
	refused(t, "large row", err, codes.FailedPrecondition, "limit")
	if len(rows) != 1 {
		t.Errorf("rows before it: %q", rows)
	}
	info, ok := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
	if !ok || info.Reason != "LargeRowReadError" || info.Metadata["rowKeyBase64Encoded"] != base64.StdEncoding.EncodeToString([]byte("large")) {
		t.Errorf("details %v", info)
	}
}

// A row over the limit is read in parts: what counts is what the filter yields.
func TestARowTooLargeToReadIsReadInParts(t *testing.T) {
	f := start(t, emulator.Options{Limits: emulator.Limits{RowBytes: 1000}})
	f.create(t)
	var cells []*bigtablepb.Mutation
	for i := range 28 {
		cells = append(cells, setCell("a", fmt.Sprintf("q%02d", i), 0, make([]byte, 80)))
	}
	f.write(t, entry("large", cells...))
	column := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte("q07")}}
	limit := func(n int32) *bigtablepb.RowFilter {
		return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{CellsPerRowLimitFilter: n}}
	}
	for name, test := range map[string]struct {
		filter *bigtablepb.RowFilter
		cells  int // 0: too large
	}{
		"everything":           {nil, 0},
		"nine cells":           {limit(9), 9},
		"eleven cells":         {limit(11), 0},
		"one column":           {column, 1},
		"keys only":            {strip(), 28},
		"one cell, twelvefold": {chain(limit(1), interleave(passAll(), passAll(), passAll(), passAll(), passAll(), passAll(), passAll(), passAll(), passAll(), passAll(), passAll(), passAll())), 0},
	} {
		rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Filter: test.filter})
		if test.cells == 0 {
			refused(t, name, err, codes.FailedPrecondition, "limit")
			continue
		}
		if err != nil || len(rows) != 1 || strings.Count(rows[0], "a:q") != test.cells {
			t.Errorf("%s: %d rows, %v, want one of %d cells", name, len(rows), err, test.cells)
		}
	}
}

func addToCell(family string, ts, n int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
		FamilyName:      family,
		ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("q")}},
		Timestamp:       &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: ts}},
		Input:           &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: n}},
	}}}
}

func mergeToCell(family string, input *bigtablepb.Value) *bigtablepb.Mutation {
	a := addToCell(family, 0, 0).GetAddToCell()
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{
		FamilyName: family, ColumnQualifier: a.ColumnQualifier, Timestamp: a.Timestamp, Input: input,
	}}}
}

func deleteFromColumn(family string, start, end int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: family, ColumnQualifier: []byte("q"), TimeRange: &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end},
	}}}
}

func deleteFromRow() *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}
}

func sumFamily() *adminpb.ColumnFamily {
	return &adminpb.ColumnFamily{ValueType: &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: &adminpb.Type_Aggregate{
		InputType: &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{Encoding: &adminpb.Type_Int64_Encoding{
			Encoding: &adminpb.Type_Int64_Encoding_BigEndianBytes_{BigEndianBytes: &adminpb.Type_Int64_Encoding_BigEndianBytes{}}}}}},
		Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}},
	}}}}
}

func (f *fixture) samples(t testing.TB, req *bigtablepb.SampleRowKeysRequest) ([]*bigtablepb.SampleRowKeysResponse, error) {
	stream, err := f.data.SampleRowKeys(t.Context(), req)
	if err != nil {
		return nil, err
	}
	var out []*bigtablepb.SampleRowKeysResponse
	for {
		res, err := stream.Recv()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, res)
	}
}
