package dev

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

const nightly = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables: {orders: {families: {cf: {}}}}
scans:
  nightly: {table: orders, schedule: {cron: "0 3 * * *", timeZone: Europe/Berlin}, to: {log: {}}}
  weekly: {table: orders, schedule: {cron: "30 12 * * sun"}, to: {log: {}}}
  asked: {table: orders, to: {log: {}}}
`

// tasks takes what the planner publishes.
type tasks struct{}

func (tasks) Publish(context.Context, ...any) error { return nil }

// The planner names a scheduled scan by its due time: here both count by one clock.
func TestAScheduledScanIsStartedOnceForEachDueTime(t *testing.T) {
	p, err := pipeline.Parse([]byte(nightly), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(storetest.NewMemory(), "orders", ledger.Options{})
		cloud, err := localcloud.New(localcloud.Options{Project: "p", InMemory: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		const topic = "orders-scan-requests"
		if err := cloud.CreateTopics(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		planner, err := scanplanner.New(scanplanner.Config{
			Pipeline: p, Ledger: l, Tasks: tasks{}, Done: tasks{}, Budget: scanplanner.Budget, Logger: slog.New(slog.DiscardHandler),
			Sample: func(context.Context, *pipeline.Scan) ([]btrpc.Sample, error) { return nil, nil },
			Report: func(context.Context, scanplanner.Summary) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cloud.CreatePush(t.Context(), localcloud.Push{
			ID: topic, Topic: topic, AckDeadline: 300 * time.Second, MinBackoff: 10 * time.Second, MaxBackoff: time.Minute, Retention: time.Hour,
			Handler: planner,
		})
		if err != nil {
			t.Fatal(err)
		}
		client, err := cloud.Client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		requests := task.NewPublisher(client.Publisher(topic))
		s := scheduler{
			clock: SystemClock(), scans: func() []*pipeline.Scan { return p.Scans }, tell: t.Errorf,
			ask: func(ctx context.Context, scan *pipeline.Scan) {
				if err := requests.Publish(ctx, task.ScanRequest{Version: task.Version, Scan: scan.Name, Scheduled: true}); err != nil {
					t.Error(err)
				}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		time.Sleep(49 * time.Hour) // from 2000-01-01, a Saturday, 00:00 in UTC
		synctest.Wait()
		cancel()
		running.Wait()
		scans, err := l.Scans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, s := range scans {
			ids = append(ids, s.ID)
		}
		slices.Sort(ids)
		if want := []string{"nightly@2000-01-01T02:00Z", "nightly@2000-01-02T02:00Z", "weekly@2000-01-02T12:30Z"}; !slices.Equal(ids, want) {
			t.Errorf("started %q, want %q", ids, want)
		}
		if n := len(cloud.Published(topic)); n != 3 {
			t.Errorf("%d requests", n)
		}
		if err := requests.Close(); err != nil {
			t.Error(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := cloud.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestOfTheDueTimesThatAMachineSleptThroughTheLastIsMadeUpFor(t *testing.T) {
	p, err := pipeline.Parse([]byte(nightly), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 8, day, hour, minute, 0, 0, time.UTC) }
	for name, c := range map[string]struct {
		last, now time.Time
		want      []string
	}{
		"over one":           {at(28, 0, 50), at(28, 6, 0), []string{"nightly"}},
		"over several":       {at(26, 0, 50), at(28, 6, 0), []string{"nightly"}},
		"over two schedules": {at(30, 0, 30), at(30, 12, 30), []string{"nightly", "weekly"}},
		"over none":          {at(28, 1, 0), at(28, 6, 0), nil}, // 1:00 was looked at
		"a day ago":          {at(29, 22, 0), at(31, 14, 0), []string{"nightly"}},
		"backwards":          {at(28, 6, 0), at(28, 0, 50), nil},
	} {
		times := []time.Time{c.last, c.now}
		ctx, cancel := context.WithCancel(t.Context())
		var asked []string
		s := scheduler{
			clock: Clock{
				Now: func() time.Time { now := times[0]; times = times[1:]; return now },
				Sleep: func(context.Context, time.Duration) {
					if len(times) == 0 {
						cancel()
					}
				},
			},
			scans: func() []*pipeline.Scan { return p.Scans }, tell: t.Errorf,
			ask: func(_ context.Context, scan *pipeline.Scan) { asked = append(asked, scan.Name) },
		}
		s.run(ctx)
		if !slices.Equal(asked, c.want) {
			t.Errorf("%s: started %q, want %q", name, asked, c.want)
		}
	}
}
