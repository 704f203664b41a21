package emulator_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// side is one of the two servers that are compared, and a table on it.
type side struct {
	data  bigtablepb.BigtableClient
	admin adminpb.BigtableTableAdminClient
	table string
}

// newSide makes a table with families a and b and the aggregate families sum
// and max.
func newSide(t testing.TB, conn *grpc.ClientConn, id string) *side {
	t.Helper()
	s := &side{bigtablepb.NewBigtableClient(conn), adminpb.NewBigtableTableAdminClient(conn), instance + "/tables/" + id}
	if _, err := s.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: id, Table: &adminpb.Table{}}); err != nil {
		t.Fatal(err)
	}
	// One by one: bttest orders families by creation.
	for _, name := range []string{"a", "b", "max", "sum"} {
		p := &adminpb.ColumnFamily{}
		switch name {
		case "sum":
			p = sumFamily()
		case "max":
			p = sumFamily()
			p.ValueType.GetAggregateType().Aggregator = &adminpb.Type_Aggregate_Max_{Max: &adminpb.Type_Aggregate_Max{}}
		}
		if err := s.modify(t.Context(), createFamily(name, p)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *side) modify(ctx context.Context, ms ...*adminpb.ModifyColumnFamiliesRequest_Modification) error {
	_, err := s.admin.ModifyColumnFamilies(ctx, &adminpb.ModifyColumnFamiliesRequest{Name: s.table, Modifications: ms})
	return err
}

// code is how an answer without content is written.
func code(err error) string {
	if err == nil {
		return "OK"
	}
	names := map[codes.Code]string{
		codes.InvalidArgument: "INVALID_ARGUMENT", codes.NotFound: "NOT_FOUND", codes.Unknown: "UNKNOWN", codes.Internal: "INTERNAL",
		codes.Unimplemented: "UNIMPLEMENTED", codes.AlreadyExists: "ALREADY_EXISTS", codes.FailedPrecondition: "FAILED_PRECONDITION",
	}
	if name, ok := names[status.Code(err)]; ok {
		return name
	}
	return err.Error()
}

func (s *side) mutateRow(ctx context.Context, key string, muts ...*bigtablepb.Mutation) string {
	_, err := s.data.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: s.table, RowKey: []byte(key), Mutations: muts})
	return code(err)
}

// mutateRows is the answer as the codes of the entries, or of the request.
func (s *side) mutateRows(ctx context.Context, entries ...*bigtablepb.MutateRowsRequest_Entry) string {
	got, err := mutate(ctx, s.data, &bigtablepb.MutateRowsRequest{TableName: s.table, Entries: entries})
	if err != nil {
		return code(err)
	}
	var out []string
	for _, e := range got {
		out = append(out, "entry "+code(status.ErrorProto(e.Status)))
	}
	return strings.Join(out, ", ")
}

// read is the answer as rows in a fixed form, or the code.
func (s *side) read(ctx context.Context, req *bigtablepb.ReadRowsRequest) string {
	rows, err := s.readRows(ctx, req)
	if err != nil {
		return code(err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, r.String())
	}
	return fmt.Sprint(len(rows), " rows: ", strings.Join(out, "; "))
}

func (s *side) readRows(ctx context.Context, req *bigtablepb.ReadRowsRequest) ([]gotRow, error) {
	req.TableName = s.table
	stream, err := s.data.ReadRows(withFeatures(ctx, &bigtablepb.FeatureFlags{ReverseScans: true}), req)
	if err != nil {
		return nil, err
	}
	rows, err := assemble(stream)
	for _, r := range rows {
		// Cells with one column and timestamp come in an unspecified order.
		slices.SortFunc(r.cells, func(a, b gotCell) int { return strings.Compare(a.String(), b.String()) })
	}
	return rows, err
}

func (s *side) check(ctx context.Context, key string, predicate *bigtablepb.RowFilter, yes, no []*bigtablepb.Mutation) string {
	res, err := s.data.CheckAndMutateRow(ctx, &bigtablepb.CheckAndMutateRowRequest{TableName: s.table, RowKey: []byte(key), PredicateFilter: predicate, TrueMutations: yes, FalseMutations: no})
	if err != nil {
		return code(err)
	}
	return fmt.Sprint("matched=", res.PredicateMatched)
}

