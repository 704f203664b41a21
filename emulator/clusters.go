package emulator

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Cluster is the id of the one cluster of an instance that was not created,
// and the source of changes unless an app profile routes them to another.
const Cluster = "cluster"

var (
	// newClusterID is the pattern of instance.proto. Google's tests use ids that
	// are longer than the 30 characters that the documentation allows.
	newClusterID = regexp.MustCompile(`^[a-z][-a-z0-9]*$`)
	locationName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+$`)
)

// addCluster adds a cluster in the form that is stored.
func (i *instance) addCluster(id string, p *adminpb.Cluster) error {
	if !newClusterID.MatchString(id) {
		return status.Errorf(codes.InvalidArgument, "Error in field 'cluster_id' : %q must match [a-z][-a-z0-9]*", id)
	}
	if i.clusters[id] != nil {
		return status.Errorf(codes.AlreadyExists, "Cluster already exists: %s/clusters/%s", i.info.Name, id)
	}
	if !locationName.MatchString(p.GetLocation()) {
		return status.Errorf(codes.InvalidArgument, "Error in field 'cluster.location' : must have the form projects/{project}/locations/{zone}, not %q", p.GetLocation())
	}
	for _, other := range i.clusters {
		if lastOf(other.Location) == lastOf(p.Location) {
			return status.Errorf(codes.InvalidArgument, "Error in field 'cluster.location' : the instance has a cluster in this zone: %s", other.Name)
		}
	}
	c := proto.Clone(p).(*adminpb.Cluster)
	c.Name, c.State = i.info.Name+"/clusters/"+id, adminpb.Cluster_READY
	if c.DefaultStorageType == adminpb.StorageType_STORAGE_TYPE_UNSPECIFIED {
		c.DefaultStorageType = adminpb.StorageType_SSD
	}
	if err := normalNodes(c); err != nil {
		return err
	}
	i.clusters[id] = c
	return nil
}

// autoscaling is a cluster's autoscaling configuration, nil if it has none.
func autoscaling(c *adminpb.Cluster) *adminpb.Cluster_ClusterAutoscalingConfig {
	return c.GetClusterConfig().GetClusterAutoscalingConfig()
}

// normalNodes checks how many nodes a cluster has. Autoscaling starts with
// its minimum; a cluster that says nothing gets one node.
func normalNodes(c *adminpb.Cluster) error {
	if c.ServeNodes < 0 {
		return status.Error(codes.InvalidArgument, "Error in field 'cluster.serve_nodes' : must not be negative")
	}
	scaling := autoscaling(c)
	if scaling == nil {
		c.Config = nil
		c.ServeNodes = max(1, c.ServeNodes)
		return nil
	}
	limits, targets := scaling.GetAutoscalingLimits(), scaling.GetAutoscalingTargets()
	if limits.GetMinServeNodes() < 1 || limits.GetMaxServeNodes() < limits.GetMinServeNodes() {
		return status.Error(codes.InvalidArgument, "Error in field 'autoscaling_limits' : min_serve_nodes must be at least 1 and at most max_serve_nodes")
	}
	if cpu := targets.GetCpuUtilizationPercent(); cpu < 10 || cpu > 80 {
		return status.Error(codes.InvalidArgument, "Error in field 'cpu_utilization_percent' : must be between 10 and 80")
	}
	least, most := int32(2560), int32(5120)
	if c.DefaultStorageType == adminpb.StorageType_HDD {
		least, most = 8192, 16384
	}
	if targets.StorageUtilizationGibPerNode == 0 {
		targets.StorageUtilizationGibPerNode = least
	}
	if gib := targets.StorageUtilizationGibPerNode; gib < least || gib > most {
		return status.Errorf(codes.InvalidArgument, "Error in field 'storage_utilization_gib_per_node' : must be between %d and %d", least, most)
	}
	c.ServeNodes = min(max(c.ServeNodes, limits.MinServeNodes), limits.MaxServeNodes)
	return nil
}

// GetCluster describes a cluster of an instance.
func (a *instanceAdmin) GetCluster(_ context.Context, req *adminpb.GetClusterRequest) (*adminpb.Cluster, error) {
	if err := checkName(clusterName, "name", req.GetName()); err != nil {
		return nil, err
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	return a.e.cluster(req.Name)
}

// cluster finds a cluster by name. The caller holds e.mu.
func (e *Emulator) cluster(name string) (*adminpb.Cluster, error) {
	i, err := e.instance(instanceOf(name))
	if err != nil {
		return nil, err
	}
	if c := i.clusters[lastOf(name)]; c != nil {
		return c, nil
	}
	return nil, clusterNotFound(name)
}

func clusterNotFound(name string) error {
	return status.Errorf(codes.NotFound, "Cluster not found: %s", name)
}

// ListClusters lists the clusters of an instance or, if the instance is "-",
// those of all instances that ListInstances lists.
func (a *instanceAdmin) ListClusters(_ context.Context, req *adminpb.ListClustersRequest) (*adminpb.ListClustersResponse, error) {
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	var from []*instance
	if project, every := strings.CutSuffix(req.Parent, "/instances/-"); every {
		from = a.e.instancesOf(project)
	} else {
		i, err := a.e.instance(req.Parent)
		if err != nil {
			return nil, err
		}
		from = append(from, i)
	}
	res := &adminpb.ListClustersResponse{}
	for _, i := range from {
		for _, id := range slices.Sorted(maps.Keys(i.clusters)) {
			res.Clusters = append(res.Clusters, i.clusters[id])
		}
	}
	return res, nil
}

// CreateCluster adds a cluster to an instance. Every table is in every
// cluster at once: all of them are the same rows.
func (a *instanceAdmin) CreateCluster(_ context.Context, req *adminpb.CreateClusterRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	i, err := a.e.changeInstance(req.Parent, func(i *instance) error { return i.addCluster(req.ClusterId, req.GetCluster()) })
	if err != nil {
		return nil, err
	}
	c := i.clusters[req.ClusterId]
	return a.e.done(c.Name, c, &adminpb.CreateClusterMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

// changeCluster replaces a cluster by what f makes of a copy of it.
func (e *Emulator) changeCluster(name string, f func(c *adminpb.Cluster) error) (*adminpb.Cluster, error) {
	id := lastOf(name)
	i, err := e.changeInstance(instanceOf(name), func(i *instance) error {
		old := i.clusters[id]
		if old == nil {
			return clusterNotFound(name)
		}
		c := proto.Clone(old).(*adminpb.Cluster)
		if err := f(c); err != nil {
			return err
		}
		i.clusters[id] = c
		return normalNodes(c)
	})
	if err != nil {
		return nil, err
	}
	return i.clusters[id], nil
}

// UpdateCluster sets the number of a cluster's nodes. It leaves autoscaling
// as it is, as bigtable_instance_admin.proto says.
func (a *instanceAdmin) UpdateCluster(_ context.Context, req *adminpb.Cluster) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(clusterName, "name", req.GetName()); err != nil {
		return nil, err
	}
	c, err := a.e.changeCluster(req.Name, func(c *adminpb.Cluster) error {
		if req.ServeNodes < 1 {
			return status.Error(codes.InvalidArgument, "Error in field 'serve_nodes' : must be at least 1")
		}
		c.ServeNodes = req.ServeNodes
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(c.Name, c, &adminpb.UpdateClusterMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

// PartialUpdateCluster changes the fields that the mask names.
func (a *instanceAdmin) PartialUpdateCluster(_ context.Context, req *adminpb.PartialUpdateClusterRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(clusterName, "cluster.name", req.GetCluster().GetName()); err != nil {
		return nil, err
	}
	if err := checkMask(req.UpdateMask.GetPaths()); err != nil {
		return nil, err
	}
	c, err := a.e.changeCluster(req.Cluster.Name, func(c *adminpb.Cluster) error {
		return updateCluster(c, req.Cluster, req.UpdateMask.Paths)
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(c.Name, c, &adminpb.PartialUpdateClusterMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

func updateCluster(c, update *adminpb.Cluster, paths []string) error {
	set := autoscaling(update)
	for _, path := range paths {
		switch {
		case path == "serve_nodes":
			c.ServeNodes = update.ServeNodes
		case path == "cluster_config" || path == "cluster_config.cluster_autoscaling_config":
			setAutoscaling(c, set)
		case strings.HasPrefix(path, "cluster_config.cluster_autoscaling_config.autoscaling_limits"):
			setAutoscaling(c, &adminpb.Cluster_ClusterAutoscalingConfig{
				AutoscalingLimits: set.GetAutoscalingLimits(), AutoscalingTargets: autoscaling(c).GetAutoscalingTargets(),
			})
		case strings.HasPrefix(path, "cluster_config.cluster_autoscaling_config.autoscaling_targets"):
			setAutoscaling(c, &adminpb.Cluster_ClusterAutoscalingConfig{
				AutoscalingLimits: autoscaling(c).GetAutoscalingLimits(), AutoscalingTargets: set.GetAutoscalingTargets(),
			})
		default:
			return unknownPath(path)
		}
	}
	return nil
}

func setAutoscaling(c *adminpb.Cluster, s *adminpb.Cluster_ClusterAutoscalingConfig) {
	c.Config = nil
	if s != nil {
		c.Config = &adminpb.Cluster_ClusterConfig_{ClusterConfig: &adminpb.Cluster_ClusterConfig{
			ClusterAutoscalingConfig: proto.Clone(s).(*adminpb.Cluster_ClusterAutoscalingConfig),
		}}
	}
}

// DeleteCluster deletes a cluster that is not the last one, has no backups
// and is not the one that an app profile routes to.
func (a *instanceAdmin) DeleteCluster(_ context.Context, req *adminpb.DeleteClusterRequest) (*emptypb.Empty, error) {
	if err := checkName(clusterName, "name", req.GetName()); err != nil {
		return nil, err
	}
	id := lastOf(req.Name)
	_, err := a.e.changeInstance(instanceOf(req.Name), func(i *instance) error {
		if i.clusters[id] == nil {
			return clusterNotFound(req.Name)
		}
		if len(i.clusters) == 1 {
			return status.Error(codes.FailedPrecondition, "The last cluster of an instance cannot be deleted")
		}
		if b := a.e.backupIn(req.Name + "/"); b != "" {
			return status.Errorf(codes.FailedPrecondition, "The cluster has backups, which must be deleted first: %s", b)
		}
		for _, p := range a.e.profiles[i.info.Name] {
			if p.GetSingleClusterRouting().GetClusterId() == id || slices.Contains(p.GetMultiClusterRoutingUseAny().GetClusterIds(), id) {
				return status.Errorf(codes.FailedPrecondition, "An app profile routes to the cluster: %s", p.Name)
			}
		}
		delete(i.clusters, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// clusterStates are the states of a table in an instance's clusters; with
// encryption they say how its data is encrypted there. The caller holds e.mu.
func (e *Emulator) clusterStates(name string, encryption bool) map[string]*adminpb.Table_ClusterState {
	i, err := e.instance(name)
	if err != nil {
		return nil
	}
	states := map[string]*adminpb.Table_ClusterState{}
	for id, c := range i.clusters {
		states[id] = &adminpb.Table_ClusterState{ReplicationState: adminpb.Table_ClusterState_READY}
		if encryption {
			states[id] = &adminpb.Table_ClusterState{EncryptionInfo: []*adminpb.EncryptionInfo{encryptionOf(c)}}
		}
	}
	return states
}

// encryptionOf is how data in a cluster is encrypted. The emulator encrypts
// nothing: it says what the service would say.
func encryptionOf(c *adminpb.Cluster) *adminpb.EncryptionInfo {
	if key := c.GetEncryptionConfig().GetKmsKeyName(); key != "" {
		return &adminpb.EncryptionInfo{
			EncryptionType: adminpb.EncryptionInfo_CUSTOMER_MANAGED_ENCRYPTION, KmsKeyVersion: key + "/cryptoKeyVersions/1",
			EncryptionStatus: statusOK,
		}
	}
	return &adminpb.EncryptionInfo{EncryptionType: adminpb.EncryptionInfo_GOOGLE_DEFAULT_ENCRYPTION}
}
