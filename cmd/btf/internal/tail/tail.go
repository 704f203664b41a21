// Package tail guarantees that each change of a table is shown, and those of one row in
// order, for as long as it runs: it reads all partitions of the table's change stream side by
// side and follows them through splits, merges, shifts and moves. It keeps nothing for a
// later run. If it must give up, its error says from which time on changes are missing.
package tail

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

const (
	// heartbeat is how often the service says how far a silent partition has come.
	heartbeat = 5 * time.Second
	// reconcileEvery is how often keys that no partition holds are looked after.
	reconcileEvery = 30 * time.Second
	// askTime bounds one request for the service's partitions.
	askTime = time.Minute
	// tellEvery is the shortest time between two notices of an outage.
	tellEvery = 30 * time.Second
	// patience is how long a partition may yield nothing but errors that pass by themselves.
	patience = 10 * time.Minute
	// MaxStreams is how many partitions are read at once. A table with more of them can be
	// followed by a prefix of its keys.
	MaxStreams = 1000
)

// Config says what is followed. All of it is required except End, Prefix and MaxBytes.
type Config struct {
	Table *btrpc.Table
	// Conn must carry MaxStreams calls at once.
	Conn grpc.ClientConnInterface
	// Start is the commit time from which changes are shown, and End, if it is not zero, the
	// last one that is: then Run ends.
	Start, End time.Time
	// Prefix limits what is shown to row keys that begin with it. Only partitions with such
	// keys are read.
	Prefix string
	// MaxBytes is the most bytes of a change; a larger one comes as Oversize. Beside one
	// change of each partition, nothing is held in memory.
	MaxBytes int64
	// Show is called with each change, from one goroutine. An error of it ends Run.
	Show func(*changestream.Record) error
	// Notice is called from the same goroutine with what a person may want to know.
	Notice func(text string)
}

// Run follows the change stream until the end time, an error or the end of ctx, whose cause
// it then returns.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	t := &tailer{
		Config: cfg, keys: rowrange.Prefix(cfg.Prefix), places: places{start: cfg.Start, held: map[int]*place{}},
		events: make(chan event), readers: map[int]*reader{},
	}
	defer t.running.Wait()
	defer cancel()
	return t.run(ctx)
}

// tailer is one run. All of it belongs to one goroutine, to which readers send events.
type tailer struct {
	Config
	keys    rowrange.Range // that are shown
	places  places
	readers map[int]*reader // by the number of their partition
	events  chan event
	running sync.WaitGroup
	told    time.Time // when tellRetry last told
}

// event is what a reader sends: one of its fields beside from is set. It waits until the
// event is taken, so that changes come no faster than they are shown.
type event struct {
	from   int
	item   changestream.Item
	closed *bigtablepb.ReadChangeStreamResponse_CloseStream
	retry  error // the partition is tried again
	failed error // it is not
}

