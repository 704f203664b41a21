package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// A scan is run by workers that crash, pause, are overtaken and lose replies, their
// tasks delivered again in any order, until everything is published.
//
// covers: SC-05, SC-06, SC-18
func TestAScanSurvivesItsWorkers(t *testing.T) {
	checkInBubble(t, func(t *rapid.T) {
		c := newChaos(t)
		for step := 0; !c.done(); step++ {
			if step == 400 {
				c.calm = true
			}
			if step == 2000 {
				t.Fatal("the scan does not end")
			}
			c.step()
		}
		c.assert()
	})
}

const leaseTime = time.Second

// chaos is a scan with rows of its own, the sink, and the workers on it.
type chaos struct {
	*rapid.T
	store   *storetest.Memory
	scan    *ledger.Scan
	rows    int // of each split
	calm    bool
	workers []*worker
	sink    map[string]int // deliveries of each row
	durable map[int]string // last position committed, by split
	fences  map[int]int64
	told    int
	early   bool // completion was told before the last row was delivered
}

// worker holds a split, and dies with its store.
type worker struct {
	store *storetest.Faulty
	lease *ledger.Lease
	next  int // row to be read
	base  int // row from which it read
}

func newChaos(t *rapid.T) *chaos {
	c := &chaos{
		T: t, store: storetest.NewMemory(), rows: rapid.IntRange(0, 4).Draw(t, "rows of a split"),
		sink: make(map[string]int), durable: make(map[int]string), fences: make(map[int]int64),
	}
	l := c.ledger(c.store)
	if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
		t.Fatal(err)
	}
	splits, limit := rapid.SampledFrom([]int{1, 2, 3, 35}).Draw(t, "splits"), int64(0)
	if rapid.Bool().Draw(t, "in order") {
		limit = 1000
	}
	var err error
	if c.scan, err = l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(splits, c.rows+1), Limit: limit}); err != nil {
		t.Fatal(err)
	}
	c.workers = make([]*worker, rapid.IntRange(1, 3).Draw(t, "workers"))
	return c
}

func (c *chaos) ledger(store ledger.Store) *ledger.Ledger {
	return ledger.New(store, "p", ledger.Options{Lease: leaseTime})
}

// clean is the ledger without faults.
func (c *chaos) clean() *ledger.Ledger { return c.ledger(c.store) }

func (c *chaos) done() bool {
	scan, err := c.clean().Scan(c.Context(), "s")
	if err != nil {
		c.Fatal(err)
	}
	return scan.Published
}

// step lets one worker do one thing.
func (c *chaos) step() {
	i := rapid.IntRange(0, len(c.workers)-1).Draw(c.T, "worker")
	if !c.calm && rapid.IntRange(0, 9).Draw(c.T, "pause") == 0 {
		time.Sleep(leaseTime) // everybody: any lease may be taken over
	}
	w := c.workers[i]
	if w == nil {
		c.workers[i] = c.start()
		return
	}
	if w.lease != nil && !c.calm && rapid.IntRange(0, 19).Draw(c.T, "break") == 0 {
		// Its holder is taken for dead, and is not.
		if err := c.clean().Break(c.Context(), w.lease.Split().Task, w.lease.Fence()); err != nil {
			c.Fatal(err)
		}
	}
	if c.calm {
		w.store.Next = func(bool) storetest.Fault { return storetest.FaultNone }
	}
	err := c.work(w)
	if err != nil && !stopped(err) && !errors.Is(err, ledger.ErrLost) {
		c.Fatal(err)
	}
	if err != nil && (w.store.Crashed() || errors.Is(err, ledger.ErrLost)) || w.lease == nil {
		c.workers[i] = nil
	}
}

