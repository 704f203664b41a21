package write

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// ErrUnchecked: the application profiles could not be read. That may well be meant: it
// takes bigtable.appProfiles.get, which writing does not.
var ErrUnchecked = errors.New("the application profiles that dedupe needs were not checked")

// CheckProfiles reads the application profiles of the tables that are written under
// dedupe, over a connection to Bigtable's administration. Tokens and conditional writes
// hold within one cluster: with another profile a sum would be wrong and nobody would
// know. The error is ErrUnchecked where a profile cannot be read, and otherwise names
// every mapping whose profile will not do. Without dedupe nothing is asked.
func CheckProfiles(ctx context.Context, p *pipeline.Pipeline, conn grpc.ClientConnInterface) error {
	admin := adminpb.NewBigtableInstanceAdminClient(conn)
	known := map[string]*adminpb.AppProfile{}
	var errs []error
	for _, m := range p.Write.Mappings {
		if m.Dedupe != pipeline.DedupeWindow && m.Dedupe != pipeline.DedupeMarker {
			continue
		}
		id := m.Table.AppProfile
		if id == "" {
			id = "default"
		}
		name := fmt.Sprintf("projects/%s/instances/%s/appProfiles/%s", m.Table.Project, m.Table.Instance, id)
		if known[name] == nil {
			profile, err := admin.GetAppProfile(ctx, &adminpb.GetAppProfileRequest{Name: name})
			if status.Code(err) == codes.NotFound {
				errs = append(errs, fmt.Errorf("%s: mapping %s: application profile %s does not exist", m.Pos, m.Name, name))
				continue
			}
			if err != nil {
				return errors.Join(append(errs, fmt.Errorf("%w: %s: %w", ErrUnchecked, name, err))...)
			}
			known[name] = profile
		}
		if err := fitsDedupe(m.Dedupe, known[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s: mapping %s: %w, and %s is not", m.Pos, m.Name, err, name))
		}
	}
	return errors.Join(errs...)
}

// fitsDedupe says what the profile would have to be; nil: it is.
func fitsDedupe(dedupe pipeline.Dedupe, profile *adminpb.AppProfile) error {
	single := profile.GetSingleClusterRouting()
	switch {
	case single == nil:
		return fmt.Errorf("dedupe: %s needs an application profile with single-cluster routing", dedupe)
	case dedupe == pipeline.DedupeMarker && !single.AllowTransactionalWrites:
		return errors.New("dedupe: marker needs an application profile that allows single-row transactions")
	}
	return nil
}
