// Package writer applies entries to Bigtable and guarantees that it reports as
// applied only what the service has said is applied, that an entry known to be
// applied is never sent again, that an entry which may not be repeated is sent again
// only when it is certain that it had no effect, and that a verdict on an entry
// (*retry.Rejected) is on that entry alone.
//
// Order: entries of one row in one Apply call are never in flight together, unless they
// are Unordered; each is sent when the one before it has ended, in their order. Nothing else is ordered: the
// service applies the entries of a request in any order, and requests overlap.
// Entries that carry an idempotency token go last, after everything else of the call
// is applied.
//
// All Apply calls share one batcher for each table. While the table's calls are in
// flight the next batch fills; when one ends, what is there goes. No call waits for a
// timer while the service answers well.
//
// A call that is not answered is given up after a few seconds. Entries that are harmless
// when they are applied late are sent again then, and are applied within ten seconds of the
// table's recovery (leastPatience, the longest hungPause and the call itself); the rest waits
// for the call's end, after a minute, and so does every later entry of this process that
// a late application would undo. A call is given more time if
// its table usually takes seconds, and one second more for each 4 MiB.
package writer

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Entry is one row's mutations, applied atomically and in their order. Row and Unless
// must never change again: a call with them may still go on when Apply has returned.
type Entry struct {
	Table pipeline.TableRef
	Row   *bigtablepb.MutateRowsRequest_Entry
	// Unless, if it is set, makes the entry conditional: it is sent alone, as
	// CheckAndMutateRow, and applied unless the filter yields a cell of its row.
	// Finding one is success, unless Tell is set. Only an entry that writes what the
	// filter looks for is sent again after an ambiguous end.
	Unless *bigtablepb.RowFilter
	// Tell asks which columns the filter has yielded if it keeps the entry from being
	// applied: the outcome is then a *Present.
	Tell bool
	// Unordered lets the entry be in flight together with others of its row. It is for
	// entries that commute and carry idempotency tokens: the service applies the entries
	// of a request in any order.
	Unordered bool
}

// Present is the outcome of an entry with Tell that was not applied, because its row has
// cells that Unless yields. Nothing is known to be wrong with the entry.
type Present struct {
	Columns []btrpc.Column // that Unless yields, as they were just after the call
}

// Error implements error.
func (p *Present) Error() string {
	return fmt.Sprintf("not applied: %d of the columns of its condition are there", len(p.Columns))
}

// Conn is a connection to one instance, as btrpc dials it.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Schema is what a writer must know of a table.
type Schema struct {
	Name       string // the table's name in the pipeline file, for messages
	Computed   bool   // the id is computed of records, and so no error and no log line names it
	AppProfile string
	View       string // the id of an authorized view; empty: the whole table
	Create     pipeline.Create
	Families   []*pipeline.Family
}

// Config is what a Writer works with. All of Schema, Dial, DialAdmin, Limits and
// Repair are required.
type Config struct {
	// Schema finds the schema of a table; see Schemas. Its error ends the entry.
	Schema func(pipeline.TableRef) (Schema, error)
	// Dial connects to an instance. It must not block on the network; ctx lives as
	// long as the connection.
	Dial func(ctx context.Context, project, instance string) (Conn, error)
	// DialAdmin connects to the table administration of an instance. It is called
	// first when a table or family turns out to be missing.
	DialAdmin func(ctx context.Context, project, instance string) (Conn, error)
	Limits    pipeline.Limits
	Repair    pipeline.Repair
	// SingleTable says that the pipeline names exactly one table, which may then
	// hold all of Limits.InFlight. Otherwise one table holds at most half of it, so
	// that one that does not answer leaves room for the others.
	SingleTable bool
	// Ordered says that the order in which Apply calls of this and of other processes
	// follow one another counts (Pub/Sub's message ordering): then nothing is sent
	// beside a hung call that may still apply it.
	Ordered bool
	// MaxEntryBytes is the largest entry sent; 0 means MaxEntryBytes.
	MaxEntryBytes int64
	Logger        *slog.Logger // nil: slog.Default
	// Random spreads backoffs; nil: math/rand. It is called under a lock.
	Random func() float64

	moved func(from, to state) // for tests; nil: none
}

// Bounds of the service and of the official clients.
const (
	// MaxMutations is the largest number of mutations in one entry or request. The
	// service's limit is 100,000, and some of its checks are "less than".
	MaxMutations = 99_999
	// MaxEntryBytes is the largest serialized entry.
	MaxEntryBytes = 200 << 20
)

const (
	// attemptTimeout ends a call that is not answered, so that the next attempt may
	// take another connection.
	attemptTimeout = time.Minute
	// longestApply bounds an entry of an Apply call whose context has no deadline.
	longestApply = 10 * time.Minute
)

