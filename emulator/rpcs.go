package emulator

import (
	"path"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// notServed are the methods that answer UNIMPLEMENTED, with the reason.
// docs/emulator.md has a table of all methods, which a test compares.
var notServed = map[string]string{
	"PrepareQuery":           noSQL,
	"ExecuteQuery":           noSQL,
	"GetClientConfiguration": noSessions,
	"OpenTable":              noSessions,
	"OpenAuthorizedView":     noSessions,
	"OpenMaterializedView":   noSessions,

	"UndeleteTable":           "a deleted table is gone",
	"CreateTableFromSnapshot": noSnapshots,
	"SnapshotTable":           noSnapshots,
	"GetSnapshot":             noSnapshots,
	"ListSnapshots":           noSnapshots,
	"DeleteSnapshot":          noSnapshots,

	"UpdateMemoryLayer":      noMemoryLayers,
	"ListMemoryLayers":       noMemoryLayers,
	"GetMemoryLayer":         noMemoryLayers,
	"ListHotTablets":         "no load is measured",
	"CreateLogicalView":      noSQLViews,
	"GetLogicalView":         noSQLViews,
	"ListLogicalViews":       noSQLViews,
	"UpdateLogicalView":      noSQLViews,
	"DeleteLogicalView":      noSQLViews,
	"CreateMaterializedView": noSQLViews,
	"GetMaterializedView":    noSQLViews,
	"ListMaterializedViews":  noSQLViews,
	"UpdateMaterializedView": noSQLViews,
	"DeleteMaterializedView": noSQLViews,
}

const (
	noSQL          = "SQL is not served"
	noSQLViews     = "SQL is not served, nor the views that it defines"
	noSessions     = "sessions are not served; clients use the other methods"
	noSnapshots    = "snapshots are not served; backups are"
	noMemoryLayers = "clusters have no memory layers"
)

// checkServed refuses a method that is not served, in a sentence.
func checkServed(fullMethod string) error {
	method := path.Base(fullMethod)
	if reason := notServed[method]; reason != "" {
		return status.Errorf(codes.Unimplemented, "This emulator does not serve %s: %s.", method, reason)
	}
	return nil
}