func (s *side) rmw(ctx context.Context, key string, rules ...*bigtablepb.ReadModifyWriteRule) string {
	res, err := s.data.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: s.table, RowKey: []byte(key), Rules: rules})
	if err != nil {
		return code(err)
	}
	var out []string
	for _, f := range res.Row.GetFamilies() {
		for _, c := range f.Columns {
			out = append(out, fmt.Sprintf("%s:%s=%q", f.Name, c.Qualifier, c.Cells[0].Value))
		}
	}
	slices.Sort(out) // the order of families is not specified
	return strings.Join(out, " ")
}

func (s *side) samples(ctx context.Context, r *bigtablepb.RowRange) string {
	stream, err := s.data.SampleRowKeys(ctx, &bigtablepb.SampleRowKeysRequest{TableName: s.table, RowRange: r})
	if err != nil {
		return code(err)
	}
	var keys []string
	for {
		res, err := stream.Recv()
		if err == io.EOF {
			return fmt.Sprintf("%q", keys)
		}
		if err != nil {
			return code(err)
		}
		keys = append(keys, string(res.RowKey))
	}
}

func ranges(r *bigtablepb.RowRange) *bigtablepb.ReadRowsRequest {
	return &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{r}}}
}

func filtered(f *bigtablepb.RowFilter) *bigtablepb.ReadRowsRequest {
	return &bigtablepb.ReadRowsRequest{Filter: f}
}

func familyFilter(regex string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: regex}}
}

func chain(fs ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: fs}}}
}

func interleave(fs ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{Filters: fs}}}
}

func condition(p, yes, no *bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Condition_{Condition: &bigtablepb.RowFilter_Condition{PredicateFilter: p, TrueFilter: yes, FalseFilter: no}}}
}

func label(name string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ApplyLabelTransformer{ApplyLabelTransformer: name}}
}

func strip() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_StripValueTransformer{StripValueTransformer: true}}
}

func passAll() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
}

func increase(family, qualifier string) *bigtablepb.ReadModifyWriteRule {
	return &bigtablepb.ReadModifyWriteRule{FamilyName: family, ColumnQualifier: []byte(qualifier), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}
}

// withToken sends an entry with an idempotency token.
func withToken(e *bigtablepb.MutateRowsRequest_Entry) *bigtablepb.MutateRowsRequest_Entry {
	e.Idempotency = &bigtablepb.Idempotency{Token: []byte("a token of some bytes")}
	return e
}

// deviation is one line of the table in docs/emulator.md: what is asked, and
// what bttest and this emulator answer. A table with the row
// "row a:q@1000=v" is there.
type deviation struct {
	id     string
	bttest string
	ours   string
	ask    func(ctx context.Context, s *side) string
}

func bytesValue(b string) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_BytesValue{BytesValue: []byte(b)}}
}

