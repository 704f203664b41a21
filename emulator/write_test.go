package emulator_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 123_456_789, time.UTC)

const noonMicros = 1767355200123000 // noon at a millisecond

func int64Value(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// covers: SNK-05
// issue-row: 3
func TestEachEntryOfABatchHasItsOwnStatus(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	entries := f.write(t, put("a", "a", "1"), put("b", "a", "2"), put("a", "b", "3"))
	for i, e := range entries {
		if e.Index != int64(i) || e.Status.Code != 0 {
			t.Errorf("entry %d: %v", i, e)
		}
	}
	if got, want := f.rows(t), []string{"a a:q@1000=1 b:q@1000=3", "b a:q@1000=2"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestServerTimeIsTheEmulatorsClockAtTheTablesGranularity(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.SetClock(noon)
	auto := setCell("a", "auto", 1_999, nil)
	auto.TimestampOrigin = bigtablepb.Mutation_CLIENT_AUTO_GENERATED
	f.write(t, entry("k", setCell("a", "server", -1, nil), auto))
	if got, want := f.rows(t), []string{fmt.Sprintf("k a:auto@1000= a:server@%d=", int64(noonMicros))}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	_, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: "micros", Table: &adminpb.Table{
		Granularity: adminpb.Table_MICROS, ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}}}})
	if err != nil {
		t.Fatal(err)
	}
	name := instance + "/tables/micros"
	if _, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: name, Entries: []*bigtablepb.MutateRowsRequest_Entry{
		entry("k", setCell("a", "q", -1, nil), setCell("a", "r", 1_999, nil))}}); err != nil {
		t.Fatal(err)
	}
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: name})
	if want := []string{fmt.Sprintf("k a:q@%d= a:r@1999=", int64(noonMicros+456))}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("%q, %v", rows, err)
	}
}

func TestCheckAndMutateAppliesOneBranch(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	put := func(v string) []*bigtablepb.Mutation {
		return []*bigtablepb.Mutation{setCell("a", "q", 0, []byte(v))}
	}
	for _, test := range []struct {
		name      string
		predicate *bigtablepb.RowFilter
		yes, no   []*bigtablepb.Mutation
		matched   bool
		want      []string
	}{
		{"no row", nil, put("yes"), put("no"), false, []string{"k a:q@0=no"}},
		{"any cell", nil, put("yes"), put("no"), true, []string{"k a:q@0=yes"}},
		{"a value that is not there", valueFilter("no"), put("wrong"), put("again"), false, []string{"k a:q@0=again"}},
		{"no mutation for this outcome", valueFilter("again"), nil, put("wrong"), true, []string{"k a:q@0=again"}},
		{"delete", valueFilter("again"), []*bigtablepb.Mutation{deleteFromRow()}, nil, true, nil},
		{"nothing left", nil, put("wrong"), nil, false, nil},
	} {
		res, err := f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: []byte("k"),
			PredicateFilter: test.predicate, TrueMutations: test.yes, FalseMutations: test.no})
		if err != nil || res.PredicateMatched != test.matched || !slices.Equal(f.rows(t), test.want) {
			t.Errorf("%s: %v, %v, %q", test.name, res, err, f.rows(t))
		}
	}
}

