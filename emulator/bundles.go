package emulator

import (
	"context"
	"maps"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Schema bundles are kept for SQL, which is not served: nothing reads them.

func bundleNotFound(name string) error {
	return status.Errorf(codes.NotFound, "Schema bundle not found: %s", name)
}

// newBundle is a bundle in the form that is stored.
func newBundle(name string, p *adminpb.SchemaBundle) (*adminpb.SchemaBundle, error) {
	descriptors := p.GetProtoSchema().GetProtoDescriptors()
	if len(descriptors) == 0 {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'schema_bundle' : proto_schema.proto_descriptors must be set")
	}
	if err := proto.Unmarshal(descriptors, &descriptorpb.FileDescriptorSet{}); err != nil {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'schema_bundle' : proto_schema.proto_descriptors is not a FileDescriptorSet")
	}
	b := proto.Clone(p).(*adminpb.SchemaBundle)
	b.Name, b.Etag = name, ""
	b.Etag = contentEtag(b)
	return b, nil
}

// CreateSchemaBundle keeps a schema bundle of a table.
func (a *tableAdmin) CreateSchemaBundle(_ context.Context, req *adminpb.CreateSchemaBundleRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(tableName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if id := req.GetSchemaBundleId(); !resourceID.MatchString(id) || len(id) > a.e.limits.TableIDBytes {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'schema_bundle_id' : %q must match [_a-zA-Z0-9][-_.a-zA-Z0-9]* and have at most %d characters", id, a.e.limits.TableIDBytes)
	}
	b, err := newBundle(req.Parent+"/schemaBundles/"+req.SchemaBundleId, req.GetSchemaBundle())
	if err != nil {
		return nil, err
	}
	err = a.e.change(req.Parent, func(s *session) error {
		if s.t.bundles[req.SchemaBundleId] != nil {
			return status.Errorf(codes.AlreadyExists, "Schema bundle already exists: %s", b.Name)
		}
		s.setBundle(b)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(b.Name, b, &adminpb.CreateSchemaBundleMetadata{
		Name: b.Name, StartTime: began, EndTime: timestamppb.New(a.e.clock.now()),
	})
}

func (s *session) setBundle(b *adminpb.SchemaBundle) {
	s.t.setBundle(b)
	s.e.journalBundle(b.Name, b)
}

func (t *table) setBundle(b *adminpb.SchemaBundle) {
	bundles := maps.Clone(t.bundles)
	if bundles == nil {
		bundles = map[string]*adminpb.SchemaBundle{}
	}
	bundles[lastOf(b.Name)] = b
	t.bundles = bundles
}

func (t *table) dropBundle(id string) {
	bundles := maps.Clone(t.bundles)
	delete(bundles, id)
	t.bundles = bundles
}

// UpdateSchemaBundle replaces a schema bundle.
func (a *tableAdmin) UpdateSchemaBundle(_ context.Context, req *adminpb.UpdateSchemaBundleRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	name := req.GetSchemaBundle().GetName()
	if err := checkName(bundleName, "schema_bundle.name", name); err != nil {
		return nil, err
	}
	for _, path := range req.GetUpdateMask().GetPaths() {
		if path != "proto_schema" && path != "proto_schema.proto_descriptors" && path != "*" {
			return nil, unknownPath(path)
		}
	}
	b, err := newBundle(name, req.SchemaBundle)
	if err != nil {
		return nil, err
	}
	parent, _ := parentOf(name)
	err = a.e.change(parent, func(s *session) error {
		old := s.t.bundles[lastOf(name)]
		if old == nil {
			return bundleNotFound(name)
		}
		if err := checkEtag(req.SchemaBundle.Etag, old.Etag); err != nil {
			return err
		}
		s.setBundle(b)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.e.done(name, b, &adminpb.UpdateSchemaBundleMetadata{
		Name: name, StartTime: began, EndTime: timestamppb.New(a.e.clock.now()),
	})
}

// GetSchemaBundle returns a schema bundle.
func (a *tableAdmin) GetSchemaBundle(_ context.Context, req *adminpb.GetSchemaBundleRequest) (*adminpb.SchemaBundle, error) {
	if err := checkName(bundleName, "name", req.GetName()); err != nil {
		return nil, err
	}
	parent, _ := parentOf(req.Name)
	bundles, err := a.e.bundlesOf(parent)
	if err != nil {
		return nil, err
	}
	if b := bundles[lastOf(req.Name)]; b != nil {
		return b, nil
	}
	return nil, bundleNotFound(req.Name)
}

func (e *Emulator) bundlesOf(table string) (map[string]*adminpb.SchemaBundle, error) {
	t, err := e.table(table)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bundles, nil
}

// ListSchemaBundles lists a table's schema bundles in order of name.
func (a *tableAdmin) ListSchemaBundles(_ context.Context, req *adminpb.ListSchemaBundlesRequest) (*adminpb.ListSchemaBundlesResponse, error) {
	if err := checkName(tableName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	bundles, err := a.e.bundlesOf(req.Parent)
	if err != nil {
		return nil, err
	}
	prefix := req.Parent + "/schemaBundles/"
	var names []string
	for _, id := range slices.Sorted(maps.Keys(bundles)) {
		names = append(names, prefix+id)
	}
	names, next, err := page(names, prefix, req.PageSize, req.PageToken)
	if err != nil {
		return nil, err
	}
	res := &adminpb.ListSchemaBundlesResponse{NextPageToken: next}
	for _, name := range names {
		res.SchemaBundles = append(res.SchemaBundles, bundles[lastOf(name)])
	}
	return res, nil
}

// DeleteSchemaBundle forgets a schema bundle.
func (a *tableAdmin) DeleteSchemaBundle(_ context.Context, req *adminpb.DeleteSchemaBundleRequest) (*emptypb.Empty, error) {
	if err := checkName(bundleName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if err := a.e.deleteBundle(req); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, a.e.durable(a.e.appended())
}

func (e *Emulator) deleteBundle(req *adminpb.DeleteSchemaBundleRequest) error {
	return e.deletePart(req.Name, func(t *table) error {
		b := t.bundles[lastOf(req.Name)]
		if b == nil {
			return bundleNotFound(req.Name)
		}
		if err := checkEtag(req.Etag, b.Etag); err != nil {
			return err
		}
		t.dropBundle(lastOf(req.Name))
		e.journalBundle(req.Name, nil)
		return nil
	})
}
