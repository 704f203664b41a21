package changes_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

// Instruments count what a stream brings and what a filter leaves of it, and show at each
// tick how many partitions there are and how far the oldest is behind.
//
// covers: MET-15, MET-17, MET-19, MET-20, MET-21, MET-23, MET-24
func TestInstrumentsShowAStreamAndItsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "filter: {families: {include: [cf]}, dropEmpty: true}, "+toLog)
		keepOne(t, r)
		r.tick()
		r.mutate("k", setCell("cf", "a", "1"), setCell("other", "a", "2"))
		r.mutate("l", setCell("other", "a", "3"))
		later := setCell("cf", "a", "4")
		later.GetSetCell().TimestampMicros = 2000
		r.mutate("k", later)
		if _, err := r.emulator.CollectGarbage(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.work()
		time.Sleep(time.Minute)
		r.tick()
		if err := r.emulator.SplitTablet(tableName, []byte("m")); err != nil {
			t.Fatal(err)
		}
		r.work()
		r.tick()
		r.work()
		if err := r.emulator.MergeTablets(tableName, []byte("m")); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			r.work()
			time.Sleep(time.Minute)
			r.tick()
		}
		reader := sdk.NewManualReader()
		meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("changes")
		visits, err := changes.NewMetrics(meter)
		if err != nil {
			t.Fatal(err)
		}
		ticks, err := changes.NewTickMetrics(meter)
		if err != nil {
			t.Fatal(err)
		}
		var opens, heartbeats int64
		for _, v := range r.visits {
			visits.Report(t.Context(), v)
			opens, heartbeats = opens+v.Opens, heartbeats+v.Heartbeats
		}
		for _, k := range r.ticks {
			ticks.Report(t.Context(), k)
		}
		got := functest.Readings(t, reader)
		for name, want := range map[string]int64{
			"user.read": 3, "garbage.read": 1, "skipped": 1, "entries.filtered": 2, "records.sent": 3,
			"streams.opened": opens, "heartbeats.read": heartbeats,
			"partitions.split": 1, "partitions.merged": 2, "partitions.closed": 3,
			"partitions.opened": 1, "partitions.service": 1, "partitions.held": 1, "ranges.missing": 0, "partitions.pending": 0,
		} {
			if n, there := got["btf.changes."+name+"{stream=feed}"]; n != want || !there {
				t.Errorf("%s is %d (%v), want %d", name, n, there, want)
			}
		}
		if opens < 4 || heartbeats < 2 {
			t.Errorf("%d streams opened, %d heartbeats", opens, heartbeats)
		}
		last := r.ticks[len(r.ticks)-1]
		if last.Lag <= 0 || last.Lag > 5*time.Minute || last.UnheldLag != 0 {
			t.Errorf("%+v", last)
		}
		var log strings.Builder
		changes.LogTick(slog.New(slog.NewTextHandler(&log, nil)), "orders")(t.Context(), last)
		if !strings.Contains(log.String(), "partitions=1") {
			t.Errorf("the log has %s", &log)
		}
	})
}

// keepOne has garbage collection keep one version of each cell of family cf.
func keepOne(t *testing.T, r *rig) {
	t.Helper()
	_, err := adminpb.NewBigtableTableAdminClient(r.conn).ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{
		Name: tableName, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{{
			Id: "cf", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Update{Update: &adminpb.ColumnFamily{
				GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: 1}},
			}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}
