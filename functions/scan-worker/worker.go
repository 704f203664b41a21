// Package scanworker guarantees that every row of a split reaches the sink at least
// once, whatever happens to the workers that read it: one at a time holds the split's
// lease, what it commits is acknowledged by the sink, and a task is acknowledged only
// when the split is finished or another message will bring it back.
package scanworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// Budget is how long one delivery may take: under the service's timeout (110 s),
	// which is under the subscription's ack deadline (120 s).
	Budget = 100 * time.Second
	// Slice is how long one delivery reads; then it publishes its own continuation.
	Slice = 45 * time.Second
	// CommitEvery is the shortest time between two commits of a split: what a crash
	// makes a sink see twice.
	CommitEvery = 5 * time.Second
)

// Table is read from; *bigtable.Table is one, of a client that btrpc.Dialer.Reader made.
type Table interface {
	ReadRows(ctx context.Context, rows bigtable.RowSet, f func(bigtable.Row) bool, opts ...bigtable.ReadOption) error
}

// DeadLetters keeps what a policy gives up on. nil means that every letter is durable.
type DeadLetters interface {
	Put(ctx context.Context, letters []deadletter.Letter) error
}

// Config is what the function needs. All of it is required, but DeadLetters only where
// a scan's policy says dead-letter.
type Config struct {
	Pipeline *pipeline.Pipeline
	Ledger   *ledger.Ledger
	// Table opens the table of a scan under the scan's application profile. It is
	// asked for each task, so it keeps its clients.
	Table func(context.Context, *pipeline.Scan) (Table, error)
	// Sink opens where a scan's records go. It is asked for each task, too.
	Sink        func(context.Context, *pipeline.Scan) (relay.Sink, error)
	DeadLetters DeadLetters
	Tasks       scanjob.Publisher // to the workers
	Done        scanjob.Publisher // completion events
	// Holder is this process in leases.
	Holder ledger.Holder
	// Memory bounds what all tasks of the process hold of rows together; nil: each task
	// is bounded by its scan's fetch alone.
	Memory                     *relay.Memory
	Budget, Slice, CommitEvery time.Duration
	// Stopping ends when the process is to stop: then every slice does.
	Stopping context.Context
	Logger   *slog.Logger
	Now      func() time.Time
	// Report is called once with the outcome of each delivery, also of one that is no task.
	Report func(context.Context, Summary)
}

// Outcome is what became of a task.
type Outcome string

// Values of Outcome. All but returned and held acknowledge the task.
const (
	OutcomeDone      Outcome = "done"      // the split is finished
	OutcomeFailed    Outcome = "failed"    // the split has failed for good
	OutcomeContinued Outcome = "continued" // the slice is over; another task was published
	OutcomeReturned  Outcome = "returned"  // it went wrong; the same task brings it back
	OutcomeHeld      Outcome = "held"      // another worker has it
	OutcomeVoid      Outcome = "void"      // there is nothing to do
	OutcomeMalformed Outcome = "malformed" // the delivery is no task
)

// Summary says what became of one task.
type Summary struct {
	Message    string // the id of the delivery's message; empty if it has none
	Scan, Name string
	Split      int
	Outcome    Outcome
	Fence      int64 // under which the split was leased, counted from 1; 0: it was not
	ledger.Counts
	Bytes    int64 // read, as estimated for fetch.maxBytes
	Duration time.Duration
	Failures []Failure // what the policy has taken
	Reason   error     // why it was returned, failed, void or malformed
}

type function struct {
	cfg Config

	mu    sync.Mutex
	plans map[string]*plan // of what the options make of each scan
}

// plan is a scan ready to be read.
type plan struct {
	scan   *pipeline.Scan
	emit   *mapping.Emit
	filter *bigtablepb.RowFilter
}

