package emulator

import (
	"context"
	"encoding/hex"
	"hash/fnv"
	"maps"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func viewNotFound(name string) error {
	return status.Errorf(codes.NotFound, "Authorized view not found: %s", name)
}

func protectedView(name string) error {
	return status.Errorf(codes.FailedPrecondition, "The authorized view is protected against deletion: %s", name)
}

// contentEtag is a hash of a message, which must be without its etag.
func contentEtag(m proto.Message) string {
	h := fnv.New64a()
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // a valid message marshals
	h.Write(b)                                                   // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// newViewInfo is an authorized view in the form that is stored.
func newViewInfo(name string, p *adminpb.AuthorizedView) *adminpb.AuthorizedView {
	v := proto.Clone(p).(*adminpb.AuthorizedView)
	v.Name, v.Etag = name, ""
	v.Etag = contentEtag(v)
	return v
}

// CreateAuthorizedView makes an authorized view of a table.
func (a *tableAdmin) CreateAuthorizedView(_ context.Context, req *adminpb.CreateAuthorizedViewRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(tableName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if id := req.GetAuthorizedViewId(); !resourceID.MatchString(id) || len(id) > a.e.limits.TableIDBytes {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'authorized_view_id' : %q must match [_a-zA-Z0-9][-_.a-zA-Z0-9]* and have at most %d characters", id, a.e.limits.TableIDBytes)
	}
	if req.GetAuthorizedView().GetSubsetView() == nil {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'authorized_view' : subset_view must be set")
	}
	info := newViewInfo(req.Parent+"/authorizedViews/"+req.AuthorizedViewId, req.AuthorizedView)
	err := a.e.change(req.Parent, func(s *session) error {
		if s.t.views[req.AuthorizedViewId] != nil {
			return status.Errorf(codes.AlreadyExists, "Authorized view already exists: %s", info.Name)
		}
		s.setView(info)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(info.Name, info, &adminpb.CreateAuthorizedViewMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

// setView adds or replaces a view and journals it.
func (s *session) setView(info *adminpb.AuthorizedView) {
	s.t.setView(info)
	s.e.journalView(info.Name, info)
}

func (t *table) setView(info *adminpb.AuthorizedView) {
	views := maps.Clone(t.views)
	if views == nil {
		views = map[string]*view{}
	}
	views[lastOf(info.Name)] = newView(info)
	t.views = views
}

func (t *table) dropView(id string) {
	views := maps.Clone(t.views)
	delete(views, id)
	t.views = views
}

// viewOfTable finds a view by name.
func (e *Emulator) viewOfTable(name string) (*view, error) {
	parent, _ := parentOf(name)
	t, err := e.table(parent)
	if err != nil {
		return nil, err
	}
	return t.authorizedView(name)
}

func (t *table) authorizedView(name string) (*view, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.viewLocked(name)
}

// viewLocked is like authorizedView. The caller holds t.mu.
func (t *table) viewLocked(name string) (*view, error) {
	if v := t.views[lastOf(name)]; v != nil {
		return v, nil
	}
	return nil, viewNotFound(name)
}

// GetAuthorizedView describes an authorized view.
func (a *tableAdmin) GetAuthorizedView(_ context.Context, req *adminpb.GetAuthorizedViewRequest) (*adminpb.AuthorizedView, error) {
	if err := checkName(viewName, "name", req.GetName()); err != nil {
		return nil, err
	}
	v, err := a.e.viewOfTable(req.Name)
	if err != nil {
		return nil, err
	}
	if req.View == adminpb.AuthorizedView_NAME_ONLY {
		return &adminpb.AuthorizedView{Name: req.Name}, nil
	}
	return v.info, nil
}

// ListAuthorizedViews lists a table's authorized views in order of name, by
// default only their names.
func (a *tableAdmin) ListAuthorizedViews(_ context.Context, req *adminpb.ListAuthorizedViewsRequest) (*adminpb.ListAuthorizedViewsResponse, error) {
	if err := checkName(tableName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	t, err := a.e.table(req.Parent)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	views := t.views
	t.mu.Unlock()
	names := make([]string, 0, len(views))
	for _, id := range slices.Sorted(maps.Keys(views)) {
		names = append(names, req.Parent+"/authorizedViews/"+id)
	}
	names, next, err := page(names, req.Parent+"/authorizedViews/", req.PageSize, req.PageToken)
	if err != nil {
		return nil, err
	}
	res := &adminpb.ListAuthorizedViewsResponse{NextPageToken: next}
	for _, name := range names {
		info := views[lastOf(name)].info
		if req.View == adminpb.AuthorizedView_NAME_ONLY || req.View == adminpb.AuthorizedView_RESPONSE_VIEW_UNSPECIFIED {
			info = &adminpb.AuthorizedView{Name: name}
		}
		res.AuthorizedViews = append(res.AuthorizedViews, info)
	}
	return res, nil
}

// UpdateAuthorizedView changes the fields that the mask names; without one,
// those that are set in the request.
func (a *tableAdmin) UpdateAuthorizedView(_ context.Context, req *adminpb.UpdateAuthorizedViewRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	name := req.GetAuthorizedView().GetName()
	if err := checkName(viewName, "authorized_view.name", name); err != nil {
		return nil, err
	}
	parent, _ := parentOf(name)
	var info *adminpb.AuthorizedView
	err := a.e.change(parent, func(s *session) error {
		old, err := s.t.viewLocked(name)
		if err != nil {
			return err
		}
		if err := checkEtag(req.AuthorizedView.Etag, old.info.Etag); err != nil {
			return err
		}
		if info, err = updatedView(old.info, req); err == nil {
			s.setView(info)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(name, info, &adminpb.UpdateAuthorizedViewMetadata{
		OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.New(a.e.clock.now()),
	})
}

// checkEtag refuses an etag that is given and is not the resource's.
func checkEtag(given, own string) error {
	if given != "" && given != own {
		return status.Error(codes.Aborted, "The resource has changed: its etag differs")
	}
	return nil
}

func updatedView(old *adminpb.AuthorizedView, req *adminpb.UpdateAuthorizedViewRequest) (*adminpb.AuthorizedView, error) {
	update := req.AuthorizedView
	paths := req.GetUpdateMask().GetPaths()
	switch {
	case len(paths) == 1 && paths[0] == "*":
		paths = []string{"subset_view", "deletion_protection"}
	case len(paths) == 0:
		if update.GetSubsetView() != nil {
			paths = append(paths, "subset_view")
		}
		if update.DeletionProtection {
			paths = append(paths, "deletion_protection")
		}
	}
	p := proto.Clone(old).(*adminpb.AuthorizedView)
	for _, path := range paths {
		switch path {
		case "deletion_protection":
			p.DeletionProtection = update.DeletionProtection
		case "subset_view":
			p.AuthorizedView = update.AuthorizedView
		case "subset_view.row_prefixes":
			p.GetSubsetView().RowPrefixes = update.GetSubsetView().GetRowPrefixes()
		case "subset_view.family_subsets":
			p.GetSubsetView().FamilySubsets = update.GetSubsetView().GetFamilySubsets()
		default:
			return nil, unknownPath(path)
		}
	}
	if p.GetSubsetView() == nil {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'authorized_view' : subset_view must be set")
	}
	return newViewInfo(old.Name, p), nil
}

// DeleteAuthorizedView deletes an authorized view that is not protected.
func (a *tableAdmin) DeleteAuthorizedView(_ context.Context, req *adminpb.DeleteAuthorizedViewRequest) (*emptypb.Empty, error) {
	if err := checkName(viewName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if err := a.e.deleteView(req); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, a.e.durable(a.e.appended())
}

func (e *Emulator) deleteView(req *adminpb.DeleteAuthorizedViewRequest) error {
	return e.deletePart(req.Name, func(t *table) error {
		v, err := t.viewLocked(req.Name)
		if err != nil {
			return err
		}
		if err := checkEtag(req.Etag, v.info.Etag); err != nil {
			return err
		}
		if v.info.DeletionProtection {
			return protectedView(req.Name)
		}
		t.dropView(lastOf(req.Name))
		e.journalView(req.Name, nil)
		return nil
	})
}

// deletePart deletes a view or bundle of a table, with its policy. f drops and
// journals it, with all locks held.
func (e *Emulator) deletePart(name string, f func(t *table) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	parent, _ := parentOf(name)
	t := e.tables[parent]
	if t == nil {
		return tableNotFound(parent)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := f(t); err != nil {
		return err
	}
	e.dropPolicies(name)
	return nil
}
