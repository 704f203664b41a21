package emulator_test

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// covers: EMU-02
func TestInstancesAndClustersAreThereForClientsThatLookFirst(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	admin, err := bigtable.NewInstanceAdminClient(t.Context(), "p", option.WithGRPCConn(f.conn))
	if err != nil {
		t.Fatal(err)
	}
	// Nobody has created anything in it.
	info, err := admin.InstanceInfo(t.Context(), "never-seen")
	if err != nil || info.Name != "never-seen" || info.DisplayName != "never-seen" || info.InstanceState != bigtable.Ready {
		t.Errorf("InstanceInfo: %+v, %v", info, err)
	}
	instances, err := admin.Instances(t.Context())
	if err != nil || len(instances) != 1 || instances[0].Name != "i" {
		t.Errorf("Instances: %+v, %v", instances, err)
	}
	cluster, err := admin.GetCluster(t.Context(), "i", emulator.Cluster)
	if err != nil || cluster.Name != emulator.Cluster || cluster.ServeNodes != 1 || cluster.State != "READY" {
		t.Errorf("GetCluster: %+v, %v", cluster, err)
	}
	clusters, err := admin.Clusters(t.Context(), "i")
	if err != nil || len(clusters) != 1 || clusters[0].Name != emulator.Cluster {
		t.Errorf("Clusters: %+v, %v", clusters, err)
	}
	all, err := f.insts.ListClusters(t.Context(), &adminpb.ListClustersRequest{Parent: "projects/p/instances/-"})
	if err != nil || len(all.Clusters) != 1 || all.Clusters[0].Name != instance+"/clusters/"+emulator.Cluster {
		t.Errorf("clusters of all instances: %v, %v", all, err)
	}
	if other, err := f.insts.ListInstances(t.Context(), &adminpb.ListInstancesRequest{Parent: "projects/p2"}); err != nil || len(other.Instances) != 0 {
		t.Errorf("another project has %v, %v", other, err)
	}
	_, err = f.insts.GetCluster(t.Context(), &adminpb.GetClusterRequest{Name: instance + "/clusters/other"})
	refused(t, "another cluster", err, codes.NotFound, "Cluster not found")
	_, err = f.insts.GetInstance(t.Context(), &adminpb.GetInstanceRequest{Name: "i"})
	refused(t, "no full name", err, codes.InvalidArgument, "invalid resource name")
	_, err = f.insts.ListInstances(t.Context(), &adminpb.ListInstancesRequest{Parent: instance})
	refused(t, "instances of an instance", err, codes.InvalidArgument, "invalid resource name")
}

func TestAPageTokenThatWasNotGivenOutIsRefused(t *testing.T) {
	f := start(t, emulator.Options{})
	for _, id := range []string{"a", "b", "c"} {
		for _, parent := range []string{instance, instance + "2"} {
			if _, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: parent, TableId: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func(parent, token string) (*adminpb.ListTablesResponse, error) {
		return f.admin.ListTables(t.Context(), &adminpb.ListTablesRequest{Parent: parent, PageSize: 1, PageToken: token})
	}
	first, err := list(instance, "")
	if err != nil {
		t.Fatal(err)
	}
	damaged := []byte(first.NextPageToken)
	damaged[3] ^= 1
	for _, token := range []string{"x", "made up", "AAAA", "AAAAAAAAAAAA", instance + "/tables/a", first.NextPageToken + "A", string(damaged)} {
		_, err := list(instance, token)
		refused(t, token, err, codes.InvalidArgument, "page_token")
	}
	_, err = list(instance+"2", first.NextPageToken)
	refused(t, "the token of another instance", err, codes.InvalidArgument, "page_token")
	_, err = f.insts.ListAppProfiles(t.Context(), &adminpb.ListAppProfilesRequest{Parent: instance, PageToken: "x"})
	refused(t, "profiles", err, codes.InvalidArgument, "page_token")
	// A page goes on behind its table even if that has been deleted since.
	if _, err := f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: instance + "/tables/a"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for token := first.NextPageToken; token != ""; {
		res, err := list(instance, token)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, res.Tables[0].Name)
		token = res.NextPageToken
	}
	if !slices.Equal(names, []string{instance + "/tables/b", instance + "/tables/c"}) {
		t.Errorf("the pages after the first hold %q", names)
	}
}
