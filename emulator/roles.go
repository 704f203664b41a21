package emulator

import (
	"slices"
	"strings"
)

// readerPermissions are those of roles/bigtable.reader that matter here
// (cloud.google.com/iam/docs/roles-permissions/bigtable, read 2026-12-01).
var readerPermissions = []string{
	"appProfiles.get", "appProfiles.list",
	"authorizedViews.get", "authorizedViews.list", "authorizedViews.readRows", "authorizedViews.sampleRowKeys",
	"backups.get", "backups.list",
	"clusters.get", "clusters.list",
	"instances.executeQuery", "instances.get", "instances.list", "instances.ping",
	"schemaBundles.get", "schemaBundles.list",
	"tables.checkConsistency", "tables.generateConsistencyToken", "tables.get", "tables.list", "tables.readRows", "tables.sampleRowKeys",
}

// viewerPermissions are those of roles/bigtable.viewer: it "provides no data
// access" (the same page).
var viewerPermissions = []string{
	"appProfiles.get", "appProfiles.list", "authorizedViews.get", "authorizedViews.list", "backups.get", "backups.list",
	"clusters.get", "clusters.list", "instances.get", "instances.list", "schemaBundles.get", "schemaBundles.list",
	"tables.checkConsistency", "tables.generateConsistencyToken", "tables.get", "tables.list",
}

// roleHas reports whether a predefined role of Bigtable has a permission. The
// permissions of other roles are not known: they have none.
func roleHas(role, permission string) bool {
	p, ok := strings.CutPrefix(permission, "bigtable.")
	if !ok {
		return false
	}
	switch role {
	case "roles/bigtable.admin", "roles/owner":
		return true
	case "roles/bigtable.user":
		return p == "tables.mutateRows" || p == "authorizedViews.mutateRows" || slices.Contains(readerPermissions, p)
	case "roles/bigtable.reader":
		return slices.Contains(readerPermissions, p)
	case "roles/bigtable.viewer":
		return slices.Contains(viewerPermissions, p)
	}
	return false
}
