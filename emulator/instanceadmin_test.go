package emulator_test

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

const (
	created      = "projects/p/instances/created"
	firstCluster = created + "/clusters/first"
)

// createInstance creates an instance with one cluster of two nodes.
func (f *fixture) createInstance(t testing.TB) *longrunningpb.Operation {
	t.Helper()
	op, err := f.insts.CreateInstance(t.Context(), &adminpb.CreateInstanceRequest{
		Parent: "projects/p", InstanceId: "created", Instance: &adminpb.Instance{DisplayName: "Created", Labels: map[string]string{"team": "a"}},
		Clusters: map[string]*adminpb.Cluster{"first": {Location: "projects/p/locations/z1", ServeNodes: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func TestAnInstanceIsCreatedChangedAndDeletedWithAllThatIsInIt(t *testing.T) {
	f := start(t, emulator.Options{})
	op := f.createInstance(t)
	info := &adminpb.Instance{}
	if !op.Done || op.GetResponse().UnmarshalTo(info) != nil || info.Name != created || info.Type != adminpb.Instance_PRODUCTION || info.State != adminpb.Instance_READY || info.CreateTime == nil {
		t.Errorf("the operation is %v", op)
	}
	ops := longrunningpb.NewOperationsClient(f.conn)
	if again, err := ops.GetOperation(t.Context(), &longrunningpb.GetOperationRequest{Name: op.Name}); err != nil || !proto.Equal(again, op) {
		t.Errorf("looked up: %v, %v", again, err)
	}
	_, err := ops.GetOperation(t.Context(), &longrunningpb.GetOperationRequest{Name: "operations/none"})
	refused(t, "another operation", err, codes.NotFound, "Operation not found")

	partial := func(i *adminpb.Instance, paths ...string) error {
		i.Name = created
		_, err := f.insts.PartialUpdateInstance(t.Context(), &adminpb.PartialUpdateInstanceRequest{Instance: i, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	if err := partial(&adminpb.Instance{DisplayName: "Two", Labels: map[string]string{"team": "b"}}, "display_name"); err != nil {
		t.Fatal(err)
	}
	got, err := f.insts.GetInstance(t.Context(), &adminpb.GetInstanceRequest{Name: created})
	if err != nil || got.DisplayName != "Two" || got.Labels["team"] != "a" {
		t.Errorf("%v, %v", got, err)
	}
	refused(t, "a label", partial(&adminpb.Instance{Labels: map[string]string{"Team": ""}}, "labels"), codes.InvalidArgument, "labels")
	refused(t, "no mask", partial(&adminpb.Instance{}), codes.InvalidArgument, "A non-empty 'update_mask' must be specified")
	refused(t, "the state", partial(&adminpb.Instance{}, "state"), codes.InvalidArgument, "update_mask")
	_, err = f.insts.CreateInstance(t.Context(), &adminpb.CreateInstanceRequest{Parent: "projects/p", InstanceId: "created", Instance: &adminpb.Instance{DisplayName: "x"},
		Clusters: map[string]*adminpb.Cluster{"first": {Location: "projects/p/locations/z1"}}})
	refused(t, "again", err, codes.AlreadyExists, "Instance already exists")

	f.createTableIn(t, created)
	if _, err := f.insts.DeleteInstance(t.Context(), &adminpb.DeleteInstanceRequest{Name: created}); err != nil {
		t.Fatal(err)
	}
	_, err = f.insts.GetInstance(t.Context(), &adminpb.GetInstanceRequest{Name: created})
	refused(t, "deleted", err, codes.NotFound, "Instance not found")
	_, err = f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: created, TableId: "u"})
	refused(t, "a table in it", err, codes.NotFound, "Instance not found")
	f.createInstance(t)
	_, err = f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: created + "/tables/t"})
	refused(t, "its old table", err, codes.NotFound, "Table not found")
}

// createTableIn makes table t with family a in an instance.
func (f *fixture) createTableIn(t testing.TB, parent string) {
	t.Helper()
	_, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: parent, TableId: "t", Table: &adminpb.Table{
		ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnInstanceThatProtectsSomethingIsNotDeleted(t *testing.T) {
	f := start(t, emulator.Options{})
	f.createInstance(t)
	f.createTableIn(t, created)
	protect := func(on bool) {
		_, err := f.admin.UpdateTable(t.Context(), &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: created + "/tables/t", DeletionProtection: on},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"deletion_protection"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	del := func() error {
		_, err := f.insts.DeleteInstance(t.Context(), &adminpb.DeleteInstanceRequest{Name: created})
		return err
	}
	protect(true)
	refused(t, "a protected table", del(), codes.FailedPrecondition, "protected")
	protect(false)
	f.createBackup(t, firstCluster, "b", created+"/tables/t")
	refused(t, "a backup", del(), codes.FailedPrecondition, "backups")
	if _, err := f.admin.DeleteBackup(t.Context(), &adminpb.DeleteBackupRequest{Name: firstCluster + "/backups/b"}); err != nil {
		t.Fatal(err)
	}
	if err := del(); err != nil {
		t.Error(err)
	}
}

func TestClustersAreAddedScaledAndDeleted(t *testing.T) {
	f := start(t, emulator.Options{})
	f.createInstance(t)
	f.createTableIn(t, created)
	add := func(id, zone string) error {
		_, err := f.insts.CreateCluster(t.Context(), &adminpb.CreateClusterRequest{Parent: created, ClusterId: id, Cluster: &adminpb.Cluster{Location: "projects/p/locations/" + zone}})
		return err
	}
	refused(t, "the same zone", add("second", "z1"), codes.InvalidArgument, "zone")
	if err := add("second", "z2"); err != nil {
		t.Fatal(err)
	}
	refused(t, "again", add("second", "z3"), codes.AlreadyExists, "Cluster already exists")
	table, err := f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: created + "/tables/t", View: adminpb.Table_FULL})
	if err != nil || len(table.ClusterStates) != 2 || table.ClusterStates["second"] == nil {
		t.Errorf("%v, %v", table, err)
	}
	get := func(id string) *adminpb.Cluster {
		c, err := f.insts.GetCluster(t.Context(), &adminpb.GetClusterRequest{Name: created + "/clusters/" + id})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := get("second"); c.ServeNodes != 1 || c.DefaultStorageType != adminpb.StorageType_SSD {
		t.Errorf("%v", c)
	}
	update := func(c *adminpb.Cluster, paths ...string) error {
		c.Name = firstCluster
		_, err := f.insts.PartialUpdateCluster(t.Context(), &adminpb.PartialUpdateClusterRequest{Cluster: c, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	scaling := func(least, most, cpu int32) *adminpb.Cluster {
		return &adminpb.Cluster{Config: &adminpb.Cluster_ClusterConfig_{ClusterConfig: &adminpb.Cluster_ClusterConfig{
			ClusterAutoscalingConfig: &adminpb.Cluster_ClusterAutoscalingConfig{
				AutoscalingLimits:  &adminpb.AutoscalingLimits{MinServeNodes: least, MaxServeNodes: most},
				AutoscalingTargets: &adminpb.AutoscalingTargets{CpuUtilizationPercent: cpu},
			},
		}}}
	}
	const path = "cluster_config.cluster_autoscaling_config"
	refused(t, "cpu", update(scaling(3, 4, 90), path), codes.InvalidArgument, "between 10 and 80")
	refused(t, "limits", update(scaling(3, 2, 50), path), codes.InvalidArgument, "max_serve_nodes")
	if err := update(scaling(3, 4, 50), path); err != nil || get("first").ServeNodes != 3 {
		t.Errorf("%v: %v", err, get("first"))
	}
	if err := update(&adminpb.Cluster{ServeNodes: 5}, path, "serve_nodes"); err != nil || get("first").ServeNodes != 5 || get("first").GetClusterConfig() != nil {
		t.Errorf("%v: %v", err, get("first"))
	}
	del := func(id string) error {
		_, err := f.insts.DeleteCluster(t.Context(), &adminpb.DeleteClusterRequest{Name: created + "/clusters/" + id})
		return err
	}
	refused(t, "the cluster of the default profile", del("first"), codes.FailedPrecondition, "app profile")
	if err := del("second"); err != nil {
		t.Error(err)
	}
	refused(t, "the last cluster", del("first"), codes.FailedPrecondition, "last cluster")
	refused(t, "a cluster that is not there", del("second"), codes.NotFound, "Cluster not found")
}

func TestAnInstanceThatWasNotCreatedIsRefusedIfInstancesAreStrict(t *testing.T) {
	f := start(t, emulator.Options{StrictInstances: true})
	_, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: "t"})
	refused(t, "CreateTable", err, codes.NotFound, "Instance not found: "+instance)
	_, err = f.insts.GetInstance(t.Context(), &adminpb.GetInstanceRequest{Name: instance})
	refused(t, "GetInstance", err, codes.NotFound, "Instance not found")
	_, err = f.admin.ListTables(t.Context(), &adminpb.ListTablesRequest{Parent: instance})
	refused(t, "ListTables", err, codes.NotFound, "Instance not found")
	_, err = f.insts.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: instance, AppProfileId: "x", AppProfile: &adminpb.AppProfile{
		RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}}}})
	refused(t, "CreateAppProfile", err, codes.NotFound, "Instance not found")
	_, err = mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: tableT, Entries: []*bigtablepb.MutateRowsRequest_Entry{put("k", "a", "v")}})
	if err == nil {
		t.Error("a row was written")
	}
	f.createInstance(t)
	f.createTableIn(t, created)
}

func TestChangesNameTheClusterThatAProfileRoutesTo(t *testing.T) {
	f := start(t, emulator.Options{})
	f.createInstance(t)
	p, err := f.insts.GetAppProfile(t.Context(), &adminpb.GetAppProfileRequest{Name: created + "/appProfiles/default"})
	if err != nil || p.GetSingleClusterRouting().GetClusterId() != "first" || !p.GetSingleClusterRouting().AllowTransactionalWrites {
		t.Errorf("%v, %v", p, err)
	}
	_, err = f.insts.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: created, AppProfileId: "x", AppProfile: &adminpb.AppProfile{
		RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "nope"}}}})
	refused(t, "a cluster that the instance lacks", err, codes.InvalidArgument, "no cluster")
	all, err := f.insts.ListClusters(t.Context(), &adminpb.ListClustersRequest{Parent: "projects/p/instances/-"})
	if err != nil || !slices.ContainsFunc(all.Clusters, func(c *adminpb.Cluster) bool { return c.Name == firstCluster }) {
		t.Errorf("%v, %v", all, err)
	}
}
