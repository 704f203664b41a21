package assemble

import (
	"context"
	"errors"
	"net/http"
	"slices"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// ScanPlanner builds the function scan-planner.
func ScanPlanner(cfg Config) (*Function, error) {
	return build(func(f *Function) (http.Handler, error) { return f.scanPlanner(&cfg) })
}

func (f *Function) scanPlanner(cfg *Config) (http.Handler, error) {
	l, err := scanLedger(cfg)
	if err != nil {
		return nil, err
	}
	conn, err := cfg.Dialer.Data(context.Background())
	if err != nil {
		return nil, err
	}
	f.open.Add(conn.Close)
	out := scanplanner.Config{
		Pipeline: cfg.Pipeline, Ledger: l, Budget: scanplanner.Budget, Logger: cfg.Logger,
		Sample: func(ctx context.Context, s *pipeline.Scan) ([]btrpc.Sample, error) {
			return ScannedTable(s).SampleRowKeys(ctx, conn)
		},
	}
	if out.Tasks, out.Done, err = f.scanTopics(cfg); err != nil {
		return nil, err
	}
	if out.Report, err = report(cfg, lint.ScanPlanner, scanplanner.Log, scanplanner.NewMetrics, cfg.Reports.ScanPlanner); err != nil {
		return nil, err
	}
	return scanplanner.New(out)
}

// ScannedTable is the table that a scan reads, through the view that the file names.
func ScannedTable(s *pipeline.Scan) *btrpc.Table {
	return btrpc.NewTable(s.Table.Ref().String(), s.AppProfile).Through(s.Table.AuthorizedView)
}

// ScanWorker builds the function scan-worker.
func ScanWorker(cfg Config) (*Function, error) {
	return build(func(f *Function) (http.Handler, error) { return f.scanWorker(&cfg) })
}

func (f *Function) scanWorker(cfg *Config) (http.Handler, error) {
	l, err := scanLedger(cfg)
	if err != nil {
		return nil, err
	}
	tables := scanworker.NewTables(cfg.Dialer)
	f.open.Add(tables.Close)
	out := scanworker.Config{
		Pipeline: cfg.Pipeline, Ledger: l, Table: tables.Table, Sink: scanSink(cfg), Holder: cfg.Holder,
		Budget: scanworker.Budget, Slice: scanworker.Slice, CommitEvery: scanworker.CommitEvery,
		Memory: memory(), Stopping: cfg.Stopping, Logger: cfg.Logger, Now: cfg.Now,
	}
	if out.Tasks, out.Done, err = f.scanTopics(cfg); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(cfg.Pipeline.Scans, func(s *pipeline.Scan) bool { return s.OnFailure == pipeline.PolicyDeadLetter }) {
		if out.DeadLetters, err = f.deadLetters(cfg); err != nil {
			return nil, err
		}
	}
	if out.Report, err = report(cfg, lint.ScanWorker, scanworker.Log, scanworker.NewMetrics, cfg.Reports.ScanWorker); err != nil {
		return nil, err
	}
	return scanworker.New(out)
}

func scanLedger(cfg *Config) (*ledger.Ledger, error) {
	if len(cfg.Pipeline.Scans) == 0 {
		return nil, errors.New("the pipeline has no scans")
	}
	return cfg.Ledger(context.Background())
}

// scanTopics returns where tasks and completion events are published.
func (f *Function) scanTopics(cfg *Config) (tasks, done scanjob.Publisher, err error) {
	if cfg.Tasks != nil && cfg.Done != nil {
		return cfg.Tasks, cfg.Done, nil
	}
	if tasks, err = f.topic(cfg, pipeline.TopicScanTasks); err != nil {
		return nil, nil, err
	}
	done, err = f.topic(cfg, pipeline.TopicScanDone)
	return tasks, done, err
}

func scanSink(cfg *Config) func(context.Context, *pipeline.Scan) (relay.Sink, error) {
	if cfg.Sink != nil {
		return func(context.Context, *pipeline.Scan) (relay.Sink, error) { return cfg.Sink, nil }
	}
	return scanworker.Sinks(sink.NewSinks(cfg.PubSub, cfg.Records))
}
