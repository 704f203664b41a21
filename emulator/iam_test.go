package emulator_test

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

const someone = "serviceAccount:w@p.iam.gserviceaccount.com"

func binding(role string, members ...string) *iampb.Policy {
	return &iampb.Policy{Bindings: []*iampb.Binding{{Role: role, Members: members}}}
}

func (f *fixture) setPolicy(t testing.TB, resource string, p *iampb.Policy) (*iampb.Policy, error) {
	t.Helper()
	req := &iampb.SetIamPolicyRequest{Resource: resource, Policy: p}
	if resource == instance {
		return f.insts.SetIamPolicy(t.Context(), req)
	}
	return f.admin.SetIamPolicy(t.Context(), req)
}

func TestPoliciesAreKeptForEveryKindOfResourceAndCheckedForConflicts(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.createView(t)
	f.createBackup(t, cluster, "b", tableT)
	for _, resource := range []string{instance, tableT, viewV, cluster + "/backups/b"} {
		get := func() *iampb.Policy {
			req := &iampb.GetIamPolicyRequest{Resource: resource}
			p, err := f.admin.GetIamPolicy(t.Context(), req)
			if resource == instance {
				p, err = f.insts.GetIamPolicy(t.Context(), req)
			}
			if err != nil {
				t.Fatal(resource, err)
			}
			return p
		}
		empty := get()
		if len(empty.Bindings) != 0 || len(empty.Etag) == 0 {
			t.Errorf("%s: %v", resource, empty)
		}
		p := binding("roles/bigtable.reader", someone)
		p.Etag = empty.Etag
		if _, err := f.setPolicy(t, resource, p); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
		if got := get(); len(got.Bindings) != 1 || got.Bindings[0].Members[0] != someone {
			t.Errorf("%s: %v", resource, got)
		}
		_, err := f.setPolicy(t, resource, p)
		refused(t, resource+" with an old etag", err, codes.Aborted, "etag")
	}
	for name, p := range map[string]*iampb.Policy{
		"everyone":  binding("roles/bigtable.reader", "allUsers"),
		"no kind":   binding("roles/bigtable.reader", "w@p"),
		"no role":   binding("reader", someone),
		"no policy": nil,
	} {
		_, err := f.setPolicy(t, tableT, p)
		refused(t, name, err, codes.InvalidArgument, "policy")
	}
	_, err := f.setPolicy(t, instance+"/tables/nope", binding("roles/bigtable.reader", someone))
	refused(t, "a table that is not there", err, codes.NotFound, "Table not found")
	_, err = f.setPolicy(t, tableT+"/authorizedViews/nope", binding("roles/bigtable.reader", someone))
	refused(t, "a view that is not there", err, codes.NotFound, "Authorized view not found")
	// A table of the same name begins without the old one's policy.
	if _, err := f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: tableT}); err != nil {
		t.Fatal(err)
	}
	f.create(t)
	if p, err := f.admin.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: tableT}); err != nil || len(p.Bindings) != 0 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestEnforcedPoliciesGiveAPrincipalWhatItsRolesHaveAndNoMore(t *testing.T) {
	f := start(t, emulator.Options{EnforceIAM: true})
	f.create(t)
	f.createView(t)
	other := instance + "/tables/u"
	if _, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: "u", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}}}}); err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), emulator.PrincipalHeader, someone)
	readFrom := func(table string) error {
		_, err := read(ctx, f.data, &bigtablepb.ReadRowsRequest{TableName: table})
		return err
	}
	writeTo := func(table string) error {
		_, err := mutate(ctx, f.data, &bigtablepb.MutateRowsRequest{TableName: table, Entries: []*bigtablepb.MutateRowsRequest_Entry{put("r1", "a", "v")}})
		return err
	}
	readView := func() error {
		_, err := read(ctx, f.data, &bigtablepb.ReadRowsRequest{AuthorizedViewName: viewV})
		return err
	}
	grant := func(resource, role string) {
		t.Helper()
		if _, err := f.setPolicy(t, resource, binding(role, someone)); err != nil {
			t.Fatal(err)
		}
	}
	denied := func(what string, err error, permission string) {
		t.Helper()
		refused(t, what, err, codes.PermissionDenied, "Access denied. Missing IAM permission: bigtable."+permission+".")
	}
	denied("no role", readFrom(tableT), "tables.readRows")
	denied("no role, view", readView(), "authorizedViews.readRows")

	grant(viewV, "roles/bigtable.reader")
	denied("the table of a view", readFrom(tableT), "tables.readRows")
	if err := readView(); err != nil {
		t.Error(err)
	}
	grant(viewV, "roles/bigtable.viewer")
	denied("a viewer", readView(), "authorizedViews.readRows")

	grant(tableT, "roles/bigtable.reader")
	if err := readFrom(tableT); err != nil {
		t.Error(err)
	}
	if err := readView(); err != nil {
		t.Error("the view of a table that may be read:", err)
	}
	denied("a reader writes", writeTo(tableT), "tables.mutateRows")
	denied("another table", readFrom(other), "tables.readRows")
	_, err := f.data.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("r1")})
	denied("a reader increments", err, "tables.mutateRows")

	grant(instance, "roles/bigtable.user")
	if err := writeTo(other); err != nil {
		t.Error(err)
	}
	_, err = f.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "new"})
	denied("a user creates a table", err, "tables.create")
	_, err = f.admin.SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: tableT, Policy: binding("roles/bigtable.admin", someone)})
	denied("a user gives itself more", err, "tables.setIamPolicy")
	res, err := f.admin.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: tableT, Permissions: []string{"bigtable.tables.readRows", "bigtable.tables.delete", "bigtable.tables.mutateRows"}})
	if err != nil || !slices.Equal(res.Permissions, []string{"bigtable.tables.readRows", "bigtable.tables.mutateRows"}) {
		t.Errorf("%v, %v", res, err)
	}
	grant(instance, "roles/bigtable.admin")
	if _, err := f.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: instance, TableId: "new"}); err != nil {
		t.Error(err)
	}
}

func TestEveryServedMethodNeedsAPermissionOrIsNamedHere(t *testing.T) {
	f := start(t, emulator.Options{EnforceIAM: true})
	ctx := metadata.AppendToOutgoingContext(t.Context(), emulator.PrincipalHeader, someone)
	for _, service := range services() {
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			err := callEmpty(ctx, f.conn, service, m)
			if err == nil {
				t.Errorf("%s is served to anyone", m.FullName())
			}
			if name := m.Name(); name == "TestIamPermissions" {
				continue // tells what the caller may do
			}
			if got := status.Code(err); got != codes.PermissionDenied && got != codes.Unimplemented {
				t.Errorf("%s: %v", m.FullName(), err)
			}
		}
	}
}
