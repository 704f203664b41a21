package changes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// route makes the stream's application profile route to one cluster, or to any.
func (r *rig) route(single bool) {
	r.t.Helper()
	p := &adminpb.AppProfile{Name: instance + "/appProfiles/one", RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{
		MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{},
	}}
	if single {
		p.RoutingPolicy = &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "c1"}}
	}
	_, err := adminpb.NewBigtableInstanceAdminClient(r.conn).UpdateAppProfile(r.t.Context(), &adminpb.UpdateAppProfileRequest{
		AppProfile: p, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"routing_policy"}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// A profile that routes to several clusters is refused by the service: the visit fails and
// keeps its place until the profile is mended.
//
// covers: CS-02
func TestAProfileOfSeveralClustersIsToldAndKeepsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog)
		r.tick()
		r.set("a", 1)
		r.route(false)
		r.work()
		if got := r.outcomes(); got != "failed" || len(r.records) != 0 {
			t.Errorf("%s, %d records", got, len(r.records))
		}
		r.route(true)
		r.round()
		if got := fmt.Sprint(r.values()); got != "map[a:[1]]" {
			t.Error(got)
		}
	})
}

// A new filter in the file is for what comes next: the place is the stream's, not the
// filter's.
//
// covers: CS-21
func TestAFilterBelongsToTheFileAndNotToThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "filter: {families: {include: [cf]}, dropEmpty: true}, "+toLog)
		r.tick()
		r.mutate("a", setCell("other", "q", "1"))
		r.work()
		p, err := pipeline.Parse(fmt.Appendf(nil, file, "filter: {families: {include: [other]}, dropEmpty: true}, "+toLog), pipeline.Options{File: "p.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		r.cfg.Pipeline = p
		r.mutate("b", setCell("other", "q", "2"))
		r.round()
		if len(r.records) != 1 || !strings.Contains(string(r.records[0].Body), `"rowKey":"b"`) {
			t.Errorf("%+v", r.records)
		}
	})
}

// Reads that are open are counted up and down, and heartbeats that do not come are noticed.
//
// covers: MET-16, MET-18
func TestOpenReadsAndMissedHeartbeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "idleStop: false, window: 20s, "+toLog)
		var open, most int64
		r.cfg.Reading = func(_ context.Context, stream string, n int64) {
			if stream != "feed" {
				t.Errorf("a read of %q", stream)
			}
			open += n
			most = max(most, open)
		}
		r.tick()
		r.set("a", 1)
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: 3, Hang: true, Code: codes.Unavailable, Count: 1})
		r.work()
		if open != 0 || most != 1 {
			t.Errorf("%d reads are open, %d at most", open, most)
		}
		missed := int64(0)
		for _, v := range r.visits {
			missed = max(missed, v.Missed)
		}
		if missed < 5 || missed > 20 {
			t.Errorf("%d heartbeats were missed in a window of 20 s", missed)
		}
		r.visits = nil
		r.set("b", 1)
		r.round()
		time.Sleep(time.Minute)
		r.round()
		for _, v := range r.visits {
			if v.Missed != 0 {
				t.Errorf("a visit with heartbeats missed %d", v.Missed)
			}
		}
	})
}