// start delivers a task to a new worker; nil where it could not start.
func (c *chaos) start() *worker {
	w := &worker{store: &storetest.Faulty{Store: c.store, Next: faults(c.T, 8)}}
	if c.calm {
		w.store.Next = func(bool) storetest.Fault { return storetest.FaultNone }
	}
	task := c.task()
	lease, err := c.ledger(w.store).Acquire(c.Context(), task, "w")
	var held *ledger.HeldError
	switch {
	case errors.As(err, &held):
		if c.calm {
			time.Sleep(held.Left)
		}
		return nil
	case errors.Is(err, ledger.ErrFinished):
		c.publish(w, task)
		return nil
	case err != nil && !stopped(err) && !errors.Is(err, ledger.ErrWaiting):
		c.Fatal(err)
	case err != nil:
		return nil
	}
	if lease.Fence() <= c.fences[task.Index] {
		c.Fatalf("%v is held under fence %d, and was under %d", task, lease.Fence(), c.fences[task.Index])
	}
	c.fences[task.Index] = lease.Fence()
	split := lease.Split()
	if split.Position < c.durable[task.Index] {
		c.Fatalf("%v stands at %q, but %q was committed", task, split.Position, c.durable[task.Index])
	}
	w.lease, w.base = lease, task.Index*(c.rows+1)
	for w.base < task.Index*(c.rows+1)+c.rows && row(w.base) <= split.Position {
		w.base++
	}
	w.next = w.base
	return w
}

// task is one that may be delivered: any, unless things are to come to an end.
func (c *chaos) task() ledger.Task {
	if !c.calm {
		return task(c.scan, rapid.IntRange(0, c.scan.Splits-1).Draw(c.T, "task"))
	}
	tasks, err := c.clean().Unfinished(c.Context(), c.scan)
	if err != nil {
		c.Fatal(err)
	}
	if len(tasks) == 0 { // all that is left is to publish
		return task(c.scan, 0)
	}
	return tasks[0]
}

// work reads a row into the sink, commits, gives up or finishes.
func (c *chaos) work(w *worker) error {
	split := w.lease.Split()
	end := split.Index*(c.rows+1) + c.rows
	p := ledger.Progress{Counts: ledger.Counts{Rows: int64(w.next - w.base)}}
	if w.next > w.base {
		p.Position = row(w.next - 1)
	}
	action := rapid.IntRange(0, 9).Draw(c.T, "action")
	switch {
	case w.next < end && (action < 6 || c.calm):
		c.sink[row(w.next)]++
		w.next++
		return nil
	case w.next == end && (action < 8 || c.calm):
		task, lease := split.Task, w.lease
		next, err := lease.Finish(c.Context(), p)
		if err != nil {
			return err
		}
		w.lease = nil
		c.follow(w, task, next)
	case action < 8:
		if err := w.lease.Commit(c.Context(), p); err != nil {
			return err
		}
		c.durable[split.Index] = max(c.durable[split.Index], p.Position)
	default:
		if err := w.lease.Release(c.Context(), p, ledger.Cause{Err: errors.New("enough")}); err != nil {
			return err
		}
		w.lease = nil
		c.durable[split.Index] = max(c.durable[split.Index], p.Position)
	}
	return nil
}

// publish does what is due after a split that was found finished.
func (c *chaos) publish(w *worker, task ledger.Task) {
	next, err := c.ledger(w.store).FollowUp(c.Context(), task)
	if err != nil {
		if !stopped(err) {
			c.Fatal(err)
		}
		return
	}
	c.follow(w, task, next)
}

func (c *chaos) follow(w *worker, after ledger.Task, next ledger.FollowUp) {
	if next.Next != nil && next.Next.Index != after.Index+1 {
		c.Fatalf("after %v comes %v", after, *next.Next)
	}
	if next.Scan == nil {
		return
	}
	c.told++
	c.early = c.early || len(c.sink) < c.scan.Splits*c.rows
	if err := c.ledger(w.store).MarkPublished(c.Context(), "s"); err != nil && !stopped(err) {
		c.Fatal(err)
	}
}

func (c *chaos) assert() {
	scan, err := c.clean().Scan(c.Context(), "s")
	if err != nil {
		c.Fatal(err)
	}
	if c.told == 0 {
		c.Error("completion was not told")
	}
	if scan.State == ledger.ScanFailed && strings.Contains(scan.Error, "leased 20 times without progress") {
		return // a split whose workers died twenty times in a row
	}
	if want := (ledger.Counts{Rows: int64(c.scan.Splits * c.rows)}); scan.State != ledger.ScanDone || scan.Counts != want {
		c.Errorf("the scan is %s with %+v, want done with %+v: %s", scan.State, scan.Counts, want, scan.Error)
	}
	if c.early {
		c.Error("completion was told before the last row was delivered")
	}
	for i := range c.scan.Splits {
		for r := range c.rows {
			if key := row(i*(c.rows+1) + r); c.sink[key] == 0 {
				c.Errorf("row %s of split %d is missing", key, i)
			}
		}
	}
}
