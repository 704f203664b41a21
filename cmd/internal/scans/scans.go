// Package scans guarantees that the functions scan-planner and scan-worker are put
// together in one way, wherever they run: deployed, in the process of `btf scan`, or in
// the local deployments of `btf dev` and `btf demo`. What functions share they are
// given; what a function holds open besides, it closes.
package scans

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"slices"

	"cloud.google.com/go/pubsub/v2"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// Config is what both functions are given. They do not close it.
type Config struct {
	Pipeline *pipeline.Pipeline
	Ledger   *ledger.Ledger
	Dialer   *btrpc.Dialer
	// PubSub connects to the project of the pipeline's topics. It is asked for each
	// need and may return the same client, which must outlive the functions.
	PubSub func(context.Context) (*pubsub.Client, error)
	// Tasks and Done take tasks and completion events; nil: the pipeline's own topics.
	Tasks, Done scanjob.Publisher
	// Sink takes the records of every scan; nil: what the file says does.
	Sink relay.Sink
	// Records is written to where the file says `to: log`.
	Records *slog.Logger
	Logger  *slog.Logger
}

// Function is a function with what it holds open. Close it once it serves no more.
type Function struct {
	http.Handler
	closers []func() error
}

// Close ends what the function holds, the newest first.
func (f *Function) Close() error {
	var errs []error
	for _, c := range slices.Backward(f.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// abandon closes what was opened for a function that cannot be built.
func (f *Function) abandon(err error) error { return errors.Join(err, f.Close()) }

// NewPlanner builds scan-planner. report is told of each request.
func NewPlanner(cfg Config, report func(context.Context, scanplanner.Summary)) (*Function, error) {
	f := &Function{}
	conn, err := cfg.Dialer.Data(context.Background())
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, conn.Close)
	tasks, done, err := f.publishers(&cfg)
	if err != nil {
		return nil, f.abandon(err)
	}
	f.Handler = scanplanner.New(scanplanner.Config{
		Pipeline: cfg.Pipeline, Ledger: cfg.Ledger, Tasks: tasks, Done: done, Budget: scanplanner.Budget, Logger: cfg.Logger,
		Sample: func(ctx context.Context, t pipeline.TableRef, profile string) ([]btrpc.Sample, error) {
			return btrpc.NewTable(t.String(), profile).SampleRowKeys(ctx, conn)
		},
		Report: report,
	})
	return f, nil
}

// NewWorker builds scan-worker. Its slices end when stopping does; holder names it in
// leases; report is told of each task.
func NewWorker(stopping context.Context, cfg Config, holder string, report func(context.Context, scanworker.Summary)) (*Function, error) {
	f := &Function{}
	tables := scanworker.NewTables(cfg.Dialer)
	f.closers = append(f.closers, tables.Close)
	worker := scanworker.Config{
		Pipeline: cfg.Pipeline, Ledger: cfg.Ledger, Table: tables.Table, Sink: sinkOf(&cfg), Holder: holder,
		Budget: scanworker.Budget, Slice: scanworker.Slice, CommitEvery: scanworker.CommitEvery,
		Memory:   memory(debug.SetMemoryLimit(-1)),
		Stopping: stopping, Logger: cfg.Logger, Report: report,
	}
	var err error
	if worker.Tasks, worker.Done, err = f.publishers(&cfg); err != nil {
		return nil, f.abandon(err)
	}
	if keepsDeadLetters(cfg.Pipeline) {
		client, err := cfg.PubSub(context.Background())
		if err != nil {
			return nil, f.abandon(fmt.Errorf("connecting to Pub/Sub for dead letters: %w", err))
		}
		letters := deadletter.NewPublisher(client.Publisher(cfg.Pipeline.Name + "-dead-letter"))
		f.closers = append(f.closers, letters.Close)
		worker.DeadLetters = letters
	}
	if f.Handler, err = scanworker.New(worker); err != nil {
		return nil, f.abandon(err)
	}
	return f, nil
}

// memory is what tasks at once may hold of rows together: a third of the process's limit,
// because a row is several times its bytes while it is made a record and sent. nil: there
// is no limit.
func memory(limit int64) *relay.Memory {
	if limit == math.MaxInt64 {
		return nil
	}
	return relay.NewMemory(max(1, limit/3))
}

// publishers returns where the function tells of tasks and of what is finished.
func (f *Function) publishers(cfg *Config) (tasks, done scanjob.Publisher, err error) {
	if cfg.Tasks != nil && cfg.Done != nil {
		return cfg.Tasks, cfg.Done, nil
	}
	client, err := cfg.PubSub(context.Background())
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to Pub/Sub: %w", err)
	}
	topic := func(suffix string) *task.Publisher {
		p := task.NewPublisher(client.Publisher(cfg.Pipeline.Name + suffix))
		f.closers = append(f.closers, p.Close)
		return p
	}
	return topic("-scan-tasks"), topic("-scan-done"), nil
}

func sinkOf(cfg *Config) func(context.Context, *pipeline.Scan) (relay.Sink, error) {
	if cfg.Sink != nil {
		return func(context.Context, *pipeline.Scan) (relay.Sink, error) { return cfg.Sink, nil }
	}
	return scanworker.NewSinks(cfg.PubSub, cfg.Records).Sink
}

func keepsDeadLetters(p *pipeline.Pipeline) bool {
	return slices.ContainsFunc(p.Scans, func(s *pipeline.Scan) bool { return s.OnFailure == pipeline.PolicyDeadLetter })
}