func TestReadModifyWriteAppendsAndIncrements(t *testing.T) {
	f := start(t, emulator.Options{Limits: emulator.Limits{CellBytes: 20}})
	f.create(t)
	f.SetClock(noon)
	const future = noonMicros + 5_000_000
	f.write(t, entry("k", setCell("a", "log", future, []byte("old")), setCell("a", "bad", 0, []byte("short"))))
	add := func(q string, n int64) *bigtablepb.ReadModifyWriteRule {
		return &bigtablepb.ReadModifyWriteRule{FamilyName: "a", ColumnQualifier: []byte(q), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: n}}
	}
	tail := func(q, s string) *bigtablepb.ReadModifyWriteRule {
		return &bigtablepb.ReadModifyWriteRule{FamilyName: "a", ColumnQualifier: []byte(q), Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte(s)}}
	}
	do := func(rules ...*bigtablepb.ReadModifyWriteRule) (*bigtablepb.Row, error) {
		res, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("k"), Rules: rules})
		return res.GetRow(), err
	}
	row, err := do(add("n", 2), tail("log", "+1"), add("n", 40), tail("log", "+2"))
	if err != nil {
		t.Fatal(err)
	}
	columns := row.Families[0].Columns
	if string(row.Key) != "k" || len(row.Families) != 1 || len(columns) != 2 ||
		string(columns[0].Cells[0].Value) != "old+1+2" || columns[0].Cells[0].TimestampMicros != future ||
		string(columns[1].Cells[0].Value) != int64Value(42) || columns[1].Cells[0].TimestampMicros != noonMicros {
		t.Errorf("the response is %v", row)
	}
	want := []string{fmt.Sprintf("k a:bad@0=short a:log@%d=old+1+2 a:n@%d=%s", future, int64(noonMicros), int64Value(42))}
	if got := f.rows(t); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for name, rules := range map[string][]*bigtablepb.ReadModifyWriteRule{
		"increment of 5 bytes":   {add("n", 1), add("bad", 1)},
		"append past the limit":  {add("n", 1), tail("log", "0123456789abcdef")},
		"no rule":                {},
		"a rule that says none":  {{FamilyName: "a"}},
		"increment what it made": {tail("new", "x"), add("new", 1)},
	} {
		_, err := do(rules...)
		refused(t, name, err, codes.InvalidArgument, "")
	}
	if got := f.rows(t); !slices.Equal(got, want) {
		t.Errorf("refused requests left %q", got)
	}
}

func TestAggregatesRefuseOtherWrites(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) { r.Table.ColumnFamilies["sum"] = sumFamily() })
	f.write(t, entry("k", addToCell("sum", 0, 5)), entry("k", addToCell("sum", 0, 5)), entry("k", addToCell("sum", 1000, 1)))
	want := []string{fmt.Sprintf("k sum:q@1000=%s sum:q@0=%s", int64Value(1), int64Value(10))}
	if got := f.rows(t); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	_, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("k"),
		Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "sum", Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}}})
	refused(t, "increment", err, codes.InvalidArgument, "aggregate family")
	res, err := f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: tableT})
	if err != nil || res.ColumnFamilies["sum"].ValueType.GetAggregateType().StateType.GetInt64Type() == nil {
		t.Errorf("state type: %v, %v", res, err)
	}
}

func TestDistinctValuesAreCountedOnce(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) {
		distinct := sumFamily()
		distinct.ValueType.GetAggregateType().Aggregator = &adminpb.Type_Aggregate_HllppUniqueCount{HllppUniqueCount: &adminpb.Type_Aggregate_HyperLogLogPlusPlusUniqueCount{}}
		r.Table.ColumnFamilies["distinct"] = distinct
	})
	f.write(t, entry("k", addToCell("distinct", 0, 5), addToCell("distinct", 0, 6)), entry("k", addToCell("distinct", 0, 5)))
	_, sketch, _ := strings.Cut(f.rows(t)[0], "=")
	if n, err := emulator.DistinctCount([]byte(sketch)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := emulator.DistinctCount([]byte("no sketch")); err == nil {
		t.Error("counted what is no sketch")
	}
}

