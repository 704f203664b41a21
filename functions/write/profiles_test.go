package write_test

import (
	"errors"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
)

// What dedupe rests on is checked before anything is written, where the function may.
//
// covers: PLAN-08
func TestDedupeWithTheWrongProfileIsSaid(t *testing.T) {
	single := func(transactions bool) *adminpb.AppProfile {
		return &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{
			SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: emulator.Cluster, AllowTransactionalWrites: transactions},
		}}
	}
	several := &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{
		MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{},
	}}
	for _, c := range []struct {
		name    string
		dedupe  string
		profile *adminpb.AppProfile // nil: none of that name
		fault   codes.Code
		says    string // "" for nothing
	}{
		{name: "window, one cluster", dedupe: "window", profile: single(false)},
		{name: "marker, one cluster with transactions", dedupe: "marker", profile: single(true)},
		{name: "marker, no transactions", dedupe: "marker", profile: single(false), says: "mapping count: dedupe: marker needs an application profile that allows"},
		{name: "window, several clusters", dedupe: "window", profile: several, says: "mapping count: dedupe: window needs an application profile with single-cluster"},
		{name: "marker, several clusters", dedupe: "marker", profile: several, says: "pipeline.yaml:"},
		{name: "no such profile", dedupe: "window", says: "appProfiles/single does not exist"},
		{name: "not permitted", dedupe: "window", profile: several, fault: codes.PermissionDenied, says: "were not checked"},
		{name: "no dedupe", dedupe: "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := strings.Replace(countersFile(c.dedupe, firstDelta), "appProfile: default", "appProfile: single", 1)
			if c.dedupe == "none" {
				file = strings.Replace(file, "      dedupeId: event.id\n", "", 1)
			}
			h := newHarness(t, file, counterFamilies(), nil)
			if c.profile != nil {
				_, err := adminpb.NewBigtableInstanceAdminClient(h.conn).CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{
					Parent: instance, AppProfileId: "single", AppProfile: c.profile,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.fault != codes.OK {
				h.emulator.Inject(emulator.Fault{Method: "GetAppProfile", Code: c.fault})
			}
			err := write.CheckProfiles(t.Context(), parse(t, file), h.conn)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if errors.Is(err, write.ErrUnchecked) != (c.fault != codes.OK) {
				t.Errorf("unchecked: %v", err)
			}
		})
	}
}
