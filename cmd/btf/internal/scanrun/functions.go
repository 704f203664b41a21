package scanrun

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// functions are those that read the scan.
type functions struct{ planner, worker http.Handler }

// build builds planner and worker around a queue that stands for their topics.
func (j *job) build(services *assemble.Services, q *queue, open *closers.Stack) (functions, error) {
	cfg := assemble.Config{
		Pipeline: only(j.pipeline, j.scan.Name), Dialer: services.Dialer, PubSub: services.PubSub,
		Ledger:   func(context.Context) (*ledger.Ledger, error) { return j.ledger, nil },
		Stopping: q.stopping, Holder: process.Self(), Now: time.Now, Tasks: q, Done: q,
		Records: slog.New(telemetry.NewHandler(terminal.DataTo(j.Stdout), slog.LevelInfo, "")),
		Reports: assemble.Reports{ScanPlanner: q.planned, ScanWorker: func(ctx context.Context, summary scanworker.Summary) {
			q.report(ctx, summary)
			if j.output.err() != nil {
				q.stop() // no other attempt can write either
			}
		}},
		// It would not help a reader to hear of more workers than tablets, and the queue
		// reports what a policy has dropped.
		Logger: j.logger(slog.LevelError),
	}
	if j.output.lines != nil {
		cfg.Sink = j.output.lines
	}
	planner, err := assemble.ScanPlanner(cfg)
	if err != nil {
		return functions{}, err
	}
	open.Add(planner.Close)
	worker, err := assemble.ScanWorker(cfg)
	if err != nil {
		return functions{}, err
	}
	open.Add(worker.Close)
	return functions{planner, worker}, nil
}

// only returns the pipeline with one of its scans, so that the command does not need the
// sinks and topics of the others.
func only(p *pipeline.Pipeline, name string) *pipeline.Pipeline {
	one := *p
	one.Scans = slices.DeleteFunc(slices.Clone(p.Scans), func(s *pipeline.Scan) bool { return s.Name != name })
	return &one
}

// logger logs for people.
func (c *Console) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