func deviations() []deviation {
	v := []byte("v")
	cell := setCell("a", "q", 1000, v)
	all := func(ctx context.Context, s *side) string { return s.read(ctx, &bigtablepb.ReadRowsRequest{}) }
	only := "1 rows: row a:q@1000=v"
	return []deviation{
		{"family-one", "UNKNOWN", "NOT_FOUND", func(ctx context.Context, s *side) string { return s.mutateRow(ctx, "k", setCell("x", "q", 0, v)) }},
		{"family-entry", "entry OK, entry INTERNAL", "entry NOT_FOUND, entry NOT_FOUND", func(ctx context.Context, s *side) string {
			return s.mutateRows(ctx, entry("k", cell), entry("l", setCell("x", "q", 0, v)))
		}},
		{"family-delete", "OK", "NOT_FOUND", func(ctx context.Context, s *side) string { return s.mutateRow(ctx, "k", clearFamily("x")) }},
		{"family-increment", "UNKNOWN", "NOT_FOUND", func(ctx context.Context, s *side) string { return s.rmw(ctx, "k", increase("x", "q")) }},
		{"family-other-branch", "matched=true", "NOT_FOUND", func(ctx context.Context, s *side) string {
			return s.check(ctx, "row", nil, []*bigtablepb.Mutation{cell}, []*bigtablepb.Mutation{setCell("x", "q", 0, v)})
		}},
		{"timestamp-entry", "entry OK, entry INTERNAL", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRows(ctx, entry("k", cell), entry("l", setCell("a", "q", 1001, v)))
		}},
		{"timestamp-negative", "entry OK, entry INTERNAL", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRows(ctx, entry("k", cell), entry("l", setCell("a", "q", -6795364578871345, v)))
		}},
		{"empty-key-entry", "entry OK, entry INTERNAL", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRows(ctx, entry("k", cell), entry("", cell))
		}},
		{"empty-entry", "entry OK, entry OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRows(ctx, entry("k", cell), entry("l"))
		}},
		{"mutation-of-no-kind", "UNKNOWN", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.mutateRow(ctx, "k", &bigtablepb.Mutation{}) }},
		{"too-many-mutations", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", slices.Repeat([]*bigtablepb.Mutation{cell}, 100_001)...)
		}},
		{"long-key", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.mutateRow(ctx, strings.Repeat("k", 5000), cell) }},
		{"long-qualifier", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", setCell("a", strings.Repeat("q", 20_000), 0, v))
		}},
		{"large-cell", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", setCell("a", "q", 0, make([]byte, 101<<20)))
		}},
		{"profile", "OK", "NOT_FOUND", func(ctx context.Context, s *side) string {
			_, err := s.data.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: s.table, AppProfileId: "x", RowKey: []byte("k"), Mutations: []*bigtablepb.Mutation{cell}})
			return code(err)
		}},
		{"partly-applied", "UNKNOWN, then 1 rows: k a:q@1000=v", "NOT_FOUND, then 0 rows: ", func(ctx context.Context, s *side) string {
			answer := s.mutateRow(ctx, "k", cell, setCell("x", "q", 0, v))
			return answer + ", then " + s.read(ctx, &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("k")}}})
		}},
		{"delete-range-unchecked", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", deleteFromColumn("a", 2000, 1000))
		}},
		{"aggregate-set", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", setCell("sum", "q", 0, make([]byte, 8)))
		}},
		{"aggregate-merge-raw", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", mergeToCell("sum", &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: make([]byte, 8)}}))
		}},
		{"aggregate-merge-bytes", "UNKNOWN", "OK", func(ctx context.Context, s *side) string {
			return s.mutateRow(ctx, "k", mergeToCell("sum", bytesValue("12345678")))
		}},
		{"aggregate-add-elsewhere", "UNKNOWN", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.mutateRow(ctx, "k", addToCell("a", 0, 1)) }},
		{"aggregate-max", "1 rows: k max:q@0=" + int64Value(5), "1 rows: k max:q@0=" + int64Value(9), func(ctx context.Context, s *side) string {
			s.mutateRow(ctx, "k", addToCell("max", 0, 9))
			s.mutateRow(ctx, "k", addToCell("max", 0, 5))
			return s.read(ctx, filtered(familyFilter("max")))
		}},
		{"aggregate-increment", "sum:q=" + fmt.Sprintf("%q", int64Value(1)), "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.rmw(ctx, "k", increase("sum", "q")) }},
		{"idempotency", "1 rows: k sum:q@0=" + int64Value(10), "1 rows: k sum:q@0=" + int64Value(5), func(ctx context.Context, s *side) string {
			s.mutateRows(ctx, withToken(entry("k", addToCell("sum", 0, 5))))
			s.mutateRows(ctx, withToken(entry("k", addToCell("sum", 0, 5))))
			return s.read(ctx, filtered(familyFilter("sum")))
		}},
		{"conditional-empty", "matched=true", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.check(ctx, "row", nil, nil, nil) }},
		{"increment-no-number", "UNKNOWN", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.rmw(ctx, "row", increase("a", "q")) }},
		{"no-rules", "", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.rmw(ctx, "row") }},
		{"range-empty", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.read(ctx, ranges(closedOpen("a", "a"))) }},
		{"range-open-open", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.read(ctx, ranges(openOpen("a", "a"))) }},
		{"range-open-closed", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.read(ctx, ranges(openClosed("a", "a"))) }},
		{"range-after-resume", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.read(ctx, ranges(openOpen("k", "k\x00"))) }},
		{"range-end-empty", "0 rows: ", only, func(ctx context.Context, s *side) string { return s.read(ctx, ranges(closedClosed("a", ""))) }},
		{"read-empty-key", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: [][]byte{{}}}})
		}},
		{"read-limit-negative", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, &bigtablepb.ReadRowsRequest{RowsLimit: -1})
		}},
		{"read-too-large", only, "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: slices.Repeat([][]byte{[]byte("row")}, 200_000)}})
		}},
		{"filter-too-large", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, filtered(valueFilter(strings.Repeat("x", 20_481))))
		}},
		{"filter-family", "0 rows: ", "NOT_FOUND", func(ctx context.Context, s *side) string { return s.read(ctx, filtered(familyFilter("x"))) }},
		{"filter-invalid-unseen", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			req := ranges(closedOpen("x", "y")) // bttest compiles a filter when it meets a row
			req.Filter = valueFilter("(")
			return s.read(ctx, req)
		}},
		{"filter-sink", only, "1 rows: row a:q@1000=v a:q@1000=v#l", func(ctx context.Context, s *side) string {
			return s.read(ctx, filtered(interleave(passAll(), chain(label("l"), &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Sink{Sink: true}}, &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{BlockAllFilter: true}}))))
		}},
		{"filter-bitmask", only, "0 rows: ", func(ctx context.Context, s *side) string {
			return s.read(ctx, filtered(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueBitmaskFilter{ValueBitmaskFilter: &bigtablepb.ValueBitmask{Mask: []byte{0xff}}}}))
		}},
		{"filter-two-labels", "1 rows: row a:q@1000=v#m", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.read(ctx, filtered(chain(label("l"), label("m")))) }},
		{"filter-long-label", "1 rows: row a:q@1000=v#" + strings.Repeat("l", 16), "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, filtered(label(strings.Repeat("l", 16))))
		}},
		{"filter-strip-label", "1 rows: row a:q@1000=", "1 rows: row a:q@1000=#l", func(ctx context.Context, s *side) string { return s.read(ctx, filtered(chain(label("l"), strip()))) }},
		{"filter-no-predicate", only, "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, filtered(condition(nil, passAll(), nil)))
		}},
		{"filter-family-colon", "0 rows: ", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string { return s.read(ctx, filtered(familyFilter("a:"))) }},
		{"samples", `["row" ""]`, `[""]`, func(ctx context.Context, s *side) string { return s.samples(ctx, nil) }},
		{"samples-range", `["row" ""]`, `["m"]`, func(ctx context.Context, s *side) string { return s.samples(ctx, closedOpen("b", "m")) }},
		{"samples-empty", `["row" ""]`, `["b"]`, func(ctx context.Context, s *side) string {
			s.mutateRow(ctx, "row", deleteFromRow())
			return s.samples(ctx, closedOpen("", "b"))
		}},
		{"initial-splits", `[""]`, `["m" ""]`, func(ctx context.Context, s *side) string {
			if _, err := s.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "split", Table: &adminpb.Table{}, InitialSplits: []*adminpb.CreateTableRequest_Split{{Key: []byte("m")}}}); err != nil {
				return code(err)
			}
			return (&side{s.data, s.admin, instance + "/tables/split"}).samples(ctx, nil)
		}},
		{"retention", "0s", "24h0m0s", func(ctx context.Context, s *side) string {
			if _, err := s.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "streamed", Table: &adminpb.Table{ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)}}}); err != nil {
				return code(err)
			}
			res, err := s.admin.GetTable(ctx, &adminpb.GetTableRequest{Name: instance + "/tables/streamed"})
			if err != nil {
				return code(err)
			}
			return res.ChangeStreamConfig.GetRetentionPeriod().AsDuration().String()
		}},
		{"table-id", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			_, err := s.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "no such id", Table: &adminpb.Table{}})
			return code(err)
		}},
		{"family-id", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return code(s.modify(ctx, createFamily("no such id", &adminpb.ColumnFamily{})))
		}},
		{"family-long", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return code(s.modify(ctx, createFamily(strings.Repeat("f", 65), &adminpb.ColumnFamily{})))
		}},
		{"family-dash", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return code(s.modify(ctx, createFamily("-a", &adminpb.ColumnFamily{})))
		}},
		{"table-name", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			_, err := s.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "named", Table: &adminpb.Table{Name: instance + "/tables/named"}})
			return code(err)
		}},
		{"page-token", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			_, err := s.admin.ListTables(ctx, &adminpb.ListTablesRequest{Parent: instance, PageToken: "made up"})
			return code(err)
		}},
		{"filter-unopened", "1 rows: row a:q@1000=v", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			return s.read(ctx, filtered(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte("v)|(b")}}))
		}},
		{"family-drop-missing", "UNKNOWN", "NOT_FOUND", func(ctx context.Context, s *side) string { return code(s.modify(ctx, dropFamily("x"))) }},
		{"family-changes-partly", "UNKNOWN, then 0 rows: ", "NOT_FOUND, then " + only, func(ctx context.Context, s *side) string {
			return code(s.modify(ctx, dropFamily("a"), dropFamily("x"))) + ", then " + all(ctx, s)
		}},
		{"drop-no-prefix", "UNKNOWN", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			_, err := s.admin.DropRowRange(ctx, &adminpb.DropRowRangeRequest{Name: s.table})
			return code(err)
		}},
		{"update-mask", "OK, protected", "OK, unprotected", func(ctx context.Context, s *side) string {
			_, err := s.admin.UpdateTable(ctx, &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: s.table, DeletionProtection: true}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"row_key_schema"}}})
			tbl, _ := s.admin.GetTable(ctx, &adminpb.GetTableRequest{Name: s.table})
			return code(err) + map[bool]string{true: ", protected", false: ", unprotected"}[tbl.GetDeletionProtection()]
		}},
		{"gc-rule", "OK", "INVALID_ARGUMENT", func(ctx context.Context, s *side) string {
			_, err := s.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "gc", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{}}}}}})
			return code(err)
		}},
	}
}

