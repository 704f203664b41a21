package assemble

import (
	"context"
	"errors"
	"math"
	"net/http"
	"runtime/debug"
	"slices"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
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
	f.onClose(conn.Close)
	out := scanplanner.Config{
		Pipeline: cfg.Pipeline, Ledger: l, Budget: scanplanner.Budget, Logger: cfg.Logger,
		Sample: func(ctx context.Context, t pipeline.TableRef, profile string) ([]btrpc.Sample, error) {
			return btrpc.NewTable(t.String(), profile).SampleRowKeys(ctx, conn)
		},
		Report: reportTo(cfg.Reports.ScanPlanner),
	}
	if out.Tasks, out.Done, err = f.scanTopics(cfg); err != nil {
		return nil, err
	}
	if cfg.Meters != nil {
		metrics, err := scanplanner.NewMetrics(cfg.Meters.Meter("scan-planner"))
		if err != nil {
			return nil, err
		}
		out.Report = reportTo(scanplanner.Log(cfg.Logger, cfg.Pipeline.Name), metrics.Report, cfg.Reports.ScanPlanner)
	}
	return scanplanner.New(out)
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
	f.onClose(tables.Close)
	out := scanworker.Config{
		Pipeline: cfg.Pipeline, Ledger: l, Table: tables.Table, Sink: scanSink(cfg), Holder: cfg.Holder,
		Budget: scanworker.Budget, Slice: scanworker.Slice, CommitEvery: scanworker.CommitEvery,
		Memory:   scanMemory(debug.SetMemoryLimit(-1)),
		Stopping: cfg.Stopping, Logger: cfg.Logger, Now: cfg.Now, Report: reportTo(cfg.Reports.ScanWorker),
	}
	if out.Tasks, out.Done, err = f.scanTopics(cfg); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(cfg.Pipeline.Scans, func(s *pipeline.Scan) bool { return s.OnFailure == pipeline.PolicyDeadLetter }) {
		letters, err := f.deadLetters(cfg)
		if err != nil {
			return nil, err
		}
		out.DeadLetters = letters
	}
	if cfg.Meters != nil {
		metrics, err := scanworker.NewMetrics(cfg.Meters.Meter("scan-worker"))
		if err != nil {
			return nil, err
		}
		out.Report = reportTo(scanworker.Log(cfg.Logger, cfg.Pipeline.Name), metrics.Report, cfg.Reports.ScanWorker)
	}
	return scanworker.New(out)
}

func scanLedger(cfg *Config) (*ledger.Ledger, error) {
	if len(cfg.Pipeline.Scans) == 0 {
		return nil, errors.New("the pipeline has no scans")
	}
	return cfg.Ledger(context.Background())
}

// scanMemory bounds what tasks that run at once may hold of rows together: a third of the
// process's limit, because a row is several times its bytes while it is made a record and
// sent. It is nil if there is no limit.
func scanMemory(limit int64) *relay.Memory {
	if limit == math.MaxInt64 {
		return nil
	}
	return relay.NewMemory(max(1, limit/3))
}

// scanTopics returns where tasks and completion events are published.
func (f *Function) scanTopics(cfg *Config) (tasks, done scanjob.Publisher, err error) {
	if cfg.Tasks != nil && cfg.Done != nil {
		return cfg.Tasks, cfg.Done, nil
	}
	client, err := cfg.PubSub(context.Background())
	if err != nil {
		return nil, nil, err
	}
	topic := func(t pipeline.Topic) *task.Publisher {
		p := task.NewPublisher(client.Publisher(t.Of(cfg.Pipeline.Name)))
		f.onClose(p.Close)
		return p
	}
	return topic(pipeline.TopicScanTasks), topic(pipeline.TopicScanDone), nil
}

func scanSink(cfg *Config) func(context.Context, *pipeline.Scan) (relay.Sink, error) {
	if cfg.Sink != nil {
		return func(context.Context, *pipeline.Scan) (relay.Sink, error) { return cfg.Sink, nil }
	}
	return scanworker.Sinks(sink.NewSinks(cfg.PubSub, cfg.Records))
}
