package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/devledger"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// This file is the part of dev that is about scans.

func (d *dev) options() localdeploy.Options {
	return localdeploy.Options{
		Endless: true,
		Logger:  slog.New(&lineHandler{line: d.sums.line}),
		Records: slog.New(telemetry.NewHandler(d.tell, slog.LevelInfo, "")), OpenLedger: d.openLedger, Holder: process.Self(),
		Wrote: d.sums.delivery, Planned: d.planned, Scanned: d.scanned, Finished: d.finished, Visited: d.visited,
	}
}

// openLedger makes the ledger and says where it is.
func (d *dev) openLedger(ctx context.Context) (*ledger.Ledger, error) {
	l, err := devledger.Create(ctx, d.name)
	if err != nil {
		return nil, err
	}
	d.ledger = l
	return l.Ledger, nil
}

// tellScans says how to start scans, and where the records of each go; what was told
// before it leaves out.
func (d *dev) tellScans(p *pipeline.Pipeline) {
	if len(p.Scans) == 0 {
		return
	}
	first := d.told == nil
	if first {
		d.told = map[string]string{}
	}
	for _, s := range p.Scans {
		text := describeScan(s)
		if d.told[s.Name] != text {
			d.tell.line("scan %s: %s", s.Name, text)
		}
		d.told[s.Name] = text
	}
	if first {
		done := localdeploy.TopicName(pipeline.TopicScanDone.Of(d.name))
		d.tell.line("when a scan has ended, a message says so on topic %s, to be pulled from %s", done, localdeploy.PullName(done))
		d.tellStart(p.Scans)
	}
}

// tellStart says how to start one of the scans whose records are sent from here.
func (d *dev) tellStart(all []*pipeline.Scan) {
	i := slices.IndexFunc(all, func(s *pipeline.Scan) bool { return s.To.Served() == nil })
	if i < 0 {
		return
	}
	request := fmt.Sprintf(`{"scan": "%s"}`, all[i].Name)
	topic := localdeploy.TopicName(pipeline.TopicScanRequests.Of(d.name))
	d.tell.line("to start a scan, publish %s to topic %s:", request, topic)
	d.tell.line(`  curl http://%s/v1/%s:publish -d '{"messages": [{"data": "%s"}]}'`,
		d.local.Cloud.Addr(), topic, base64.StdEncoding.EncodeToString([]byte(request)))
	d.tell.line("or have its records as lines, with the variables above in another shell: btf scan -f %s %s --to -", scanrun.ShellQuoted(d.file), all[i].Name)
}

// describeScan says where a scan's records go, and when it is due.
func describeScan(s *pipeline.Scan) string {
	text := ""
	switch {
	case s.To.Served() != nil:
		text = fmt.Sprintf("it cannot be started here: %s; btf scan with --to FILE writes its records to a file", s.To.Served())
	case s.To.Log:
		text = "records are printed here"
	case s.To.PubSub != nil:
		topic := localdeploy.TopicName(s.To.PubSub.Topic)
		text = "records go to topic " + topic + ", to be pulled from " + localdeploy.PullName(topic)
	}
	if s.Schedule != nil {
		text += "; due at " + s.Schedule.Cron + " in " + s.Schedule.TimeZone
	}
	return text
}

// planned tells of one request.
func (d *dev) planned(_ context.Context, s scanplanner.Summary) {
	switch {
	case s.Malformed != nil:
		d.tell.line("a delivery to scan-planner is no scan request, and is dropped: %s", s.Malformed)
	case s.Refused != nil:
		d.tell.line("scan %s (%s) is not planned yet, and will be tried again: %s", s.Scan, s.Name, s.Refused)
	case s.State == ledger.ScanRunning:
		d.tell.line("scan %s (%s) has begun: %s, %s", s.Scan, s.Name, terminal.Plural(s.Splits, "split"), terminal.Plural(s.Tasks, "task"))
	}
}

// scanned tells of one task.
func (d *dev) scanned(_ int, s scanworker.Summary) {
	what := "scan %s (%s), split %d: "
	defer d.ends.told(s)
	switch s.Outcome {
	case scanworker.OutcomeDone, scanworker.OutcomeContinued:
		d.tell.line(what+"%s, %s, %s, %d dropped in %s", s.Scan, s.Name, s.Split,
			string(s.Outcome), terminal.Plural(int(s.Rows), "row"), terminal.Plural(int(s.Records), "record"), s.Dropped, s.Duration.Round(time.Millisecond))
	case scanworker.OutcomeFailed:
		d.tell.line(what+"failed: %s", s.Scan, s.Name, s.Split, s.Reason)
	case scanworker.OutcomeReturned:
		d.tell.line(what+"will be tried again: %s", s.Scan, s.Name, s.Split, s.Reason)
	case scanworker.OutcomeMalformed:
		d.tell.line("a delivery to scan-worker is no scan task, and is dropped: %s", s.Reason)
	case scanworker.OutcomeHeld:
		d.tell.line(what+"held by another worker, and will be tried again", s.Scan, s.Name, s.Split)
	}
}

// finished tells of a scan that is done or has failed, behind its last split.
func (d *dev) finished(s task.ScanDone) {
	d.ends.wait(s)
	if s.Error != "" {
		d.tell.line("scan %s (%s) has failed: %s", s.Scan, s.Name, s.Error)
		return
	}
	d.tell.line("scan %s (%s) is %s: %s, %s, %d dropped, %s, in %s", s.Scan, s.Name, s.State,
		terminal.Plural(int(s.Rows), "row"), terminal.Plural(int(s.Records), "record"), s.Dropped, terminal.Plural(s.Splits, "split"), s.FinishedAt.Sub(s.CreatedAt).Round(time.Millisecond))
}

// startScheduled asks for scans that are due, until ctx ends.
func (d *dev) startScheduled(ctx context.Context) {
	requests := task.NewPublisher(d.local.Client.Publisher(pipeline.TopicScanRequests.Of(d.name)))
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