func (t *tailer) run(ctx context.Context) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(reconcileEvery)
	defer ticker.Stop()
	for !t.places.finished(t.keys) {
		var err error
		select {
		case e := <-t.events:
			err = t.handle(ctx, e)
		case now := <-ticker.C:
			err = t.reconcile(ctx, now)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin opens every partition that has keys to be shown.
func (t *tailer) begin(ctx context.Context) error {
	service, err := t.ask(ctx)
	if err != nil {
		return withHint(err)
	}
	for _, r := range service {
		if _, some := rowrange.Intersect(r, t.keys); some {
			t.places.open(changestream.Opening{Range: r, Start: t.Start, LowWatermark: t.Start})
		}
	}
	return t.read(ctx)
}

func (t *tailer) ask(ctx context.Context) ([]rowrange.Range, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return changeread.Partitions(ctx, t.Table, t.Conn)
}

// read starts a reader of each partition that has none, and forgets readers of partitions
// that are gone.
func (t *tailer) read(ctx context.Context) error {
	if n := len(t.places.held); n > MaxStreams {
		return fmt.Errorf("the table has %d partitions to read, and at most %d are read at once: a key prefix selects fewer", n, MaxStreams)
	}
	for id := range t.readers {
		if t.places.held[id] == nil {
			delete(t.readers, id)
		}
	}
	for id, p := range t.places.held {
		if t.readers[id] != nil {
			continue
		}
		r := &reader{id: id, events: t.events, Reader: changeread.Reader{
			Table: t.Table, Conn: t.Conn, Opening: p.Opening, End: t.End, Heartbeat: heartbeat, MaxBytes: t.MaxBytes,
		}}
		t.readers[id] = r
		t.running.Go(func() { r.run(ctx) })
	}
	return nil
}

func (t *tailer) handle(ctx context.Context, e event) error {
	p := t.places.held[e.from]
	switch {
	case e.item.Record != nil:
		p.LowWatermark = e.item.Record.LowWatermark
		return t.show(e.item.Record)
	case e.item.Heartbeat != nil:
		p.LowWatermark = e.item.Heartbeat.LowWatermark
		return nil
	case e.retry != nil:
		t.tellRetry(p, e.retry)
		return nil
	case e.failed != nil:
		return t.giveUp(p, e.failed)
	}
	return t.close(ctx, e.from, e.closed)
}

// tellRetry says that a partition cannot be read for now. During an outage all of them
// cannot: one line a while is enough.
func (t *tailer) tellRetry(p *place, err error) {
	if now := time.Now(); now.Sub(t.told) >= tellEvery {
		t.told = now
		t.Notice(fmt.Sprintf("keys %s, and others maybe, cannot be read now and are tried again: %s", p.Range, err))
	}
}

func (t *tailer) show(r *changestream.Record) error {
	if !t.keys.Contains(r.RowKey) || !t.End.IsZero() && r.CommitTime.After(t.End) {
		return nil
	}
	return t.Show(r)
}

// close replaces a partition whose stream has ended.
func (t *tailer) close(ctx context.Context, id int, c *bigtablepb.ReadChangeStreamResponse_CloseStream) error {
	p := t.places.held[id]
	closed, err := changestream.ReadClose(p.Range, c)
	switch {
	case err != nil:
		return t.giveUp(p, err)
	case closed.Finished && !t.End.IsZero():
		t.places.complete(id)
		return nil
	case closed.Finished: // nobody has asked for an end
		return t.giveUp(p, errors.New("the service has ended the stream"))
	}
	t.places.close(id, closed.Successors, t.keys, time.Now())
	return t.read(ctx)
}

// reconcile looks after keys that no partition holds, if there are any.
func (t *tailer) reconcile(ctx context.Context, now time.Time) error {
	if t.places.areRead(t.keys) && len(t.places.pending) == 0 {
		t.places.missing = nil
		return nil
	}
	service, err := t.ask(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.Notice("keys that moved while they were read wait to be found again: " + err.Error())
		return nil
	}
	for _, o := range t.places.reconcile(service, t.keys, now) {
		if len(o.Tokens) == 0 {
			t.Notice(fmt.Sprintf("keys %s lost their place and are read again from %s: some changes come twice", o.Range, o.Start.UTC().Format(time.RFC3339)))
		}
	}
	return t.read(ctx)
}

// giveUp says from when on changes are missing, unless it is the start that is refused.
func (t *tailer) giveUp(p *place, err error) error {
	if retry.Classify(err).Verdict == retry.VerdictRejected && len(p.Tokens) == 0 && t.readers[p.id].Position().Token == "" {
		return fmt.Errorf("the start, %s, is refused: it must lie within what the table keeps of its changes, after the time at which "+
			"its change stream was turned on, and not in the future by the service's clock: %w", p.Start.UTC().Format(time.RFC3339Nano), err)
	}
	return &GaveUpError{Keys: p.Range, From: t.places.lowest(), Err: withHint(err)}
}

// withHint says what to check if the service refuses the request as a whole.
func withHint(err error) error {
	if retry.Classify(err).Code == codes.FailedPrecondition {
		return fmt.Errorf("%w; the table needs a change stream, and the application profile one cluster to route to", err)
	}
	return err
}

// GaveUpError is the end of a run that could not go on.
type GaveUpError struct {
	Keys rowrange.Range // of the partition because of which it ended
	From time.Time      // from when on changes of any key may not have been shown
	Err  error
}

// Error implements error.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("keys %s: %s; changes from %s on may be missing", e.Keys, e.Err, e.From.UTC().Format(time.RFC3339Nano))
}

func (e *GaveUpError) Unwrap() error { return e.Err }
