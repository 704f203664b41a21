// Package assemble guarantees that a function is put together in one way wherever it runs:
// in a deployment, in `btf dev` and `btf demo`, and in the process of `btf scan`. It reads
// the environment, connects to the services and has one builder for each function. A
// builder that fails has closed everything that it opened.
package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"go.opentelemetry.io/otel/metric"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Builder is one function of a pipeline, and how it is made.
type Builder struct {
	Name lint.Principal
	// Build makes the function. It fails if the pipeline has no work for it.
	Build func(Config) (*Function, error)
}

// Builders lists the functions that there are. A new function is one line here.
func Builders() []Builder {
	return []Builder{
		{lint.Write, Write},
		{lint.ScanPlanner, ScanPlanner},
		{lint.ScanWorker, ScanWorker},
		{lint.Changes, Changes},
	}
}

// Needed returns the builders of the functions that are deployed for a pipeline, which are those
// that it has work for.
func Needed(loaded *lint.Loaded) []Builder {
	return slices.DeleteFunc(Builders(), func(b Builder) bool {
		return !slices.ContainsFunc(loaded.Report.Resources.Services, func(s lint.Service) bool { return s.Function == b.Name })
	})
}

// Config is what functions are given. They close nothing of it.
type Config struct {
	Pipeline *pipeline.Pipeline
	// Compiled is the write section, as lint.Load returns it. It is nil if there is none.
	Compiled *mapping.Write

	Dialer *btrpc.Dialer
	// PubSub connects to the project of the pipeline's topics. It is called for each need
	// and may return the same client, which must outlive the functions. Its errors say that
	// it is Pub/Sub that cannot be reached.
	PubSub func(context.Context) (*pubsub.Client, error)
	// Ledger returns the ledger, which must outlive the functions.
	Ledger func(context.Context) (*ledger.Ledger, error)

	// Stopping ends when the process is to stop. Work that can be continued elsewhere then
	// ends early.
	Stopping context.Context
	// Holder is this instance in leases.
	Holder ledger.Holder
	Logger *slog.Logger
	// Records is what a scan with `to: log` writes its records to.
	Records *slog.Logger
	Now     func() time.Time
	// CloseTime is how long a function that is closed may take to end what is under way.
	CloseTime time.Duration

	// Meters takes what the functions count. If it is set, they also log what they do.
	Meters *telemetry.Meters
	// Reports are called with each summary.
	Reports Reports
	// CheckProfiles makes Write fail if the pipeline's dedupe needs an application profile
	// that does not allow it.
	CheckProfiles bool

	// Tasks and Done replace the topics of scan tasks and of completion events. Either both
	// are set or neither.
	Tasks, Done scanjob.Publisher
	// Sink replaces the sinks of the pipeline's scans.
	Sink relay.Sink
}

// Reports are called with what each function has done. Any of them may be nil.
type Reports struct {
	Write       func(context.Context, write.Summary)
	ScanPlanner func(context.Context, scanplanner.Summary)
	ScanWorker  func(context.Context, scanworker.Summary)
	Changes     func(context.Context, changes.Visit)
}

// Function is a function with what it holds open. It must be closed once it serves no more.
type Function struct {
	http.Handler
	open closers.Stack
}

// Close ends what the function holds, the newest first.
func (f *Function) Close() error { return f.open.Close() }

// build calls make with a new function, and closes what that has opened if it fails.
func build(make func(*Function) (http.Handler, error)) (*Function, error) {
	f := &Function{}
	var err error
	if f.Handler, err = make(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// deadLetters opens the topic of the pipeline's dead letters.
func (f *Function) deadLetters(cfg *Config) (*deadletter.Publisher, error) {
	client, err := cfg.PubSub(context.Background())
	if err != nil {
		return nil, fmt.Errorf("opening the topic of dead letters: %w", err)
	}
	letters := deadletter.NewPublisher(client.Publisher(pipeline.TopicDeadLetter.Of(cfg.Pipeline.Name)))
	f.open.Add(letters.Close)
	return letters, nil
}

// topic opens a topic of the pipeline's tasks or events.
func (f *Function) topic(cfg *Config, t pipeline.Topic) (*task.Publisher, error) {
	client, err := cfg.PubSub(context.Background())
	if err != nil {
		return nil, err
	}
	p := task.NewPublisher(client.Publisher(t.Of(cfg.Pipeline.Name)))
	f.open.Add(p.Close)
	return p, nil
}

// memory bounds what a function holds of rows or changes at once: a third of the process's
// limit, because a row is several times its bytes while it is made a record and sent. It is
// nil if there is no limit.
func memory() *relay.Memory {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return nil
	}
	return relay.NewMemory(max(1, limit/3))
}

// report returns the report of a function: its log and its metrics, if
// cfg.Meters is set, and then the caller's report.
func report[Summary any, Metrics interface {
	Report(context.Context, Summary)
}](
	cfg *Config, function lint.Principal,
	newLog func(*slog.Logger, string) func(context.Context, Summary),
	newMetrics func(metric.Meter) (Metrics, error),
	caller func(context.Context, Summary),
) (func(context.Context, Summary), error) {
	if cfg.Meters == nil {
		return reportTo(caller), nil
	}
	metrics, err := newMetrics(cfg.Meters.Meter(string(function)))
	if err != nil {
		return nil, err
	}
	return reportTo(newLog(cfg.Logger, cfg.Pipeline.Name), metrics.Report, caller), nil
}

// reportTo returns a function that calls each of reports that is not nil, in their order.
func reportTo[Summary any](reports ...func(context.Context, Summary)) func(context.Context, Summary) {
	return func(ctx context.Context, s Summary) {
		for _, report := range reports {
			if report != nil {
				report(ctx, s)
			}
		}
	}
}
