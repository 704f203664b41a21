//go:build realgcp

package realgcp

import (
	"context"
	"fmt"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

func increment(family string) *bigtablepb.ReadModifyWriteRule {
	return &bigtablepb.ReadModifyWriteRule{FamilyName: family, ColumnQualifier: []byte("q"), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}
}

// rareFacts are about requests that the functions do not send, and the emulator answers.
func rareFacts() []fact {
	rmw := func(key, family string) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string {
			f.one(ctx, "single", "number", set("cf", "q", 1000, "no number"))
			_, err := f.client.ReadModifyWriteRow(f.through(ctx, "facts", "single"), &bigtablepb.ReadModifyWriteRowRequest{
				TableName: f.table("facts"), AppProfileId: "single", RowKey: []byte(key), Rules: []*bigtablepb.ReadModifyWriteRule{increment(family)},
			})
			return code(err)
		}
	}
	one := func(m *bigtablepb.Mutation) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string { return f.one(ctx, "single", "k", m) }
	}
	read := func(filter *bigtablepb.RowFilter) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string {
			return f.read(ctx, &bigtablepb.ReadRowsRequest{Filter: filter})
		}
	}
	inverted := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: "cf", ColumnQualifier: []byte("q"), TimeRange: &bigtablepb.TimestampRange{StartTimestampMicros: 2000, EndTimestampMicros: 1000},
	}}}
	elsewhere := add(1)
	elsewhere.GetAddToCell().FamilyName = "cf"
	return []fact{
		{"family-increment", "emulator.md", "NotFound", rmw("k", "absent")},
		{"aggregate-increment", "emulator.md", "InvalidArgument", rmw("k", "sums")},
		{"increment-no-number", "emulator.md", "InvalidArgument", rmw("number", "cf")},
		{"delete-range-unchecked", "emulator.md", "the request: InvalidArgument", one(inverted)},
		{"aggregate-add-elsewhere", "emulator.md", "the request: InvalidArgument", one(elsewhere)},
		{"family-other-branch", "emulator.md", "NotFound", func(ctx context.Context, f *facts) string {
			_, err := f.client.CheckAndMutateRow(f.through(ctx, "facts", "single"), &bigtablepb.CheckAndMutateRowRequest{
				TableName: f.table("facts"), AppProfileId: "single", RowKey: []byte("absent"),
				TrueMutations: []*bigtablepb.Mutation{set("absent", "q", 1000, "v")}, FalseMutations: []*bigtablepb.Mutation{set("cf", "q", 1000, "v")},
			})
			return code(err)
		}},
		{"filter-too-large", "emulator.md", "InvalidArgument", read(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte(strings.Repeat("x", 20_481))}})},
		{"filter-no-predicate", "emulator.md", "InvalidArgument", read(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Condition_{Condition: &bigtablepb.RowFilter_Condition{
			TrueFilter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}},
		}}})},
		{"range-end-empty", "emulator.md", "OK", func(ctx context.Context, f *facts) string {
			return f.read(ctx, &bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{{
				StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("a")}, EndKey: &bigtablepb.RowRange_EndKeyClosed{},
			}}}})
		}},
		{"large-cell", "emulator.md", "the request: InvalidArgument", one(set("cf", "q", 1000, strings.Repeat("x", 101<<20)))},
	}
}

// adminFacts are about the administration of tables.
func adminFacts() []fact {
	modify := func(m *adminpb.ModifyColumnFamiliesRequest_Modification) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string {
			_, err := f.admin.ModifyColumnFamilies(ctx, &adminpb.ModifyColumnFamiliesRequest{Name: f.table("quiet"), Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{m}})
			return code(err)
		}
	}
	create := func(id string, table func(f *facts) *adminpb.Table) func(context.Context, *facts) string {
		return func(ctx context.Context, f *facts) string {
			_, err := f.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: f.instance(), TableId: id, Table: table(f)})
			return code(err)
		}
	}
	return []fact{
		{"family-long", "emulator.md", "InvalidArgument", modify(&adminpb.ModifyColumnFamiliesRequest_Modification{
			Id: strings.Repeat("f", 65), Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: &adminpb.ColumnFamily{}},
		})},
		{"family-drop-missing", "emulator.md", "NotFound", modify(&adminpb.ModifyColumnFamiliesRequest_Modification{
			Id: "absent", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Drop{Drop: true},
		})},
		{"table-name", "emulator.md", "InvalidArgument", create("named", func(f *facts) *adminpb.Table { return &adminpb.Table{Name: f.table("named")} })},
		{"gc-rule", "emulator.md", "InvalidArgument", create("ruled", func(*facts) *adminpb.Table {
			return &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{}}}}}
		})},
		{"page-token", "emulator.md", "InvalidArgument", func(ctx context.Context, f *facts) string {
			_, err := f.admin.ListTables(ctx, &adminpb.ListTablesRequest{Parent: f.instance(), PageToken: "made up"}).Next()
			return code(err)
		}},
		{"drop-no-prefix", "emulator.md", "InvalidArgument", func(ctx context.Context, f *facts) string {
			err := f.admin.DropRowRange(ctx, &adminpb.DropRowRangeRequest{Name: f.table("quiet")})
			return code(err)
		}},
	}
}

func (f *facts) instance() string { return fmt.Sprintf("projects/%s/instances/%s", f.project, f.id) }