// covers: SNK-42
func TestAnIdempotencyTokenKeepsARetryFromCountingTwice(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) { r.Table.ColumnFamilies["sum"] = sumFamily() })
	f.SetClock(noon)
	send := func(key, token string, began *timestamppb.Timestamp) codes.Code {
		e := entry(key, addToCell("sum", 0, 5))
		e.Idempotency = &bigtablepb.Idempotency{Token: []byte(token), StartTime: began}
		return codes.Code(f.write(t, e)[0].Status.Code)
	}
	count := func(key string, want int64) {
		t.Helper()
		rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(key)}}})
		if err != nil || !slices.Equal(rows, []string{key + " sum:q@0=" + int64Value(want)}) {
			t.Errorf("%q, %v; want %d", rows, err, want)
		}
	}
	for range 3 {
		send("k", "token-01", nil)
	}
	count("k", 5)
	send("k", "token-02", nil)
	count("k", 10)
	send("l", "token-01", nil) // the token belongs to a row
	count("l", 5)
	if _, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: []byte("k"),
		Mutations: []*bigtablepb.Mutation{addToCell("sum", 0, 5)}, Idempotency: &bigtablepb.Idempotency{Token: []byte("token-02")}}); err != nil {
		t.Error(err)
	}
	count("k", 10)
	f.AdvanceClock(15*time.Minute - time.Second)
	send("k", "token-01", timestamppb.New(noon))
	count("k", 10)
	f.AdvanceClock(2 * time.Second)
	if code := send("k", "token-01", timestamppb.New(noon)); code != codes.FailedPrecondition {
		t.Errorf("a retry after the window: %v", code)
	}
	count("k", 10)
	send("k", "token-01", nil) // at the risk of counting twice, as data.proto says
	count("k", 15)
	// Where nothing is aggregated a token does nothing.
	e := put("p", "a", "1")
	e.Idempotency = &bigtablepb.Idempotency{Token: []byte("token-03")}
	f.write(t, e)
	e.Mutations = []*bigtablepb.Mutation{setCell("a", "q", 1000, []byte("2"))}
	f.write(t, e)
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("p")}}})
	if err != nil || !slices.Equal(rows, []string{"p a:q@1000=2"}) {
		t.Errorf("%q, %v", rows, err)
	}
}

func TestGarbageIsCollectedByTheEmulatorsClockWhenAsked(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) {
		r.Table.ColumnFamilies["a"].GcRule = &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: durationpb.New(time.Hour)}}
	})
	f.SetClock(noon)
	f.write(t, entry("gone", setCell("a", "q", -1, nil)), entry("kept", setCell("a", "q", -1, nil), setCell("b", "q", 0, nil)))
	f.AdvanceClock(59 * time.Minute)
	if n, err := f.CollectGarbage(t.Context()); n != 0 || err != nil {
		t.Errorf("too early: %d, %v", n, err)
	}
	f.AdvanceClock(2 * time.Minute)
	if rows := f.rows(t); len(rows) != 2 {
		t.Errorf("collected unasked: %q", rows)
	}
	if n, err := f.CollectGarbage(t.Context()); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := f.rows(t); !slices.Equal(got, []string{"kept b:q@0="}) {
		t.Errorf("%q", got)
	}
}

func TestDropRowRangeDeletesAPrefixOrAll(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.write(t, put("a", "a", "v"), put("ab", "a", "v"), put("ab\xff", "a", "v"), put("ac", "a", "v"))
	drop := func(req *adminpb.DropRowRangeRequest) error {
		req.Name = tableT
		_, err := f.admin.DropRowRange(t.Context(), req)
		return err
	}
	if err := drop(&adminpb.DropRowRangeRequest{Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte("ab")}}); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(f.rows(t)); !slices.Equal(got, []string{"a", "ac"}) {
		t.Errorf("%q", got)
	}
	refused(t, "no prefix", drop(&adminpb.DropRowRangeRequest{Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{}}), codes.InvalidArgument, "row_key_prefix")
	refused(t, "no target", drop(&adminpb.DropRowRangeRequest{}), codes.InvalidArgument, "target")
	refused(t, "all: false", drop(&adminpb.DropRowRangeRequest{Target: &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{}}), codes.InvalidArgument, "must be true")
	if err := drop(&adminpb.DropRowRangeRequest{Target: &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{DeleteAllDataFromTable: true}}); err != nil {
		t.Fatal(err)
	}
	if got := f.rows(t); len(got) != 0 {
		t.Errorf("%q", got)
	}
}
