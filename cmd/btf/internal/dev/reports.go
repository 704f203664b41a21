package dev

import (
	"context"
	"log/slog"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// reports tell what the functions do.
type reports struct {
	tell *teller
	sums *tally // of deliveries to write, and of warnings
	ends splitEnds
}

func newReports(tell *teller) *reports { return &reports{tell: tell, sums: newTally(tell.line)} }

// close tells what is not told yet.
func (r *reports) close() error {
	r.sums.close()
	return nil
}

// options are those of a deployment that reports here and has a ledger of its own.
func (r *reports) options(own *ownLedger) localdeploy.Options {
	return localdeploy.Options{
		Endless: true,
		Logger:  slog.New(&lineHandler{line: r.sums.line}),
		Records: slog.New(telemetry.NewHandler(r.tell, slog.LevelInfo, "")), OpenLedger: own.open, Holder: process.Self(),
		Finished: r.finished,
		Reports: func(int) assemble.Reports {
			return assemble.Reports{Write: r.sums.delivery, ScanPlanner: r.planned, ScanWorker: r.scanned, Changes: r.visited}
		},
	}
}

// planned tells of one request.
func (r *reports) planned(_ context.Context, s scanplanner.Summary) {
	switch {
	case s.Malformed != nil:
		r.tell.line("a delivery to scan-planner is no scan request, and is dropped: %s", s.Malformed)
	case s.Refused != nil:
		r.tell.line("scan %s (%s) is not planned yet, and will be tried again: %s", s.Scan, s.Name, s.Refused)
	case s.State == ledger.ScanRunning:
		r.tell.line("scan %s (%s) has begun: %s, %s", s.Scan, s.Name, terminal.Plural(s.Splits, "split"), terminal.Plural(s.Tasks, "task"))
	}
}

// scanned tells of one task.
func (r *reports) scanned(_ context.Context, s scanworker.Summary) {
	what := "scan %s (%s), split %d: "
	defer r.ends.told(s)
	switch s.Outcome {
	case scanworker.OutcomeDone, scanworker.OutcomeContinued:
		r.tell.line(what+"%s, %s, %s, %d dropped in %s", s.Scan, s.Name, s.Split,
			string(s.Outcome), terminal.Plural(int(s.Rows), "row"), terminal.Plural(int(s.Records), "record"), s.Dropped, s.Duration.Round(time.Millisecond))
	case scanworker.OutcomeFailed:
		r.tell.line(what+"failed: %s", s.Scan, s.Name, s.Split, s.Reason)
	case scanworker.OutcomeReturned:
		r.tell.line(what+"will be tried again: %s", s.Scan, s.Name, s.Split, s.Reason)
	case scanworker.OutcomeMalformed:
		r.tell.line("a delivery to scan-worker is no scan task, and is dropped: %s", s.Reason)
	case scanworker.OutcomeHeld:
		r.tell.line(what+"held by another worker, and will be tried again", s.Scan, s.Name, s.Split)
	}
}

// finished tells of a scan that is done or has failed, behind its last split.
func (r *reports) finished(s task.ScanDone) {
	r.ends.wait(s)
	if s.Error != "" {
		r.tell.line("scan %s (%s) has failed: %s", s.Scan, s.Name, s.Error)
		return
	}
	r.tell.line("scan %s (%s) is %s: %s, %s, %d dropped, %s, in %s", s.Scan, s.Name, s.State,
		terminal.Plural(int(s.Rows), "row"), terminal.Plural(int(s.Records), "record"), s.Dropped, terminal.Plural(s.Splits, "split"), s.FinishedAt.Sub(s.CreatedAt).Round(time.Millisecond))
}

// visited tells of one visit of a partition, unless there was nothing to be read, and of a
// delivery that is no task.
func (r *reports) visited(_ context.Context, v changes.Visit) {
	switch v.Outcome {
	case changes.OutcomeFailed:
		r.sums.line("change stream "+v.Stream+" is tried again", v.Reason.Error())
	case changes.OutcomeMalformed:
		r.tell.line("a delivery to changes is no task of a change stream, and is dropped: %s", v.Reason)
	case changes.OutcomeClosed:
		r.tell.line("change stream %s: a partition has closed, %s opened", v.Stream, terminal.Plural(v.Successors, "successor"))
	}
	if v.Rows > 0 {
		r.tell.line("change stream %s: %s, %s, %d dropped, read in %s", v.Stream, terminal.Plural(int(v.Rows), "change"),
			terminal.Plural(int(v.Records), "record"), v.Dropped, v.Duration.Round(time.Millisecond))
	}
}