// New compiles the pipeline's scans and returns the function as an HTTP handler of
// Pub/Sub deliveries. It fails where one does not compile.
func New(cfg Config) (http.Handler, error) {
	f := &function{cfg: cfg, plans: map[string]*plan{}}
	for _, s := range cfg.Pipeline.Scans {
		if s.OnFailure == pipeline.PolicyDeadLetter && cfg.DeadLetters == nil {
			return nil, fmt.Errorf("scan %s says onFailure: dead-letter, and there is nowhere to put dead letters", s.Name)
		}
		if _, err := f.plan(s.Name, task.Options{}); err != nil {
			return nil, err
		}
	}
	return push.Handler(push.Config{Budget: cfg.Budget, Logger: cfg.Logger}, f.deliver), nil
}

// maxPlans bounds the plans that are kept; options of requests make more.
const maxPlans = 100

func (f *function) plan(name string, o task.Options) (*plan, error) {
	key, err := task.Encode(task.Scan{Name: name, Options: o})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.plans[string(key)]; p != nil {
		return p, nil
	}
	p := &plan{}
	if p.scan, err = scanjob.Find(f.cfg.Pipeline, name, o); err != nil {
		return nil, err
	}
	if p.emit, err = mapping.CompileEmit(p.scan); err != nil {
		return nil, err
	}
	if p.filter, err = mapping.ReadFilter(p.scan); err != nil {
		return nil, err
	}
	if len(f.plans) >= maxPlans {
		clear(f.plans)
	}
	f.plans[string(key)] = p
	return p, nil
}

// deliver is what happens to one delivery.
func (f *function) deliver(ctx context.Context, d *push.Delivery) error {
	began := f.cfg.Now()
	t, err := task.DecodeScan(d.Message.Data)
	if d.Malformed != nil {
		err = d.Malformed
	}
	s := Summary{Message: d.Message.ID, Scan: t.Scan, Name: t.Name, Split: t.Split}
	switch {
	case err == nil:
		err = f.handle(ctx, t, &s)
	case errors.Is(err, task.ErrUnknown):
		// Another version of this program has sent it, which may be the next one here.
		s.Outcome, s.Reason = OutcomeReturned, err
	default: // no other delivery can do better
		s.Outcome, s.Reason = OutcomeMalformed, err
		err = nil
	}
	s.Duration = f.cfg.Now().Sub(began)
	f.cfg.Report(ctx, s)
	return err
}

func (f *function) handle(ctx context.Context, t task.Scan, s *Summary) error {
	split := ledger.Task{Scan: t.Scan, Attempt: t.Attempt, Index: t.Split}
	lease, err := f.cfg.Ledger.Acquire(ctx, split, f.cfg.Holder)
	var held *ledger.HeldError
	switch {
	case errors.Is(err, ledger.ErrFinished):
		return f.finished(ctx, t, split, s)
	case errors.Is(err, ledger.ErrWaiting), errors.Is(err, ledger.ErrNotFound):
		s.Outcome, s.Reason = OutcomeVoid, err
		return nil
	case errors.As(err, &held):
		s.Outcome = OutcomeHeld
		return err
	case err != nil:
		s.Outcome, s.Reason = OutcomeReturned, err
		return err
	}
	s.Fence = lease.Fence()
	w := &work{function: f, task: t, lease: lease, summary: s}
	return w.run(ctx)
}

// finished tells again what follows a split that has ended: its worker may have died
// before it did.
func (f *function) finished(ctx context.Context, t task.Scan, split ledger.Task, s *Summary) error {
	next, err := f.cfg.Ledger.FollowUp(ctx, split)
	if err == nil {
		err = f.follow(ctx, t, next)
	}
	s.Outcome, s.Reason = OutcomeVoid, ledger.ErrFinished
	if err != nil {
		s.Outcome, s.Reason = OutcomeReturned, err
	}
	return err
}

// follow publishes what is due after a split.
func (f *function) follow(ctx context.Context, t task.Scan, next ledger.FollowUp) error {
	if next.Next != nil {
		if err := f.cfg.Tasks.Publish(ctx, scanjob.Task(*next.Next, t.Name, t.Options)); err != nil {
			return err
		}
	}
	if next.Scan != nil {
		return scanjob.Announce(ctx, f.cfg.Ledger, f.cfg.Done, next.Scan)
	}
	return nil
}
