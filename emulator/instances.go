package emulator

import (
	"context"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// zone is the location that clusters name.
const zone = "emulator-a"

// GetInstance describes an instance. Instances need not be created: there is
// one of every valid name.
func (a *instanceAdmin) GetInstance(_ context.Context, req *adminpb.GetInstanceRequest) (*adminpb.Instance, error) {
	if err := checkName(instanceName, "name", req.GetName()); err != nil {
		return nil, err
	}
	return instanceProto(req.Name), nil
}

// ListInstances lists the instances of a project that hold tables or app
// profiles of their own, on one page: page tokens are ignored, as
// bigtable_instance_admin.proto says.
func (a *instanceAdmin) ListInstances(_ context.Context, req *adminpb.ListInstancesRequest) (*adminpb.ListInstancesResponse, error) {
	if err := checkName(projectName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	res := &adminpb.ListInstancesResponse{}
	for _, name := range a.e.instances(req.Parent) {
		res.Instances = append(res.Instances, instanceProto(name))
	}
	return res, nil
}

// GetCluster describes the cluster of an instance.
func (a *instanceAdmin) GetCluster(_ context.Context, req *adminpb.GetClusterRequest) (*adminpb.Cluster, error) {
	if err := checkName(clusterName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if p := clusterProto(instanceOf(req.Name)); p.Name == req.Name {
		return p, nil
	}
	return nil, status.Errorf(codes.NotFound, "Cluster not found: %s", req.Name)
}

// ListClusters lists the cluster of an instance or, if the instance is "-",
// those of all instances that ListInstances lists.
func (a *instanceAdmin) ListClusters(_ context.Context, req *adminpb.ListClustersRequest) (*adminpb.ListClustersResponse, error) {
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	names := []string{req.Parent}
	if project, every := strings.CutSuffix(req.Parent, "/instances/-"); every {
		names = a.e.instances(project)
	}
	res := &adminpb.ListClustersResponse{}
	for _, name := range names {
		res.Clusters = append(res.Clusters, clusterProto(name))
	}
	return res, nil
}

// instances are the names of a project's instances that hold anything, in order.
func (e *Emulator) instances(project string) []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	names := map[string]bool{}
	for table := range e.tables {
		names[instanceOf(table)] = true
	}
	for instance := range e.profiles {
		names[instance] = true
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return !strings.HasPrefix(name, project+"/") })
	return slices.Sorted(maps.Keys(names))
}

func instanceProto(name string) *adminpb.Instance {
	return &adminpb.Instance{
		Name: name, DisplayName: name[strings.LastIndexByte(name, '/')+1:],
		State: adminpb.Instance_READY, Type: adminpb.Instance_PRODUCTION,
	}
}

func clusterProto(instance string) *adminpb.Cluster {
	project, _, _ := strings.Cut(instance, "/instances/")
	return &adminpb.Cluster{
		Name: instance + "/clusters/" + Cluster, Location: project + "/locations/" + zone,
		State: adminpb.Cluster_READY, ServeNodes: 1, DefaultStorageType: adminpb.StorageType_SSD,
	}
}
