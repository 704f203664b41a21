// Package changes guarantees that every change of a table reaches the sink at least once,
// through splits and merges, and those of one row in order but for repeats: one holder at
// a time reads a partition, and what it commits is acknowledged by the sink. Ticks and
// tasks are hints that may come twice, late or never: the ledger is the checkpoint, and
// the next tick is the retry.
package changes

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// Budget is how long one delivery may take: under the service's timeout (110 s),
	// which is under the subscription's ack deadline (120 s).
	Budget = 100 * time.Second
	// CommitEvery is the shortest time between two commits of a partition. After a crash
	// the sink gets the changes since the last commit again.
	CommitEvery = 5 * time.Second
	// Heartbeat is how often the service says how far a silent partition has come. A visit
	// of an idle partition lasts for one.
	Heartbeat = time.Second
	// Tick is how often the coordinator is expected to run.
	Tick = time.Minute
)

// DeadLetters keeps what a policy gives up on. nil means that every letter is durable.
type DeadLetters interface {
	Put(ctx context.Context, letters []deadletter.Letter) error
}

// Publisher sends tasks. nil means that every one is stored.
type Publisher interface {
	Publish(ctx context.Context, messages ...any) error
}

// Config is what the function needs. All of it is required except Memory, Retention and, if
// no stream's policy says dead-letter, DeadLetters.
type Config struct {
	Pipeline *pipeline.Pipeline
	Ledger   *ledger.Ledger
	// Conn is a connection to the data service.
	Conn grpc.ClientConnInterface
	// Retention returns how long the table keeps its changes, 0 if that is unknown: then
	// an expired position is not told from one that the service refuses. It is asked for
	// each visit. If Retention is nil, it is always unknown.
	Retention func(context.Context, *pipeline.Change) (time.Duration, error)
	// Sink opens where a stream's records go. It is asked for each visit, too.
	Sink        func(context.Context, *pipeline.Change) (relay.Sink, error)
	DeadLetters DeadLetters
	Tasks       Publisher
	Holder      ledger.Holder // this process in leases
	// Memory bounds what all visits of the process hold of changes together; nil: each is
	// bounded by batchBytes alone.
	Memory *relay.Memory
	Graces changestream.Graces
	Budget time.Duration
	// CommitEvery and Heartbeat are as the constants of these names.
	CommitEvery, Heartbeat time.Duration
	// Stopping ends when the process is to stop: then every visit does.
	Stopping context.Context
	Logger   *slog.Logger
	Now      func() time.Time
	// Report is called with each visit and each malformed delivery, Ticked with each tick that
	// has listed all partitions.
	Report func(context.Context, Visit)
	Ticked func(context.Context, Reconciliation)
	// Reading is called with 1 when a read of a stream opens and with -1 when it ends. It may be
	// nil.
	Reading func(ctx context.Context, stream string, n int64)
}

// reading is Reading for one stream.
func (c *Config) reading(ctx context.Context, change *pipeline.Change) func(int64) {
	if c.Reading == nil {
		return nil
	}
	return func(n int64) { c.Reading(ctx, change.Name, n) }
}

type function struct {
	cfg     Config
	streams []*stream
}

// stream is one entry of the file, ready to be read.
type stream struct {
	change *pipeline.Change
	id     ledger.StreamID
	emit   *mapping.Changes
	table  *btrpc.Table
}

// New compiles the pipeline's change streams and returns the function as an HTTP handler
// of ticks, which are requests without a body, and of Pub/Sub deliveries. A stream that
// this version does not serve is logged and left out.
func New(cfg Config) (http.Handler, error) {
	f := &function{cfg: cfg}
	for _, c := range cfg.Pipeline.Changes {
		if c.OnFailure == pipeline.PolicyDeadLetter && cfg.DeadLetters == nil {
			return nil, fmt.Errorf("changes.%s says onFailure: dead-letter, and there is nowhere to put dead letters", c.Name)
		}
		if err := c.Served(); err != nil { // lint warns of it
			cfg.Logger.Warn("a change stream is not read", "stream", c.Name, "error", fmt.Errorf("%s: changes.%s: %w", c.Pos, c.Name, err))
			continue
		}
		emit, err := mapping.CompileChanges(c)
		if err != nil {
			return nil, err
		}
		name := c.Table.Ref().String()
		f.streams = append(f.streams, &stream{
			change: c, id: ledger.StreamID{Name: c.Name, Table: name}, emit: emit, table: btrpc.NewTable(name, c.AppProfile),
		})
	}
	tasks := push.Handler(push.Config{Budget: cfg.Budget, Logger: cfg.Logger}, f.deliver)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 { // a delivery has a body
			f.serveTick(w, r)
			return
		}
		tasks.ServeHTTP(w, r)
	}), nil
}

