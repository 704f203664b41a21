package emulator_test

import (
	"context"
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

const viewV = tableT + "/authorizedViews/v"

// createView makes view v of table t: rows that begin with r1 or r3, column
// a:q, and those columns of b that begin with x.
func (f *fixture) createView(t testing.TB) {
	t.Helper()
	_, err := f.admin.CreateAuthorizedView(t.Context(), &adminpb.CreateAuthorizedViewRequest{Parent: tableT, AuthorizedViewId: "v", AuthorizedView: &adminpb.AuthorizedView{
		AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: &adminpb.AuthorizedView_SubsetView{
			RowPrefixes: [][]byte{[]byte("r3"), []byte("r1")},
			FamilySubsets: map[string]*adminpb.AuthorizedView_FamilySubsets{
				"a": {Qualifiers: [][]byte{[]byte("q")}}, "b": {QualifierPrefixes: [][]byte{[]byte("x")}},
			},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAReadThroughAViewSeesItsRowsAndColumnsOnly(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.createView(t)
	for _, key := range []string{"r0", "r1", "r11", "r2", "r3", "r4"} {
		f.write(t, entry(key, setCell("a", "q", 1000, []byte("v")), setCell("a", "other", 1000, []byte("v")), setCell("b", "x1", 1000, []byte("v")), setCell("b", "y", 1000, []byte("v"))))
	}
	f.write(t, entry("r12", setCell("b", "y", 1000, []byte("v")))) // nothing of it is in the view
	all := &bigtablepb.ReadRowsRequest{AuthorizedViewName: viewV}
	want := []string{"r1 a:q@1000=v b:x1@1000=v", "r11 a:q@1000=v b:x1@1000=v", "r3 a:q@1000=v b:x1@1000=v"}
	if got, err := read(t.Context(), f.data, all); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for name, req := range map[string]*bigtablepb.ReadRowsRequest{
		"a range that crosses its border": {Rows: &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{closedOpen("r0", "r11")}}},
		"keys outside":                    {Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("r1"), []byte("r2")}}},
		"a limit":                         {RowsLimit: 1},
	} {
		req.AuthorizedViewName = viewV
		if got, err := read(t.Context(), f.data, req); err != nil || !slices.Equal(got, want[:1]) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	reversed := withFeatures(t.Context(), &bigtablepb.FeatureFlags{ReverseScans: true})
	backwards := slices.Clone(want)
	slices.Reverse(backwards)
	if got, err := read(reversed, f.data, &bigtablepb.ReadRowsRequest{AuthorizedViewName: viewV, Reversed: true}); err != nil || !slices.Equal(got, backwards) {
		t.Errorf("reversed: %q, %v", got, err)
	}
	_, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{AuthorizedViewName: viewV, TableName: instance + "/tables/u"})
	refused(t, "two tables", err, codes.InvalidArgument, "different tables")
}

func TestAWriteThroughAViewReachesNothingOutsideIt(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.createView(t)
	in := setCell("a", "q", 1000, []byte("v"))
	for name, e := range map[string]*bigtablepb.MutateRowsRequest_Entry{
		"a row outside":    entry("r2", in),
		"a column outside": entry("r1", in, setCell("a", "other", 1000, nil)),
		"a whole family":   entry("r1", &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: "a"}}}),
		"a whole row":      entry("r1", &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}),
	} {
		statuses, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{AuthorizedViewName: viewV, Entries: []*bigtablepb.MutateRowsRequest_Entry{e, entry("r3", in)}})
		if err != nil || codes.Code(statuses[0].Status.Code) != codes.PermissionDenied || statuses[1].Status.Code != 0 {
			t.Errorf("%s: %v, %v", name, statuses, err)
		}
		_, err = f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{AuthorizedViewName: viewV, RowKey: e.RowKey, Mutations: e.Mutations})
		refused(t, name, err, codes.PermissionDenied, "The authorized view does not include")
	}
	// A predicate sees the view only, and both branches are checked.
	f.write(t, entry("r1", setCell("a", "other", 1000, []byte("v"))))
	check := func(muts ...*bigtablepb.Mutation) (bool, error) {
		res, err := f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{AuthorizedViewName: viewV, RowKey: []byte("r1"), TrueMutations: muts, FalseMutations: []*bigtablepb.Mutation{in}})
		return res.GetPredicateMatched(), err
	}
	if matched, err := check(in); err != nil || matched {
		t.Errorf("a predicate saw a column outside: %v, %v", matched, err)
	}
	_, err := check(setCell("a", "other", 1000, nil))
	refused(t, "a branch that reaches outside", err, codes.PermissionDenied, "")
	modify := func(key, qualifier string) error {
		_, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{AuthorizedViewName: viewV, RowKey: []byte(key), Rules: []*bigtablepb.ReadModifyWriteRule{
			{FamilyName: "b", ColumnQualifier: []byte(qualifier), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}}})
		return err
	}
	if err := modify("r1", "x"); err != nil {
		t.Error(err)
	}
	refused(t, "a rule outside", modify("r1", "y"), codes.PermissionDenied, "")
	refused(t, "a rule of a row outside", modify("r2", "x"), codes.PermissionDenied, "")
	if got := f.rows(t); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestAViewIsSampledListedChangedAndProtected(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) {
		for _, key := range []string{"r0", "r11", "r12", "r2", "r31"} {
			r.InitialSplits = append(r.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(key)})
		}
	})
	f.createView(t)
	samples, err := f.samples(t, &bigtablepb.SampleRowKeysRequest{AuthorizedViewName: viewV})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range samples {
		keys = append(keys, string(s.RowKey))
	}
	if !slices.Equal(keys, []string{"r11", "r12", "r2", "r31", "r4"}) {
		t.Errorf("%q", keys)
	}
	get := func() *adminpb.AuthorizedView {
		v, err := f.admin.GetAuthorizedView(t.Context(), &adminpb.GetAuthorizedViewRequest{Name: viewV})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	update := func(v *adminpb.AuthorizedView, paths ...string) error {
		v.Name = viewV
		_, err := f.admin.UpdateAuthorizedView(t.Context(), &adminpb.UpdateAuthorizedViewRequest{AuthorizedView: v, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	old := get().Etag
	if err := update(&adminpb.AuthorizedView{DeletionProtection: true, Etag: old}); err != nil || get().GetSubsetView() == nil {
		t.Errorf("%v: %v", err, get())
	}
	refused(t, "an old etag", update(&adminpb.AuthorizedView{Etag: old}, "deletion_protection"), codes.Aborted, "etag")
	refused(t, "no subset", update(&adminpb.AuthorizedView{}, "*"), codes.InvalidArgument, "subset_view")
	del := func() error {
		_, err := f.admin.DeleteAuthorizedView(t.Context(), &adminpb.DeleteAuthorizedViewRequest{Name: viewV})
		return err
	}
	refused(t, "protected", del(), codes.FailedPrecondition, "protected")
	_, err = f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: tableT})
	refused(t, "its table", err, codes.FailedPrecondition, "protected")
	if err := update(&adminpb.AuthorizedView{}, "deletion_protection"); err != nil {
		t.Fatal(err)
	}
	list, err := f.admin.ListAuthorizedViews(t.Context(), &adminpb.ListAuthorizedViewsRequest{Parent: tableT})
	if err != nil || len(list.AuthorizedViews) != 1 || list.AuthorizedViews[0].GetSubsetView() != nil {
		t.Errorf("%v, %v", list, err)
	}
	if err := del(); err != nil {
		t.Error(err)
	}
	_, err = read(context.Background(), f.data, &bigtablepb.ReadRowsRequest{AuthorizedViewName: viewV})
	refused(t, "deleted", err, codes.NotFound, "Authorized view not found")
}
