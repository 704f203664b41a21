package emulator

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// An IAM policy belongs to an instance, a table, an authorized view, a backup
// or a schema bundle. What it grants holds for all that lies in the resource.

var roleName = regexp.MustCompile(`^(roles|(projects|organizations)/[^/]+/roles)/[a-zA-Z0-9_.]+$`)

// GetIamPolicy returns the policy of an instance.
func (a *instanceAdmin) GetIamPolicy(_ context.Context, req *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	if err := checkName(instanceName, "resource", req.GetResource()); err != nil {
		return nil, err
	}
	return a.e.policy(req.Resource)
}

// SetIamPolicy replaces the policy of an instance.
func (a *instanceAdmin) SetIamPolicy(_ context.Context, req *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	if err := checkName(instanceName, "resource", req.GetResource()); err != nil {
		return nil, err
	}
	return a.e.setPolicy(req.Resource, req.GetPolicy())
}

// TestIamPermissions returns those permissions on an instance that the caller
// has.
func (a *instanceAdmin) TestIamPermissions(ctx context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	if err := checkName(instanceName, "resource", req.GetResource()); err != nil {
		return nil, err
	}
	return a.e.testPermissions(ctx, req)
}

// GetIamPolicy returns the policy of a table, authorized view, backup or schema bundle.
func (a *tableAdmin) GetIamPolicy(_ context.Context, req *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	if err := checkTableResource(req.GetResource()); err != nil {
		return nil, err
	}
	return a.e.policy(req.Resource)
}

// SetIamPolicy replaces the policy of a table, authorized view, backup or schema bundle.
func (a *tableAdmin) SetIamPolicy(_ context.Context, req *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	if err := checkTableResource(req.GetResource()); err != nil {
		return nil, err
	}
	return a.e.setPolicy(req.Resource, req.GetPolicy())
}

// TestIamPermissions returns those permissions on a table, authorized view,
// backup or schema bundle that the caller has.
func (a *tableAdmin) TestIamPermissions(ctx context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	if err := checkTableResource(req.GetResource()); err != nil {
		return nil, err
	}
	return a.e.testPermissions(ctx, req)
}

func checkTableResource(name string) error {
	for _, pattern := range []*regexp.Regexp{viewName, bundleName, backupName} {
		if pattern.MatchString(name) {
			return nil
		}
	}
	return checkName(tableName, "resource", name)
}

// exists reports a resource that could have a policy and does not exist. The
// caller holds e.mu.
func (e *Emulator) exists(resource string) error {
	if instanceName.MatchString(resource) {
		_, err := e.instance(resource)
		return err
	}
	if backupName.MatchString(resource) {
		_, err := e.backup(resource)
		return err
	}
	parent, _ := parentOf(resource)
	if tableName.MatchString(resource) {
		parent = resource
	}
	t := e.tables[parent]
	if t == nil {
		return tableNotFound(parent)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch id := lastOf(resource); {
	case viewName.MatchString(resource) && t.views[id] == nil:
		return viewNotFound(resource)
	case bundleName.MatchString(resource) && t.bundles[id] == nil:
		return bundleNotFound(resource)
	}
	return nil
}

// parentOf is the resource that another lies in: that of its name without the
// last collection and id. It is "" for a project.
func parentOf(name string) (parent string, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) <= 2 {
		return "", false
	}
	return strings.Join(parts[:len(parts)-2], "/"), true
}

func (e *Emulator) policy(resource string) (*iampb.Policy, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if err := e.exists(resource); err != nil {
		return nil, err
	}
	return withPolicyEtag(e.policies[resource]), nil
}

// withPolicyEtag is a copy of a policy, nil for an empty one, with the hash of
// its content as its etag.
func withPolicyEtag(p *iampb.Policy) *iampb.Policy {
	if p == nil {
		p = &iampb.Policy{}
	}
	p = proto.Clone(p).(*iampb.Policy)
	p.Etag = nil
	h := fnv.New64a()
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(p) // a valid message marshals
	h.Write(b)                                                   // never fails
	p.Etag = binary.BigEndian.AppendUint64(nil, h.Sum64())
	return p
}

func (e *Emulator) setPolicy(resource string, p *iampb.Policy) (*iampb.Policy, error) {
	if err := checkPolicy(p); err != nil {
		return nil, err
	}
	fresh := withPolicyEtag(p)
	locked := func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if err := e.exists(resource); err != nil {
			return err
		}
		if old := withPolicyEtag(e.policies[resource]); len(p.GetEtag()) > 0 && !bytes.Equal(p.Etag, old.Etag) {
			return status.Error(codes.Aborted, "There were concurrent policy changes: the etag differs. Read the policy again and repeat the change")
		}
		e.policies[resource] = fresh
		e.journalPolicy(resource, fresh)
		return nil
	}
	if err := locked(); err != nil {
		return nil, err
	}
	return fresh, e.durable(e.appended())
}

// checkPolicy checks the bindings. Bigtable cannot be opened to everyone
// (cloud.google.com/bigtable/docs/access-control), and conditions are not
// evaluated here.
func checkPolicy(p *iampb.Policy) error {
	if p == nil {
		return status.Error(codes.InvalidArgument, "Error in field 'policy' : must be set")
	}
	for _, b := range p.Bindings {
		if !roleName.MatchString(b.GetRole()) {
			return status.Errorf(codes.InvalidArgument, "Error in field 'policy' : Role %q is not a valid role name", b.GetRole())
		}
		if b.Condition != nil {
			return status.Error(codes.Unimplemented, "IAM conditions are not served by this emulator")
		}
		for _, m := range b.Members {
			kind, name, ok := strings.Cut(m, ":")
			if !ok || name == "" || !slices.Contains([]string{"user", "serviceAccount", "group", "domain", "principal", "principalSet", "projectOwner", "projectEditor", "projectViewer"}, kind) {
				return status.Errorf(codes.InvalidArgument, "Error in field 'policy' : Bigtable cannot grant a role to the member %q", m)
			}
		}
	}
	return nil
}

func (e *Emulator) testPermissions(ctx context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if err := e.exists(req.Resource); err != nil {
		return nil, err
	}
	res := &iampb.TestIamPermissionsResponse{}
	for _, p := range req.Permissions {
		if !permissionName.MatchString(p) {
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'permissions' : Permission %q is not valid for this resource", p)
		}
		if e.allows(principalOf(ctx), p, req.Resource) {
			res.Permissions = append(res.Permissions, p)
		}
	}
	return res, nil
}

// dropPolicies forgets the policies of a resource and of all in it. The
// caller holds e.mu for writing.
func (e *Emulator) dropPolicies(resource string) {
	for name := range e.policies {
		if name == resource || strings.HasPrefix(name, resource+"/") {
			delete(e.policies, name)
		}
	}
}
