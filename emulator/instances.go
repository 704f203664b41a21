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

// instance is an instance that has been created, changed or deleted. Every
// other one is as undeclared says. Its messages are replaced, never changed.
type instance struct {
	info     *adminpb.Instance
	clusters map[string]*adminpb.Cluster // by id
	deleted  bool                        // it is gone until it is created again
}

// undeclared is an instance that no one has created: it has one cluster.
func undeclared(name string) *instance {
	return &instance{
		info: &adminpb.Instance{
			Name: name, DisplayName: lastOf(name),
			State: adminpb.Instance_READY, Type: adminpb.Instance_PRODUCTION,
		},
		clusters: map[string]*adminpb.Cluster{Cluster: {
			Name: name + "/clusters/" + Cluster, Location: projectOf(name) + "/locations/" + zone,
			State: adminpb.Cluster_READY, ServeNodes: 1, DefaultStorageType: adminpb.StorageType_SSD,
		}},
	}
}

// zone is the location of the cluster of an instance that was not created.
const zone = "emulator-a"

// instance finds an instance by name. The caller holds e.mu.
func (e *Emulator) instance(name string) (*instance, error) {
	i := e.instances[name]
	if i == nil && !e.opts.StrictInstances {
		return undeclared(name), nil
	}
	if i == nil || i.deleted {
		return nil, status.Errorf(codes.NotFound, "Instance not found: %s", name)
	}
	return i, nil
}

// changeInstance replaces an instance by what f makes of a copy of it.
func (e *Emulator) changeInstance(name string, f func(i *instance) error) (*instance, error) {
	locked := func() (*instance, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		old, err := e.instance(name)
		if err != nil {
			return nil, err
		}
		i := &instance{info: proto.Clone(old.info).(*adminpb.Instance), clusters: maps.Clone(old.clusters)}
		if err := f(i); err != nil {
			return nil, err
		}
		e.instances[name] = i
		e.journalInstance(name, i)
		return i, nil
	}
	i, err := locked()
	if err != nil {
		return nil, err
	}
	return i, e.durable(e.appended())
}

var (
	// newInstanceID is the pattern of instance.proto.
	newInstanceID = regexp.MustCompile(`^[a-z][-a-z0-9]+[a-z0-9]$`)
	labelKey      = regexp.MustCompile(`^[\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62}$`)
	labelValue    = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)
)

// maxLabels is how many labels an instance may have, and maxLabelBytes how
// long their keys and values may be (instance.proto).
const (
	maxLabels     = 64
	maxLabelBytes = 127
)

