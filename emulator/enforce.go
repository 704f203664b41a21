package emulator

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// PrincipalHeader is the request header that says who calls, as a policy's
// member says it: serviceAccount:NAME@PROJECT.iam.gserviceaccount.com. A call
// without it is one by the emulator's owner, who may do everything.
const PrincipalHeader = "x-btf-principal"

var permissionName = regexp.MustCompile(`^bigtable\.[a-zA-Z]+\.[a-zA-Z]+$`)

func principalOf(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, PrincipalHeader); len(v) > 0 {
		return v[0]
	}
	return ""
}

// authorize refuses a call that the caller's roles do not allow, if the
// emulator enforces policies.
func (e *Emulator) authorize(ctx context.Context, fullMethod string, req any) error {
	principal := principalOf(ctx)
	if !e.opts.EnforceIAM || principal == "" {
		return nil
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, n := range needsOf(path.Base(fullMethod), req) {
		if !e.allows(principal, n.permission, n.resource) {
			e.log.Warn("refused a call that no IAM policy allows", "method", fullMethod, "principal", principal, "permission", n.permission, "resource", n.resource)
			return status.Errorf(codes.PermissionDenied, "Access denied. Missing IAM permission: %s.", n.permission)
		}
	}
	return nil
}

// allows reports whether a principal has a permission on a resource by a
// policy of it or of what it lies in. The caller holds e.mu.
func (e *Emulator) allows(principal, permission, resource string) bool {
	if !e.opts.EnforceIAM || principal == "" {
		return true
	}
	for ok := true; ok; resource, ok = parentOf(resource) {
		for _, b := range e.policies[resource].GetBindings() {
			if roleHas(b.Role, permission) && slices.ContainsFunc(b.Members, func(m string) bool { return isMember(principal, m) }) {
				return true
			}
		}
	}
	return false
}

// isMember reports whether a policy's member stands for a principal: it is the
// same, or the domain of its address.
func isMember(principal, member string) bool {
	if domain, ok := strings.CutPrefix(member, "domain:"); ok {
		return strings.HasSuffix(principal, "@"+domain)
	}
	return principal == member
}

// need is a permission on a resource.
type need struct{ permission, resource string }

// methodPermissions are the permissions of methods that need one on the
// resource that their request names. Sources: the pages on audit logging of
// the data API and of the admin API
// (cloud.google.com/bigtable/docs/audit-logging and audit-logging-bigtableadmin).
var methodPermissions = map[string]string{
	"ReadRows":                              "tables.readRows",
	"SampleRowKeys":                         "tables.sampleRowKeys",
	"MutateRow":                             "tables.mutateRows",
	"MutateRows":                            "tables.mutateRows",
	"CheckAndMutateRow":                     "tables.mutateRows",
	"ReadModifyWriteRow":                    "tables.mutateRows",
	"GenerateInitialChangeStreamPartitions": "tables.readRows",
	"ReadChangeStream":                      "tables.readRows",
	"PingAndWarm":                           "instances.ping",

	"CreateTable":              "tables.create",
	"ListTables":               "tables.list",
	"GetTable":                 "tables.get",
	"UpdateTable":              "tables.update",
	"DeleteTable":              "tables.delete",
	"ModifyColumnFamilies":     "tables.update",
	"DropRowRange":             "tables.mutateRows",
	"GenerateConsistencyToken": "tables.generateConsistencyToken",
	"CheckConsistency":         "tables.checkConsistency",
	"RestoreTable":             "tables.create",

	"CreateAuthorizedView": "authorizedViews.create",
	"ListAuthorizedViews":  "authorizedViews.list",
	"GetAuthorizedView":    "authorizedViews.get",
	"UpdateAuthorizedView": "authorizedViews.update",
	"DeleteAuthorizedView": "authorizedViews.delete",

	"CreateSchemaBundle": "schemaBundles.create",
	"ListSchemaBundles":  "schemaBundles.list",
	"GetSchemaBundle":    "schemaBundles.get",
	"UpdateSchemaBundle": "schemaBundles.update",
	"DeleteSchemaBundle": "schemaBundles.delete",

	"CreateBackup": "backups.create",
	"CopyBackup":   "backups.create",
	"ListBackups":  "backups.list",
	"GetBackup":    "backups.get",
	"UpdateBackup": "backups.update",
	"DeleteBackup": "backups.delete",

	"CreateInstance":        "instances.create",
	"ListInstances":         "instances.list",
	"GetInstance":           "instances.get",
	"UpdateInstance":        "instances.update",
	"PartialUpdateInstance": "instances.update",
	"DeleteInstance":        "instances.delete",
	"CreateCluster":         "clusters.create",
	"ListClusters":          "clusters.list",
	"GetCluster":            "clusters.get",
	"UpdateCluster":         "clusters.update",
	"PartialUpdateCluster":  "clusters.update",
	"DeleteCluster":         "clusters.delete",
	"CreateAppProfile":      "appProfiles.create",
	"ListAppProfiles":       "appProfiles.list",
	"GetAppProfile":         "appProfiles.get",
	"UpdateAppProfile":      "appProfiles.update",
	"DeleteAppProfile":      "appProfiles.delete",

	"GetIamPolicy": "getIamPolicy",
	"SetIamPolicy": "setIamPolicy",
}

// needsOf is what a call needs. TestIamPermissions and operations need nothing.
func needsOf(method string, req any) []need {
	permission := methodPermissions[method]
	if permission == "" {
		return nil
	}
	resource := resourceOf(req)
	switch method {
	case "GetIamPolicy", "SetIamPolicy":
		permission = collectionOf(resource) + "." + permission
	}
	if view := viewOf(req); view != "" {
		resource, permission = view, strings.Replace(permission, "tables.", "authorizedViews.", 1)
	}
	needs := []need{{"bigtable." + permission, resource}}
	switch r := req.(type) {
	case *adminpb.RestoreTableRequest:
		needs = append(needs, need{"bigtable.backups.restore", r.GetBackup()})
	case *adminpb.CopyBackupRequest:
		needs = append(needs, need{"bigtable.backups.read", r.GetSourceBackup()})
	}
	if method == "ReadModifyWriteRow" {
		needs = append(needs, need{strings.Replace(needs[0].permission, "mutateRows", "readRows", 1), resource})
	}
	return needs
}

// collectionOf is the collection of a resource, as permissions name it:
// instances, tables, authorizedViews, backups, schemaBundles.
func collectionOf(resource string) string {
	parts := strings.Split(resource, "/")
	return parts[max(0, len(parts)-2)]
}

// viewOf is the authorized view that a data request names.
func viewOf(req any) string {
	if r, ok := req.(interface{ GetAuthorizedViewName() string }); ok {
		return r.GetAuthorizedViewName()
	}
	return ""
}

// resourceOf is the resource that a request is about: the parent of what it
// makes or lists, or the resource itself.
func resourceOf(req any) string {
	switch r := req.(type) {
	case interface{ GetTableName() string }:
		return r.GetTableName()
	case interface{ GetParent() string }:
		return r.GetParent()
	case interface{ GetResource() string }:
		return r.GetResource()
	case *adminpb.UpdateTableRequest:
		return r.GetTable().GetName()
	case *adminpb.UpdateAuthorizedViewRequest:
		return r.GetAuthorizedView().GetName()
	case *adminpb.UpdateSchemaBundleRequest:
		return r.GetSchemaBundle().GetName()
	case *adminpb.UpdateBackupRequest:
		return r.GetBackup().GetName()
	case *adminpb.PartialUpdateInstanceRequest:
		return r.GetInstance().GetName()
	case *adminpb.PartialUpdateClusterRequest:
		return r.GetCluster().GetName()
	case *adminpb.UpdateAppProfileRequest:
		return r.GetAppProfile().GetName()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}