// Writer applies entries. It is safe for concurrent use. The table in states.go shows on one page
// how its parts hand an entry on.
type Writer struct {
	cfg    Config
	log    *slog.Logger
	seed   maphash.Seed
	ctx    context.Context // of every call; ends in Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // workers and repairs
	calls  sync.Pool      // *call

	mu      sync.Mutex // guards everything below, and tables, clients and requests
	tables  map[pipeline.TableRef]*table
	clients clients
	held    hold // accepted entries without an outcome
	waiting waitlist
	breaker breaker
	stats   Stats
	watch   watch
	closed  bool          // no new Apply
	stopped bool          // no new call
	drained chan struct{} // closed when nothing is held and closed is set
}

// New returns a Writer. It connects to nothing before the first Apply. The caller
// must Close it.
func New(cfg Config) (*Writer, error) {
	b, f := cfg.Limits.Batch, cfg.Limits.InFlight
	switch {
	case cfg.Schema == nil || cfg.Dial == nil || cfg.DialAdmin == nil:
		return nil, fmt.Errorf("making a writer: Schema, Dial and DialAdmin are required")
	case b.MaxEntries < 1 || b.MaxBytes < 1 || b.Concurrency < 1:
		return nil, fmt.Errorf("making a writer: limits.batch must be positive: %+v", b)
	case f.MaxEntries < 1 || f.MaxBytes < 1:
		return nil, fmt.Errorf("making a writer: limits.inFlight must be positive: %+v", f)
	case cfg.Limits.InstanceClients < 1 || cfg.Limits.TableIdle <= 0:
		return nil, fmt.Errorf("making a writer: limits.instanceClients and limits.tableIdle must be positive")
	case cfg.Repair.MaxAttempts < 1 || cfg.Repair.InitialBackoff <= 0 || cfg.Repair.MaxBackoff < cfg.Repair.InitialBackoff:
		return nil, fmt.Errorf("making a writer: repair must be positive and its backoffs in order: %+v", cfg.Repair)
	}
	if cfg.MaxEntryBytes == 0 {
		cfg.MaxEntryBytes = MaxEntryBytes
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	w := &Writer{
		cfg: cfg, log: cfg.Logger, seed: maphash.MakeSeed(),
		tables:  map[pipeline.TableRef]*table{},
		breaker: breaker{limit: cfg.Limits.ConsecutiveRejections},
		drained: make(chan struct{}),
	}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.calls.New = func() any { return new(call) }
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

// Apply applies the entries and reports on each: nil means applied (or, under
// Unless, not needed); a *retry.Rejected is the service's verdict on that entry
// alone; any other error means that it is not known to be applied. ErrHeld marks an
// entry with an idempotency token that was not sent because another entry of the
// call was not applied; ErrNotAdmitted one that found no room.
//
// Apply waits until every entry has its outcome or ctx is done. ctx's deadline is
// the entries' deadline; a caller that leaves earlier stops waiting, and its entries
// finish.
func (w *Writer) Apply(ctx context.Context, entries []Entry) []error {
	if len(entries) == 0 {
		return nil
	}
	r := w.newRequest(ctx, entries)
	w.mu.Lock()
	entered := w.begin(r)
	w.mu.Unlock()
	if entered != nil && !w.awaitAdmission(ctx, r, entered) {
		return w.leave(ctx, r)
	}
	select {
	case <-r.done:
		return r.errs
	case <-ctx.Done():
		return w.leave(ctx, r)
	}
}

// leave gives up waiting: what was not accepted is withdrawn, the rest finishes.
func (w *Writer) leave(ctx context.Context, r *request) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.withdraw(r, fmt.Errorf("%w: %w", ErrNotAdmitted, context.Cause(ctx)))
	errs := make([]error, len(r.errs))
	for i := range r.items {
		errs[i] = r.errs[i]
		if r.items[i].state != ended {
			errs[i] = fmt.Errorf("waiting for the outcome: %w", context.Cause(ctx))
		}
	}
	return errs
}

// Close refuses new entries, waits until those accepted have their outcomes or ctx is
// done, ends every call and closes the connections. It returns an error when entries
// were left without an outcome.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.refuseWaiting()
		w.checkDrained()
	}
	w.mu.Unlock()
	var err error
	select {
	case <-w.drained:
	case <-ctx.Done():
		w.mu.Lock()
		err = fmt.Errorf("closing the writer with %d entries in flight: %w", w.held.entries, context.Cause(ctx))
		w.mu.Unlock()
	}
	w.stop()
	w.cancel()
	w.wg.Wait()
	w.closeClients()
	return err
}

// stop ends what is not in a call.
func (w *Writer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	w.watch.stop()
	for _, t := range w.tables {
		t.abandon()
	}
}