// serveTick answers a tick, with 500 if a stream could not be reconciled, so that the
// scheduler shows it.
func (f *function) serveTick(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), f.cfg.Budget)
	defer cancel()
	status := http.StatusNoContent
	for _, s := range f.streams {
		if err := f.tick(ctx, s); err != nil {
			f.cfg.Logger.ErrorContext(ctx, "a change stream could not be reconciled", "stream", s.change.Name, "error", err)
			status = http.StatusInternalServerError
		}
	}
	w.WriteHeader(status)
}

// deliver is what happens to a task: its partitions are read side by side. It is
// acknowledged whatever happens.
func (f *function) deliver(ctx context.Context, d *push.Delivery) error {
	t, err := task.DecodeChanges(d.Message.Data)
	if d.Malformed != nil {
		err = d.Malformed
	}
	if err != nil {
		f.cfg.Report(ctx, Visit{Message: d.Message.ID, Outcome: OutcomeMalformed, Reason: err})
		return nil
	}
	s := f.find(t.Stream)
	if s == nil {
		f.cfg.Logger.WarnContext(ctx, "a task of a change stream that the file does not have is dropped", "delivery", d.Message)
		return nil
	}
	if at := d.Message.PublishTime; !at.IsZero() && f.cfg.Now().Sub(at) > s.change.Window {
		return nil // the tick has published others since
	}
	slice, cancel := context.WithTimeout(ctx, s.change.Window)
	defer cancel()
	defer context.AfterFunc(f.cfg.Stopping, cancel)()
	if slice.Err() != nil {
		return nil // the process stops: it leaves nothing to others, which could do the same
	}
	partitions := make([]ledger.PartitionID, len(t.Partitions))
	for i, incarnation := range t.Partitions {
		partitions[i] = ledger.PartitionID{Stream: s.id, Incarnation: incarnation}
	}
	rest := f.visits(ctx, slice, s, partitions)
	if len(rest) == 0 {
		return nil
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	if err := f.publish(ctx, s, rest, s.change.MaxStreams*sweepFactor); err != nil {
		f.cfg.Logger.WarnContext(ctx, "the rest of a task waits for later ticks", "stream", t.Stream, "partitions", len(rest), "error", err)
	}
	return nil
}

// visits reads the partitions, maxStreams of them at a time, and returns those that are left
// when slice ends. Successors of partitions that close are read by other invocations.
func (f *function) visits(ctx, slice context.Context, s *stream, partitions []ledger.PartitionID) (left []ledger.PartitionID) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, s.change.MaxStreams)
	for i, id := range partitions {
		select {
		case slots <- struct{}{}:
		case <-slice.Done():
			return partitions[i:]
		}
		wg.Go(func() {
			defer func() { <-slots }()
			f.visit(ctx, slice, s, id)
		})
	}
	return nil
}

func (f *function) find(name string) *stream {
	for _, s := range f.streams {
		if s.change.Name == name {
			return s
		}
	}
	return nil
}

// publish sends tasks of the partitions, in groups of a size, in their order.
func (f *function) publish(ctx context.Context, s *stream, partitions []ledger.PartitionID, size int) error {
	var messages []any
	for len(partitions) > 0 {
		n := min(len(partitions), size)
		t := task.Changes{Version: task.Version, Stream: s.change.Name}
		for _, p := range partitions[:n] {
			t.Partitions = append(t.Partitions, p.Incarnation)
		}
		messages, partitions = append(messages, t), partitions[n:]
	}
	if len(messages) == 0 {
		return nil
	}
	return f.cfg.Tasks.Publish(ctx, messages...)
}

// retention is how long the table keeps its changes, 0 if that is unknown.
func (f *function) retention(ctx context.Context, s *stream) (time.Duration, error) {
	if f.cfg.Retention == nil {
		return 0, nil
	}
	d, err := f.cfg.Retention(ctx, s.change)
	if err != nil {
		return 0, fmt.Errorf("reading how long table %s keeps its changes: %w", s.change.Table.Name, err)
	}
	return d, nil
}