// shown is an answer as the table writes it: numbers in full would not read.
func shown(answer string) string {
	for n := range 20 {
		answer = strings.ReplaceAll(answer, fmt.Sprintf("%q", int64Value(int64(n))), fmt.Sprint(n))
		answer = strings.ReplaceAll(answer, int64Value(int64(n)), fmt.Sprint(n))
	}
	answer = strings.ReplaceAll(answer, strings.Repeat("l", 16), "l...")
	if answer = strings.TrimSpace(answer); answer == "" {
		return "OK"
	}
	return answer
}

// covers: TST-06
// issue-row: 33
func TestEveryDeviationFromBttestIsAsTheTableSays(t *testing.T) {
	doc, err := os.ReadFile("../docs/emulator.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|[^|\n]*\\|([^|\n]*)\\|([^|\n]*)\\|[^|\n]*\\|$")
	documented := map[string][2]string{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = [2]string{strings.Trim(m[2], " `"), strings.Trim(m[3], " `")}
	}
	theirs := startBttest(t)
	f := start(t, emulator.Options{})
	for i, d := range deviations() {
		t.Run(d.id, func(t *testing.T) {
			for name, want := range map[string]string{"bttest": d.bttest, "ours": d.ours} {
				conn := f.conn
				if name == "bttest" {
					conn = theirs
				}
				s := newSide(t, conn, fmt.Sprint("t", i))
				s.mutateRow(t.Context(), "row", setCell("a", "q", 1000, []byte("v")))
				if got := d.ask(t.Context(), s); got != want {
					t.Errorf("%s answers %q, not %q", name, got, want)
				}
			}
			if got, want := documented[d.id], [2]string{shown(d.bttest), shown(d.ours)}; got != want {
				t.Errorf("docs/emulator.md says %q, not %q", got, want)
			}
			delete(documented, d.id)
		})
	}
	for id := range documented {
		t.Errorf("docs/emulator.md lists %s, which no test shows", id)
	}
}
