package writer

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// repairs holds the entries that wait until their table, or a family of it, is made.
type repairs struct {
	parked    []*item
	parkedBy  error // the last NOT_FOUND of them
	repairing bool
}

// park keeps entries until the table is repaired.
func (t *table) park(items []*item, cause error) {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range items {
		w.move(it, parked)
	}
	t.parked = append(t.parked, items...)
	t.parkedBy = cause
	if !t.repairing && !w.stopped {
		t.repairing = true
		w.wg.Add(1)
		go t.repair()
	} else if w.stopped {
		t.endParked(ErrClosed)
	}
}

// repair ensures the table and its declared families and applies what is parked, as
// often and at the pace that the pipeline's repair section says.
func (t *table) repair() {
	w := t.w
	defer w.wg.Done()
	backoff := retry.Backoff{Initial: w.cfg.Repair.InitialBackoff, Max: w.cfg.Repair.MaxBackoff, Jitter: 0.25}
	for attempt := 1; ; attempt++ {
		families, err := t.ensure()
		if err == nil {
			t.applyParked(families)
		}
		w.mu.Lock()
		t.endExpired(time.Now())
		if len(t.parked) > 0 && (attempt >= w.cfg.Repair.MaxAttempts || w.stopped) {
			t.giveUp(attempt, err)
		}
		done := len(t.parked) == 0
		t.repairing = !done
		delay := backoff.Delay(attempt, w.cfg.Random())
		w.settled(t)
		t.dispatch()
		w.mu.Unlock()
		if done {
			return
		}
		_ = retry.Sleep(w.ctx, delay) // the next attempt sees whether the writer ends
	}
}

// giveUp ends what is parked with what stands in the way.
func (t *table) giveUp(attempts int, err error) {
	cause := err
	if cause == nil {
		cause = t.parkedBy
	}
	code := classify(cause).Code
	reason := fmt.Sprintf("the table or a family is missing, and %d attempts at repair failed", attempts)
	if code == codes.PermissionDenied {
		reason += " (creating needs bigtable.tables.create and bigtable.tables.update)"
	}
	t.endParked(t.failure(code, reason, cause))
}

func (t *table) endParked(err error) {
	items := t.parked
	t.parked = nil
	for _, it := range items {
		t.w.end(it, err)
	}
}

// endExpired ends parked entries whose deadline has passed.
func (t *table) endExpired(now time.Time) {
	left := t.parked[:0]
	for _, it := range t.parked {
		if now.Before(it.req.deadline) {
			left = append(left, it)
			continue
		}
		t.w.end(it, t.failure(codes.NotFound, "not repaired before the event's deadline", t.parkedBy))
	}
	clear(t.parked[len(left):])
	t.parked = left
}

// applyParked sends what is parked. What fails so again is parked again; what names a
// family that the table now lacks is undeclared, and repair cannot help it.
func (t *table) applyParked(families map[string]*adminpb.ColumnFamily) {
	w := t.w
	w.mu.Lock()
	var items []*item
	for _, it := range t.parked {
		if name, absent := absentFamily(it.row, families); absent {
			w.end(it, t.failure(codes.NotFound, fmt.Sprintf("the table has no family %q, and tables.%s declares none", name, t.schema.Name), t.parkedBy))
			continue
		}
		items = append(items, it)
	}
	t.parked = nil
	w.mu.Unlock()
	c := w.calls.Get().(*call)
	defer w.calls.Put(c)
	defer c.reset()
	for len(items) > 0 {
		items = t.sendParked(c, items)
	}
}

// sendParked sends the first of the items, as many as make a batch, and returns the rest.
func (t *table) sendParked(c *call, items []*item) []*item {
	w := t.w
	w.mu.Lock()
	c.reset()
	now := time.Now()
	for len(items) > 0 && t.fits(c, items[0]) {
		t.add(c, items[0], now)
		items = items[1:]
	}
	if len(c.items) > 0 {
		t.launch(c, now)
	}
	w.mu.Unlock()
	if len(c.items) > 0 {
		c.repairing = true
		t.isolate(c, t.attempt(c))
	}
	return items
}

// ensure makes one attempt to see to it that the table exists with its declared
// families, and returns the families it has. What others create at the same time counts.
func (t *table) ensure() (map[string]*adminpb.ColumnFamily, error) {
	ctx, cancel := context.WithTimeout(t.w.ctx, adminTimeout)
	defer cancel()
	conn, err := t.client.adminConn(t.w)
	if err != nil {
		return nil, err
	}
	declared := t.schema.Declared()
	has, err := t.rpc.Families(ctx, conn)
	if retry.IsCode(err, codes.NotFound) {
		if err = t.rpc.Create(ctx, conn, declared); err == nil {
			t.created(1, 0)
			return declared, nil
		}
		if retry.IsCode(err, codes.AlreadyExists) {
			has, err = t.rpc.Families(ctx, conn)
		}
	}
	// Each lost race means that another has added one family at least.
	for range len(declared) + 1 {
		if err != nil {
			return nil, err
		}
		lacks := map[string]*adminpb.ColumnFamily{}
		for name, f := range declared {
			if _, ok := has[name]; !ok {
				lacks[name] = f
			}
		}
		if len(lacks) == 0 {
			return has, nil
		}
		if err = t.rpc.AddFamilies(ctx, conn, lacks); err == nil {
			t.created(0, len(lacks))
		} else if !retry.IsCode(err, codes.AlreadyExists) {
			return nil, err
		}
		has, err = t.rpc.Families(ctx, conn)
	}
	return nil, fmt.Errorf("ensuring the families of %s: others keep changing them", t.title())
}

// created counts and logs what repair made.
func (t *table) created(tables, families int) {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.TablesCreated += int64(tables)
	w.stats.FamiliesAdded += int64(families)
	w.log.Info("repaired a missing table", "table", t.title(), "tablesCreated", tables, "familiesAdded", families)
}
