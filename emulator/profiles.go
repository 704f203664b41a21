package emulator

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// defaultProfile is the id of the profile that every instance has and that
// requests without one use. It routes to one cluster and allows single-row
// transactions, as that of a one-cluster instance does.
const defaultProfile = "default"

// Cluster is the id of the cluster that serves, and the source of changes
// unless an app profile routes them to another.
const Cluster = "emulator-c1"

// profile finds an app profile of an instance by id, "" for the default.
func (e *Emulator) profile(instance, id string) (*adminpb.AppProfile, error) {
	if id == "" {
		id = defaultProfile
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if p := e.instanceProfile(instance, id); p != nil {
		return p, nil
	}
	return nil, status.Errorf(codes.NotFound, "App profile not found: %s/appProfiles/%s", instance, id)
}

// instanceProfile is like profile, and nil if there is none. The caller holds e.mu.
func (e *Emulator) instanceProfile(instance, id string) *adminpb.AppProfile {
	profiles, known := e.profiles[instance]
	if !known && id == defaultProfile {
		return newDefaultProfile(instance)
	}
	return profiles[id]
}

// instanceProfiles are an instance's profiles, to be changed under e.mu.
func (e *Emulator) instanceProfiles(instance string) map[string]*adminpb.AppProfile {
	profiles := e.profiles[instance]
	if profiles == nil {
		profiles = map[string]*adminpb.AppProfile{defaultProfile: newDefaultProfile(instance)}
		e.profiles[instance] = profiles
	}
	return profiles
}

func newDefaultProfile(instance string) *adminpb.AppProfile {
	return withEtag(&adminpb.AppProfile{
		Name: instance + "/appProfiles/" + defaultProfile,
		RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{
			ClusterId: Cluster, AllowTransactionalWrites: true,
		}},
	})
}

// profileFor checks a table's name and finds the profile of a request to it.
func (e *Emulator) profileFor(table, profile, view string) (*adminpb.AppProfile, error) {
	if view != "" {
		return nil, status.Error(codes.Unimplemented, "authorized views are not served")
	}
	if err := checkName(tableName, "table_name", table); err != nil {
		return nil, err
	}
	return e.profile(instanceOf(table), profile)
}

// transactional finds the cluster that a conditional or read-modify-write
// request is routed to, if it may write. The service's text for a profile that does not allow
// them is from googleapis/google-cloud-python#10021.
func (e *Emulator) transactional(table, profile, view string) (cluster string, err error) {
	p, err := e.profileFor(table, profile, view)
	if err != nil {
		return "", err
	}
	if p.GetDataBoostIsolationReadOnly() == nil && !p.GetSingleClusterRouting().GetAllowTransactionalWrites() {
		return "", status.Error(codes.FailedPrecondition, "Single-row transactions are not allowed by this app profile")
	}
	_, cluster, err = e.writable(table, profile, view)
	return cluster, err
}

// instanceAdmin is google.bigtable.admin.v2.BigtableInstanceAdmin, of which app
// profiles are served, and reads of instances and clusters. What it does not define answers UNIMPLEMENTED.
type instanceAdmin struct {
	adminpb.UnimplementedBigtableInstanceAdminServer
	e *Emulator
}

// CreateAppProfile makes an app profile.
func (a *instanceAdmin) CreateAppProfile(_ context.Context, req *adminpb.CreateAppProfileRequest) (*adminpb.AppProfile, error) {
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if !resourceID.MatchString(req.GetAppProfileId()) {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'app_profile_id' : invalid id %q", req.GetAppProfileId())
	}
	p, err := normalProfile(req.GetAppProfile())
	if err != nil {
		return nil, err
	}
	p.Name = req.Parent + "/appProfiles/" + req.AppProfileId
	err = a.e.changeProfiles(req.Parent, func(profiles map[string]*adminpb.AppProfile) error {
		if profiles[req.AppProfileId] != nil {
			return status.Errorf(codes.AlreadyExists, "App profile already exists: %s", p.Name)
		}
		profiles[req.AppProfileId] = withEtag(p)
		return nil
	})
	return p, err
}

// changeProfiles runs f on an instance's profiles, by id, with all locks held.
func (e *Emulator) changeProfiles(instance string, f func(profiles map[string]*adminpb.AppProfile) error) error {
	locked := func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		profiles := e.instanceProfiles(instance)
		if err := f(profiles); err != nil {
			return err
		}
		e.journalProfiles(instance, profiles)
		return nil
	}
	if err := locked(); err != nil {
		return err
	}
	return e.durable(e.appended())
}

func splitProfile(name string) (instance, id string) {
	instance = instanceOf(name)
	return instance, strings.TrimPrefix(name, instance+"/appProfiles/")
}

// normalProfile checks a profile and brings it into the form that is stored.
func normalProfile(p *adminpb.AppProfile) (*adminpb.AppProfile, error) {
	if p.GetRoutingPolicy() == nil {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'routing_policy' : must be set")
	}
	p = proto.Clone(p).(*adminpb.AppProfile)
	if k, ok := p.Isolation.(*adminpb.AppProfile_Priority_); ok {
		//lint:ignore SA1019 the service still takes the deprecated spelling
		p.Isolation = &adminpb.AppProfile_StandardIsolation_{StandardIsolation: &adminpb.AppProfile_StandardIsolation{Priority: k.Priority}}
	}
	if p.GetDataBoostIsolationReadOnly() != nil {
		if p.GetSingleClusterRouting() == nil {
			return nil, status.Error(codes.InvalidArgument, "Data Boost needs single-cluster routing")
		}
		if p.GetSingleClusterRouting().AllowTransactionalWrites {
			return nil, status.Error(codes.InvalidArgument, "Data Boost is read-only: it cannot allow transactional writes")
		}
	}
	return p, nil
}

