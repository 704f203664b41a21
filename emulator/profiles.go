package emulator

import (
	"context"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// defaultProfile is the id of the profile that every instance has and that
// requests without one use.
const defaultProfile = "default"

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
	return e.instanceProfiles(instance)[id]
}

// instanceProfiles are an instance's profiles by id; if none was ever set, the
// default one. None has an etag, since the service sends none either. The
// caller holds e.mu and does not change the map.
func (e *Emulator) instanceProfiles(name string) map[string]*adminpb.AppProfile {
	if profiles := e.profiles[name]; profiles != nil {
		return profiles
	}
	i, err := e.instance(name)
	if err != nil {
		return nil
	}
	return map[string]*adminpb.AppProfile{defaultProfile: newDefaultProfile(i)}
}

// newDefaultProfile is the default profile of a new instance: it routes to its
// cluster or, if it has several, to any of them.
func newDefaultProfile(i *instance) *adminpb.AppProfile {
	p := &adminpb.AppProfile{Name: i.info.Name + "/appProfiles/" + defaultProfile, Isolation: highPriority()}
	id := Cluster
	if len(i.clusters) == 1 {
		id = slices.Collect(maps.Keys(i.clusters))[0]
	}
	if i.clusters[id] == nil {
		p.RoutingPolicy = &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}}
		return p
	}
	p.RoutingPolicy = &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{
		ClusterId: id, AllowTransactionalWrites: true,
	}}
	return p
}

// highPriority is the isolation of a profile that names none.
func highPriority() *adminpb.AppProfile_StandardIsolation_ {
	return &adminpb.AppProfile_StandardIsolation_{StandardIsolation: &adminpb.AppProfile_StandardIsolation{Priority: adminpb.AppProfile_PRIORITY_HIGH}}
}

// subject is what a data request is about: a table, or an authorized view of it.
type subject struct {
	table string
	view  string // "": the whole table
}

// subjectOf reads the names of a request, which names either the table or the
// view.
func subjectOf(table, view string) (subject, error) {
	if view == "" {
		return subject{table: table}, checkName(tableName, "table_name", table)
	}
	if err := checkName(viewName, "authorized_view_name", view); err != nil {
		return subject{}, err
	}
	parent, _ := parentOf(view)
	if table != "" && table != parent {
		return subject{}, status.Error(codes.InvalidArgument, "table_name and authorized_view_name name different tables")
	}
	return subject{parent, view}, nil
}

// find finds the table and the view, which is nil for the whole table.
func (s subject) find(e *Emulator) (*table, *view, error) {
	t, err := e.table(s.table)
	if err != nil || s.view == "" {
		return t, nil, err
	}
	v, err := t.authorizedView(s.view)
	return t, v, err
}

// profileFor finds the app profile of a request.
func (e *Emulator) profileFor(s subject, profile string) (*adminpb.AppProfile, error) {
	return e.profile(instanceOf(s.table), profile)
}

// transactional finds the cluster that a conditional or read-modify-write
// request is routed to, if it may write. The service's text for a profile that does not allow
// them is from googleapis/google-cloud-python#10021.
func (e *Emulator) transactional(s subject, profile string) (cluster string, err error) {
	p, err := e.profileFor(s, profile)
	if err != nil {
		return "", err
	}
	if p.GetDataBoostIsolationReadOnly() == nil && !p.GetSingleClusterRouting().GetAllowTransactionalWrites() {
		return "", status.Error(codes.FailedPrecondition, "Single-row transactions are not allowed by this app profile")
	}
	_, _, cluster, err = e.writable(s, profile)
	return cluster, err
}

