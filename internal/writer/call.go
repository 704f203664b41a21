package writer

import (
	"context"
	"runtime"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/metadata"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// call is one attempt at a batch. Its slices are used again.
type call struct {
	items    []*item
	rows     []*bigtablepb.MutateRowsRequest_Entry
	guard    sync.Mutex // of errs, while the call is in flight
	errs     []error
	bytes    int64
	muts     int
	failures int // attempts that these items have failed together
	cookies  metadata.MD
	deadline time.Time // the latest of the items
	end      btrpc.End

	attemptState

	slot bool // the goroutine that works with it is one of the table's workers
}

// attemptState describes the attempt at hand, from launch on.
type attemptState struct {
	client     *client
	ctx        context.Context
	cancel     context.CancelFunc
	sent, ends time.Time
	probing    bool // sent while the table answered nothing
	hung       bool // given up: items whose call is another one, or none, were taken from it

	present *Present // the columns that have kept the entry from being applied, if it asks for them

	repairing bool // a table that is still being made is missing, too
}

func (c *call) reset() {
	clear(c.items)
	clear(c.rows)
	clear(c.errs)
	c.items, c.rows, c.errs = c.items[:0], c.rows[:0], c.errs[:0]
	c.bytes, c.muts, c.failures, c.cookies, c.deadline, c.end = 0, 0, 0, nil, time.Time{}, btrpc.End{}
	c.attemptState = attemptState{}
}

func (c *call) add(it *item) {
	c.items = append(c.items, it)
	c.rows = append(c.rows, it.row)
	c.errs = append(c.errs, btrpc.ErrOmitted)
	c.bytes += it.size
	c.muts += it.muts
	if it.req.deadline.After(c.deadline) {
		c.deadline = it.req.deadline
	}
}

// work sends batches until there is nothing to send now.
func (t *table) work() {
	w := t.w
	defer w.wg.Done()
	c := w.calls.Get().(*call)
	defer w.calls.Put(c)
	defer c.reset()
	c.slot = true
	for first := true; ; first = false {
		runtime.Gosched() // requests that are ready to run join this batch
		w.mu.Lock()
		if first {
			t.starting--
		}
		if !c.slot || !t.take(c) { // it has no slot if its call hung
			if c.slot {
				c.slot = false
				t.running--
			}
			t.dispatch()
			w.mu.Unlock()
			return
		}
		t.dispatch()
		w.mu.Unlock()
		t.isolate(c, t.attempt(c))
	}
}

// attempt sends the batch and settles what came of it. It leaves the suspects of the outcome
// to its caller.
func (t *table) attempt(c *call) outcome {
	t.send(c)
	o := t.settle(c)
	if len(o.missing) > 0 {
		o.suspects = append(o.suspects, t.missing(o.missing, o.cause)...)
	}
	o.named = -1
	if n := named(c.end.Err); n < len(o.suspects) && len(o.suspects) == len(c.items) {
		o.named = n
	}
	return o
}

// send makes the call; its context is the writer's, not that of any caller.
func (t *table) send(c *call) {
	conn, err := c.client.dataConn(t.w)
	if err == nil {
		defer c.client.release(t.w, conn)
	}
	switch {
	case err != nil:
		c.end = btrpc.End{Err: &retry.NotSent{Err: err}}
	case c.items[0].unless != nil:
		c.end = t.mutateUnless(conn, c)
	default:
		c.end = t.rpc.MutateRows(c.ctx, conn, c.rows, c.cookies, c.errs, &c.guard)
		return
	}
	c.guard.Lock()
	defer c.guard.Unlock()
	for i := range c.errs {
		c.errs[i] = c.end.Err
	}
	if c.end.Err == nil && c.present != nil {
		c.errs[0] = c.present
	}
}

// mutateUnless sends an entry under its condition and, if the entry asks for it, reads the
// columns that have kept it from being applied. If that read fails, the call has failed: to
// send both again changes nothing.
func (t *table) mutateUnless(conn Conn, c *call) btrpc.End {
	end := t.rpc.MutateUnless(c.ctx, conn, c.rows[0], c.items[0].unless, c.cookies)
	if end.Err != nil || !end.Matched || !c.items[0].tell {
		return end
	}
	found, err := t.rpc.Columns(c.ctx, conn, c.rows[0].RowKey, c.items[0].unless)
	if err != nil {
		return btrpc.End{Err: err}
	}
	c.present = &Present{Columns: found}
	return end
}