// withEtag sets the etag to a hash of the content.
func withEtag(p *adminpb.AppProfile) *adminpb.AppProfile {
	p.Etag = ""
	h := fnv.New64a()
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(p) // a valid message marshals
	h.Write(b)                                                   // never fails
	p.Etag = fmt.Sprintf("%016x", h.Sum64())
	return p
}

// GetAppProfile returns an app profile.
func (a *instanceAdmin) GetAppProfile(_ context.Context, req *adminpb.GetAppProfileRequest) (*adminpb.AppProfile, error) {
	if err := checkName(profileName, "name", req.GetName()); err != nil {
		return nil, err
	}
	return a.e.profile(splitProfile(req.Name))
}

// ListAppProfiles lists an instance's app profiles, on one page.
func (a *instanceAdmin) ListAppProfiles(_ context.Context, req *adminpb.ListAppProfilesRequest) (*adminpb.ListAppProfilesResponse, error) {
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if req.PageSize < 0 {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'page_size' : must be >= 0")
	}
	if req.PageToken != "" {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'page_token' : it is not of an answer to this request")
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	profiles := a.e.profiles[req.Parent]
	if profiles == nil {
		profiles = map[string]*adminpb.AppProfile{defaultProfile: newDefaultProfile(req.Parent)}
	}
	res := &adminpb.ListAppProfilesResponse{}
	for _, id := range slices.Sorted(maps.Keys(profiles)) {
		res.AppProfiles = append(res.AppProfiles, profiles[id])
	}
	return res, nil
}

// UpdateAppProfile changes the fields that the mask names, all without one.
func (a *instanceAdmin) UpdateAppProfile(_ context.Context, req *adminpb.UpdateAppProfileRequest) (*longrunningpb.Operation, error) {
	if err := checkName(profileName, "name", req.GetAppProfile().GetName()); err != nil {
		return nil, err
	}
	instance, id := splitProfile(req.AppProfile.Name)
	var merged *adminpb.AppProfile
	err := a.e.changeProfiles(instance, func(profiles map[string]*adminpb.AppProfile) (err error) {
		old := profiles[id]
		if old == nil {
			return status.Errorf(codes.NotFound, "App profile not found: %s", req.AppProfile.Name)
		}
		if etag := req.AppProfile.Etag; etag != "" && etag != old.Etag {
			return status.Error(codes.Aborted, "The app profile has changed: its etag differs")
		}
		if merged, err = mergeProfile(old, req); err != nil {
			return err
		}
		if merged, err = normalProfile(merged); err != nil {
			return err
		}
		profiles[id] = withEtag(merged)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return doneOperation(merged, &adminpb.UpdateAppProfileMetadata{})
}

func mergeProfile(old *adminpb.AppProfile, req *adminpb.UpdateAppProfileRequest) (*adminpb.AppProfile, error) {
	paths := req.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		return req.AppProfile, nil
	}
	p := proto.Clone(old).(*adminpb.AppProfile)
	for _, path := range paths {
		switch field, _, _ := strings.Cut(path, "."); field {
		case "description":
			p.Description = req.AppProfile.Description
		case "routing_policy", "multi_cluster_routing_use_any", "single_cluster_routing":
			p.RoutingPolicy = req.AppProfile.RoutingPolicy
		case "isolation", "priority", "standard_isolation", "data_boost_isolation_read_only":
			p.Isolation = req.AppProfile.Isolation
		default:
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'update_mask' : unknown path %q", path)
		}
	}
	return p, nil
}

// DeleteAppProfile deletes an app profile; the default one only with
// ignore_warnings.
func (a *instanceAdmin) DeleteAppProfile(_ context.Context, req *adminpb.DeleteAppProfileRequest) (*emptypb.Empty, error) {
	if err := checkName(profileName, "name", req.GetName()); err != nil {
		return nil, err
	}
	instance, id := splitProfile(req.Name)
	err := a.e.changeProfiles(instance, func(profiles map[string]*adminpb.AppProfile) error {
		if profiles[id] == nil {
			return status.Errorf(codes.NotFound, "App profile not found: %s", req.Name)
		}
		if id == defaultProfile && !req.IgnoreWarnings {
			return status.Error(codes.FailedPrecondition, "Requests without a profile use the default one: set ignore_warnings to delete it")
		}
		delete(profiles, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// doneOperation is a long-running operation that has ended already.
func doneOperation(result, meta proto.Message) (*longrunningpb.Operation, error) {
	response, err := anypb.New(result)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "packing an operation's result: %v", err)
	}
	metadata, err := anypb.New(meta)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "packing an operation's metadata: %v", err)
	}
	return &longrunningpb.Operation{
		Name:     "operations/done",
		Metadata: metadata,
		Done:     true,
		Result:   &longrunningpb.Operation_Response{Response: response},
	}, nil
}
