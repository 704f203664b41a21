package emulator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"google.golang.org/protobuf/proto"
)

// dumpAdmin is what is administered beside tables, as text.
func (e *Emulator) dumpAdmin(b *strings.Builder) {
	for _, name := range slices.Sorted(maps.Keys(e.instances)) {
		i := e.instances[name]
		fmt.Fprintf(b, "instance %s %v %v\n", name, i.deleted, stable(i.info))
		for _, id := range slices.Sorted(maps.Keys(i.clusters)) {
			fmt.Fprintf(b, "  cluster %v\n", stable(i.clusters[id]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.policies)) {
		fmt.Fprintf(b, "policy %s %v\n", name, stable(e.policies[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(e.backups)) {
		k := e.backups[name]
		fmt.Fprintf(b, "backup %v of %v\n", stable(k.info), stable(k.schema))
		for key, r := range allRows(k.rows) {
			fmt.Fprintf(b, "  %q %d cells\n", key, len(r.Cells))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.tables)) {
		t := e.tables[name]
		for _, id := range slices.Sorted(maps.Keys(t.views)) {
			fmt.Fprintf(b, "view %v\n", stable(t.views[id].info))
		}
		for _, id := range slices.Sorted(maps.Keys(t.bundles)) {
			fmt.Fprintf(b, "bundle %v\n", stable(t.bundles[id]))
		}
	}
}

// administer changes, keeps and deletes one of each thing that is
// administered beside tables.
func administer(t *testing.T, l *logged) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	insts := instanceAdmin{e: l.Emulator}
	for _, id := range []string{"kept", "gone"} {
		name := "projects/p/instances/" + id
		must(insts.CreateInstance(ctx, &adminpb.CreateInstanceRequest{Parent: "projects/p", InstanceId: id, Instance: &adminpb.Instance{DisplayName: id},
			Clusters: map[string]*adminpb.Cluster{"c1": {Location: "projects/p/locations/z1"}, "c2": {Location: "projects/p/locations/z2"}}}))
		must(insts.UpdateCluster(ctx, &adminpb.Cluster{Name: name + "/clusters/c1", ServeNodes: 3}))
		must(l.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: name, TableId: "t"}))
		must(insts.SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: name, Policy: &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/bigtable.user", Members: []string{"user:a@b"}}}}}))
	}
	must(insts.DeleteInstance(ctx, &adminpb.DeleteInstanceRequest{Name: "projects/p/instances/gone"}))

	descriptors, err := proto.Marshal(&descriptorpb.FileDescriptorSet{})
	must(nil, err)
	for _, id := range []string{"kept", "gone"} {
		must(l.admin.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{Parent: testTable, AuthorizedViewId: id, AuthorizedView: &adminpb.AuthorizedView{
			AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: &adminpb.AuthorizedView_SubsetView{RowPrefixes: [][]byte{[]byte("k")}}}}}))
		must(l.admin.SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: testTable + "/authorizedViews/" + id, Policy: &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/bigtable.reader", Members: []string{"user:a@b"}}}}}))
		must(l.admin.CreateSchemaBundle(ctx, &adminpb.CreateSchemaBundleRequest{Parent: testTable, SchemaBundleId: id, SchemaBundle: &adminpb.SchemaBundle{
			Type: &adminpb.SchemaBundle_ProtoSchema{ProtoSchema: &adminpb.ProtoSchema{ProtoDescriptors: append(descriptors, 10, 0)}}}}))
	}
	must(l.admin.DeleteAuthorizedView(ctx, &adminpb.DeleteAuthorizedViewRequest{Name: testTable + "/authorizedViews/gone"}))
	must(l.admin.DeleteSchemaBundle(ctx, &adminpb.DeleteSchemaBundleRequest{Name: testTable + "/schemaBundles/gone"}))

	const cluster = "projects/p/instances/i/clusters/" + Cluster
	expire := timestamppb.New(l.Now().Add(10 * time.Hour))
	for _, id := range []string{"kept", "gone"} {
		must(l.admin.CreateBackup(ctx, &adminpb.CreateBackupRequest{Parent: cluster, BackupId: id, Backup: &adminpb.Backup{SourceTable: testTable, ExpireTime: expire}}))
	}
	l.set(t, "after the backup", set("b", 0, "x"))
	must(l.admin.CopyBackup(ctx, &adminpb.CopyBackupRequest{Parent: cluster, BackupId: "copy", SourceBackup: cluster + "/backups/gone", ExpireTime: expire}))
	must(l.admin.DeleteBackup(ctx, &adminpb.DeleteBackupRequest{Name: cluster + "/backups/gone"}))
	must(l.admin.UpdateBackup(ctx, &adminpb.UpdateBackupRequest{Backup: &adminpb.Backup{Name: cluster + "/backups/kept", ExpireTime: timestamppb.New(l.Now().Add(20 * time.Hour))},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"expire_time"}}}))
	must(l.admin.RestoreTable(ctx, &adminpb.RestoreTableRequest{Parent: "projects/p/instances/i", TableId: "restored", Source: &adminpb.RestoreTableRequest_Backup{Backup: cluster + "/backups/copy"}}))
}