// instanceAdmin is google.bigtable.admin.v2.BigtableInstanceAdmin. What it
// does not define answers UNIMPLEMENTED.
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
	p.Name, p.Etag = req.Parent+"/appProfiles/"+req.AppProfileId, ""
	err = a.e.changeProfiles(req.Parent, func(profiles map[string]*adminpb.AppProfile) error {
		if profiles[req.AppProfileId] != nil {
			return status.Errorf(codes.AlreadyExists, "App profile already exists: %s", p.Name)
		}
		if err := a.e.checkRouting(req.Parent, p); err != nil {
			return err
		}
		profiles[req.AppProfileId] = p
		return nil
	})
	return p, err
}

// changeProfiles runs f on an instance's profiles, by id, with all locks held.
func (e *Emulator) changeProfiles(instance string, f func(profiles map[string]*adminpb.AppProfile) error) error {
	locked := func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, err := e.instance(instance); err != nil {
			return err
		}
		profiles := maps.Clone(e.instanceProfiles(instance))
		if err := f(profiles); err != nil {
			return err
		}
		e.profiles[instance] = profiles
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
	if p.Isolation == nil {
		p.Isolation = highPriority()
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
	if _, err := a.e.instance(req.Parent); err != nil {
		return nil, err
	}
	profiles := a.e.instanceProfiles(req.Parent)
	res := &adminpb.ListAppProfilesResponse{}
	for _, id := range slices.Sorted(maps.Keys(profiles)) {
		res.AppProfiles = append(res.AppProfiles, profiles[id])
	}
	return res, nil
}

// checkRouting checks that an instance that was created has the clusters that
// a profile routes to. The caller holds e.mu.
func (e *Emulator) checkRouting(name string, p *adminpb.AppProfile) error {
	i := e.instances[name]
	if i == nil {
		return nil
	}
	ids := p.GetMultiClusterRoutingUseAny().GetClusterIds()
	if r := p.GetSingleClusterRouting(); r != nil {
		ids = []string{r.ClusterId}
	}
	for _, id := range ids {
		if i.clusters[id] == nil {
			return status.Errorf(codes.InvalidArgument, "Error in field 'routing_policy' : the instance has no cluster %q", id)
		}
	}
	return nil
}

// UpdateAppProfile changes the fields that the mask names.
func (a *instanceAdmin) UpdateAppProfile(_ context.Context, req *adminpb.UpdateAppProfileRequest) (*longrunningpb.Operation, error) {
	if err := checkName(profileName, "name", req.GetAppProfile().GetName()); err != nil {
		return nil, err
	}
	if err := checkMask(req.UpdateMask.GetPaths()); err != nil {
		return nil, err
	}
	instance, id := splitProfile(req.AppProfile.Name)
	var merged *adminpb.AppProfile
	err := a.e.changeProfiles(instance, func(profiles map[string]*adminpb.AppProfile) (err error) {
		old := profiles[id]
		if old == nil {
			return status.Errorf(codes.NotFound, "App profile not found: %s", req.AppProfile.Name)
		}
		if req.AppProfile.Etag != "" {
			return status.Error(codes.Aborted, "The etag is not the app profile's: it has none")
		}
		if merged, err = mergeProfile(old, req); err != nil {
			return err
		}
		if merged, err = normalProfile(merged); err != nil {
			return err
		}
		if err := a.e.checkRouting(instance, merged); err != nil {
			return err
		}
		profiles[id] = merged
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(merged.Name, merged, &adminpb.UpdateAppProfileMetadata{})
}

func mergeProfile(old *adminpb.AppProfile, req *adminpb.UpdateAppProfileRequest) (*adminpb.AppProfile, error) {
	p := proto.Clone(old).(*adminpb.AppProfile)
	for _, path := range req.UpdateMask.Paths {
		switch field, _, _ := strings.Cut(path, "."); field {
		case "description":
			p.Description = req.AppProfile.Description
		case "routing_policy", "multi_cluster_routing_use_any", "single_cluster_routing":
			p.RoutingPolicy = req.AppProfile.RoutingPolicy
		case "isolation", "priority", "standard_isolation", "data_boost_isolation_read_only":
			p.Isolation = req.AppProfile.Isolation
		default:
			return nil, unknownPath(path)
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
