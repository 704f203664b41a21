package dev

import (
	"context"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// startScheduled asks for scans that are due, until ctx ends.
func (d *Dev) startScheduled(ctx context.Context) {
	requests := task.NewPublisher(d.Local.Client.Publisher(pipeline.TopicScanRequests.Of(d.name)))
	defer requests.Close()
	s := scheduler{
		clock: d.cfg.Clock, tell: d.tell.line,
		scans: func() []*pipeline.Scan { return d.running.Load().Pipeline.Scans },
		ask: func(ctx context.Context, scan *pipeline.Scan) {
			if err := requests.Publish(ctx, task.ScanRequest{Version: task.Version, Scan: scan.Name, Scheduled: true}); err != nil && ctx.Err() == nil {
				d.tell.line("scan %s is due and was not started: %s", scan.Name, err)
			}
		},
	}
	s.run(ctx)
}

// tickEvery is how often a tick is sent: partitions that nobody reads, because the window of
// a visit has ended or the file has changed, are then read again soon.
const tickEvery = 5 * time.Second

// tick sends ticks to the function changes until ctx ends, also as soon as a new version of
// the file is served.
func (d *Dev) tick(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		if len(d.running.Load().Pipeline.Changes) > 0 {
			if err := d.Local.Tick(ctx, d.name); err != nil && ctx.Err() == nil {
				d.reports.sums.line("change streams are not read for now", err.Error())
			}
		}
		select {
		case <-ticker.C:
		case <-d.reloaded:
		case <-ctx.Done():
			return
		}
	}
}