// CreateInstance makes an instance and its clusters.
func (a *instanceAdmin) CreateInstance(_ context.Context, req *adminpb.CreateInstanceRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(projectName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if !newInstanceID.MatchString(req.GetInstanceId()) {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'instance_id' : %q must match [a-z][a-z0-9\\-]+[a-z0-9]", req.GetInstanceId())
	}
	name := req.Parent + "/instances/" + req.InstanceId
	i, err := newInstance(name, req, began)
	if err != nil {
		return nil, err
	}
	if err := a.e.addInstance(name, i); err != nil {
		return nil, err
	}
	return a.e.done(name, i.info, &adminpb.CreateInstanceMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

func newInstance(name string, req *adminpb.CreateInstanceRequest, now *timestamppb.Timestamp) (*instance, error) {
	if req.GetInstance() == nil {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'instance' : must be set")
	}
	info := proto.Clone(req.Instance).(*adminpb.Instance)
	info.Name, info.State, info.CreateTime, info.Tags = name, adminpb.Instance_READY, now, nil // tags are for input only
	if err := checkInstanceInfo(info); err != nil {
		return nil, err
	}
	if len(req.Clusters) == 0 {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'clusters' : an instance needs at least one cluster")
	}
	i := &instance{info: info, clusters: map[string]*adminpb.Cluster{}}
	for _, id := range slices.Sorted(maps.Keys(req.Clusters)) {
		if err := i.addCluster(id, req.Clusters[id]); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// checkInstanceInfo checks what a client may set and fills in the type.
func checkInstanceInfo(info *adminpb.Instance) error {
	if info.DisplayName == "" {
		return status.Error(codes.InvalidArgument, "Error in field 'instance.display_name' : must be set")
	}
	if info.Type == adminpb.Instance_TYPE_UNSPECIFIED {
		info.Type = adminpb.Instance_PRODUCTION
	}
	if len(info.Labels) > maxLabels {
		return status.Errorf(codes.InvalidArgument, "Error in field 'instance.labels' : at most %d labels", maxLabels)
	}
	for k, v := range info.Labels {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) || len(k) > maxLabelBytes || len(v) > maxLabelBytes {
			return status.Errorf(codes.InvalidArgument, "Error in field 'instance.labels' : a key must match %s and a value %s, each under 128 bytes", labelKey, labelValue)
		}
	}
	return nil
}

func (e *Emulator) addInstance(name string, i *instance) error {
	locked := func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if old := e.instances[name]; old != nil && !old.deleted || old == nil && e.holds(name) {
			return status.Errorf(codes.AlreadyExists, "Instance already exists: %s", name)
		}
		e.instances[name] = i
		e.journalInstance(name, i)
		// It stays as it is now, whatever clusters come later.
		e.profiles[name] = map[string]*adminpb.AppProfile{defaultProfile: newDefaultProfile(i)}
		e.journalProfiles(name, e.profiles[name])
		return nil
	}
	if err := locked(); err != nil {
		return err
	}
	return e.durable(e.appended())
}

// GetInstance describes an instance.
func (a *instanceAdmin) GetInstance(_ context.Context, req *adminpb.GetInstanceRequest) (*adminpb.Instance, error) {
	if err := checkName(instanceName, "name", req.GetName()); err != nil {
		return nil, err
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	i, err := a.e.instance(req.Name)
	if err != nil {
		return nil, err
	}
	return i.info, nil
}

// ListInstances lists the instances of a project that were created or hold
// anything, on one page: page tokens are ignored, as
// bigtable_instance_admin.proto says.
func (a *instanceAdmin) ListInstances(_ context.Context, req *adminpb.ListInstancesRequest) (*adminpb.ListInstancesResponse, error) {
	if err := checkName(projectName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	res := &adminpb.ListInstancesResponse{}
	for _, i := range a.e.instancesOf(req.Parent) {
		res.Instances = append(res.Instances, i.info)
	}
	return res, nil
}

// instancesOf are the instances of a project that were created or hold
// anything, in order of name. The caller holds e.mu.
func (e *Emulator) instancesOf(project string) []*instance {
	names := map[string]bool{}
	for name := range e.instances {
		names[name] = true
	}
	for table := range e.tables {
		names[instanceOf(table)] = true
	}
	for name := range e.profiles {
		names[name] = true
	}
	var out []*instance
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if i, err := e.instance(name); err == nil && projectOf(name) == project {
			out = append(out, i)
		}
	}
	return out
}

// holds reports whether an instance has tables or app profiles. The caller
// holds e.mu.
func (e *Emulator) holds(name string) bool {
	if e.profiles[name] != nil {
		return true
	}
	for table := range e.tables {
		if instanceOf(table) == name {
			return true
		}
	}
	return false
}

// UpdateInstance replaces what may change of an instance: its display name,
// type and labels.
func (a *instanceAdmin) UpdateInstance(_ context.Context, req *adminpb.Instance) (*adminpb.Instance, error) {
	if err := checkName(instanceName, "name", req.GetName()); err != nil {
		return nil, err
	}
	i, err := a.e.changeInstance(req.Name, func(i *instance) error {
		return updateInstance(i.info, req, []string{"display_name", "type", "labels"})
	})
	if err != nil {
		return nil, err
	}
	return i.info, nil
}

// PartialUpdateInstance changes the fields that the mask names.
func (a *instanceAdmin) PartialUpdateInstance(_ context.Context, req *adminpb.PartialUpdateInstanceRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(instanceName, "instance.name", req.GetInstance().GetName()); err != nil {
		return nil, err
	}
	if err := checkMask(req.UpdateMask.GetPaths()); err != nil {
		return nil, err
	}
	i, err := a.e.changeInstance(req.Instance.Name, func(i *instance) error {
		return updateInstance(i.info, req.Instance, req.UpdateMask.Paths)
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(req.Instance.Name, i.info, &adminpb.UpdateInstanceMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

func updateInstance(info, update *adminpb.Instance, paths []string) error {
	for _, path := range paths {
		switch path {
		case "display_name":
			info.DisplayName = update.DisplayName
		case "type":
			info.Type = update.Type
		case "labels":
			info.Labels = maps.Clone(update.Labels)
		case "edition":
			info.Edition = update.Edition
		default:
			return unknownPath(path)
		}
	}
	return checkInstanceInfo(info)
}

// checkMask refuses an update that does not say what it updates.
func checkMask(paths []string) error {
	if len(paths) == 0 {
		return status.Error(codes.InvalidArgument, "Error in field 'update_mask' : A non-empty 'update_mask' must be specified")
	}
	return nil
}

func unknownPath(path string) error {
	return status.Errorf(codes.InvalidArgument, "Error in field 'update_mask' : the path %q cannot be updated", path)
}

// DeleteInstance deletes an instance and all that is in it. It is refused if
// the instance has backups, or a table or view that is protected.
func (a *instanceAdmin) DeleteInstance(_ context.Context, req *adminpb.DeleteInstanceRequest) (*emptypb.Empty, error) {
	if err := checkName(instanceName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if err := a.e.deleteInstance(req.Name); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, a.e.durable(a.e.appended())
}

func (e *Emulator) deleteInstance(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.instance(name); err != nil {
		return err
	}
	if b := e.backupIn(name + "/"); b != "" {
		return status.Errorf(codes.FailedPrecondition, "The instance has backups, which must be deleted first: %s", b)
	}
	for table, t := range e.tables {
		if instanceOf(table) != name {
			continue
		}
		if err := e.deletable(t); err != nil {
			return err
		}
	}
	i := &instance{deleted: true}
	e.dropInstance(name, i)
	e.journalInstance(name, i)
	return nil
}

// dropInstance forgets an instance and all that is in it. The caller holds
// e.mu for writing.
func (e *Emulator) dropInstance(name string, i *instance) {
	e.instances[name] = i
	delete(e.profiles, name)
	for table, t := range e.tables {
		if instanceOf(table) == name {
			e.dropTable(t)
		}
	}
	e.dropPolicies(name)
}

// projectOf is the project of a well-formed resource name.
func projectOf(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// lastOf is the id at the end of a resource name.
func lastOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
