package main

import (
	"context"
	"log/slog"
	"time"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// This file is the part of dev that is about scans.

func (d *dev) options(logger *slog.Logger) localOptions {
	return localOptions{
		logger: logger, records: slog.New(telemetry.NewHandler(d.tell, slog.LevelInfo, "")), openLedger: d.openLedger,
		wrote: d.wrote, planned: d.planned, scanned: d.scanned, finished: d.finished,
	}
}

// openLedger makes the ledger and says where it is.
func (d *dev) openLedger(ctx context.Context) (*ledger.Ledger, error) {
	l, err := createDevLedger(ctx, d.name)
	if err != nil {
		return nil, err
	}
	d.ledger = l
	return l.Ledger, nil
}

// tellScans says how to start scans, and where the records of each go; what was told
// before it leaves out.
func (d *dev) tellScans(p *pipeline.Pipeline) error {
	if len(p.Scans) == 0 {
		return nil
	}
	out := &printer{out: d.stdout}
	first := d.told == nil
	if first {
		d.told = map[string]string{}
		out.printf("export LEDGER=%s\n", d.ledger.place)
	}
	for _, s := range p.Scans {
		text := describeScan(s)
		if d.told[s.Name] != text {
			d.tell.line("scan %s: %s", s.Name, text)
		}
		d.told[s.Name] = text
	}
	if name := p.Scans[0].Name; first {
		d.tell.line(`to start a scan, publish {"scan": "%s"} to topic %s; or, with the variables above in another shell: btf scan -f %s %[1]s`,
			name, localTopic(d.name+"-scan-requests"), shellQuoted(d.file))
	}
	return out.err
}

// describeScan says where a scan's records go, and when it is due.
func describeScan(s *pipeline.Scan) string {
	text := "its sink is " + s.To.Kind()
	switch {
	case s.To.Log:
		text = "records are printed here"
	case s.To.PubSub != nil:
		topic := localTopic(s.To.PubSub.Topic)
		text = "records go to topic " + topic + ", to be pulled from " + pullOf(topic)
	}
	if s.Schedule != nil {
		text += "; due at " + s.Schedule.Cron + " in " + s.Schedule.TimeZone
	}
	return text
}

// planned tells of one request.
func (d *dev) planned(_ context.Context, s scanplanner.Summary) {
	switch {
	case s.Refused != nil:
		d.tell.line("scan %s (%s) is not planned yet, and will be tried again: %s", s.Scan, s.Name, s.Refused)
	case s.State == ledger.ScanRunning:
		d.tell.line("scan %s (%s) has begun: %s, %s", s.Scan, s.Name, plural(s.Splits, "split"), plural(s.Tasks, "task"))
	}
}

// scanned tells of one task.
func (d *dev) scanned(_ int, s scanworker.Summary) {
	what := "scan %s (%s), split %d: "
	switch s.Outcome {
	case scanworker.OutcomeDone, scanworker.OutcomeContinued:
		d.tell.line(what+"%s, %d rows, %d records, %d dropped in %s", s.Scan, s.Name, s.Split,
			string(s.Outcome), s.Rows, s.Records, s.Dropped, s.Duration.Round(time.Millisecond))
	case scanworker.OutcomeFailed:
		d.tell.line(what+"failed: %s", s.Scan, s.Name, s.Split, s.Reason)
	case scanworker.OutcomeReturned:
		d.tell.line(what+"will be tried again: %s", s.Scan, s.Name, s.Split, s.Reason)
	case scanworker.OutcomeHeld:
		d.tell.line(what+"held by another worker, and will be tried again", s.Scan, s.Name, s.Split)
	}
}

// finished tells of a scan that is done or has failed.
func (d *dev) finished(s task.ScanDone) {
	if s.Error != "" {
		d.tell.line("scan %s (%s) has failed: %s", s.Scan, s.Name, s.Error)
		return
	}
	d.tell.line("scan %s (%s) is %s: %s, %d records, %d dropped, %s, in %s", s.Scan, s.Name, s.State,
		plural(int(s.Rows), "row"), s.Records, s.Dropped, plural(s.Splits, "split"), s.FinishedAt.Sub(s.CreatedAt).Round(time.Millisecond))
}

// startScheduled asks for scans that are due, until ctx ends.
func (d *dev) startScheduled(ctx context.Context) {
	requests := task.NewPublisher(d.local.client.Publisher(d.name + "-scan-requests"))
	defer requests.Close()
	s := scheduler{
		clock: d.clock, tell: d.tell.line,
		scans: func() []*pipeline.Scan { return d.pipeline.Load().Scans },
		ask: func(ctx context.Context, scan *pipeline.Scan) {
			if err := requests.Publish(ctx, task.ScanRequest{Version: task.Version, Scan: scan.Name, Scheduled: true}); err != nil && ctx.Err() == nil {
				d.tell.line("scan %s is due and was not started: %s", scan.Name, err)
			}
		},
	}
	s.run(ctx)
}
