package emulator

import (
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	instanceName = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+$`)
	tableName    = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/tables/[^/]+$`)
	profileName  = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/appProfiles/[^/]+$`)

	projectName = regexp.MustCompile(`^projects/[^/]+$`)
	clusterName = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/clusters/[^/]+$`)
	backupName  = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/clusters/[^/]+/backups/[^/]+$`)
	viewName    = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/tables/[^/]+/authorizedViews/[^/]+$`)
	bundleName  = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/tables/[^/]+/schemaBundles/[^/]+$`)

	// resourceID is the pattern that bigtable_table_admin.proto documents for the
	// id of a table.
	resourceID = regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]*$`)
	// familyID is the rule of pipeline files, which is narrower than the pattern
	// [-_.a-zA-Z0-9]+ of data.proto: a file that lint refuses must not work here.
	familyID = regexp.MustCompile(`^[_a-zA-Z0-9][-_.a-zA-Z0-9]{0,63}$`)
)

func checkName(pattern *regexp.Regexp, field, name string) error {
	if !pattern.MatchString(name) {
		return status.Errorf(codes.InvalidArgument, "Error in field '%s' : invalid resource name %q", field, name)
	}
	return nil
}

// instanceOf is the instance that a well-formed resource name lies in.
func instanceOf(name string) string {
	parts := strings.SplitN(name, "/", 5)
	return strings.Join(parts[:min(4, len(parts))], "/")
}

func tableNotFound(name string) error {
	return status.Errorf(codes.NotFound, "Table not found: %s", name)
}
