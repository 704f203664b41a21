package writer

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// adminTimeout ends one call of table administration.
const adminTimeout = time.Minute

// inspectEvery is how often the families of a table that must not be created are read.
const inspectEvery = time.Minute

// inspection is what is known of a table's families. turn is held, without the writer's
// lock, by the one worker that reads them.
type inspection struct {
	turn   chan struct{}
	read   time.Time
	has    map[string]*adminpb.ColumnFamily
	unread error // why has is not known
}

// missing handles entries that met NOT_FOUND: they wait for a repair, or those that name
// what does not exist are refused. It returns entries to be told apart.
func (t *table) missing(items []*item, cause error) []*item {
	if t.schema.Create == pipeline.CreateIfNeeded {
		t.park(items, cause)
		return nil
	}
	families, err := t.families()
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.settled(t)
	if err != nil && len(items) > 1 && retry.Classify(err).Verdict != retry.VerdictMissing {
		for _, it := range items {
			w.move(it, suspect)
		}
		return items
	}
	if err != nil {
		for _, it := range items {
			w.end(it, t.failure(codes.NotFound, t.absent(err), cause))
		}
		return nil
	}
	t.refuseAbsent(items, families, cause)
	return nil
}

// absent says what is missing if the families cannot be read.
func (t *table) absent(err error) string {
	class := retry.Classify(err)
	if class.Verdict == retry.VerdictMissing {
		return fmt.Sprintf("the table does not exist, and tables.%s.create is %q", t.schema.Name, pipeline.CreateNever)
	}
	return fmt.Sprintf("the table or a family of it does not exist, tables.%s.create is %q, and its families cannot be read (%s)",
		t.schema.Name, pipeline.CreateNever, class.Code)
}

// refuseAbsent ends the entries that name an absent family. The others are sent once
// more, as often as the absent family of another entry explains that they failed.
func (t *table) refuseAbsent(items []*item, families map[string]*adminpb.ColumnFamily, cause error) {
	w := t.w
	var present []*item
	for _, it := range items {
		name, absent := absentFamily(it.row, families)
		if !absent {
			present = append(present, it)
			continue
		}
		w.end(it, t.failure(codes.NotFound, fmt.Sprintf("the table has no family %q", name), cause))
	}
	explained := len(present) < len(items)
	again := present[:0]
	for _, it := range present {
		if it.cleared && !explained || w.stopped {
			w.end(it, t.failure(codes.NotFound, "the table has every family that the entry names", cause))
			continue
		}
		it.cleared = true
		w.move(it, delayed)
		again = append(again, it)
	}
	if len(again) > 0 {
		t.again = append(t.again, &retries{items: again, due: time.Now()})
		t.dispatch()
	}
}

// families reads the table's families, at most once a minute.
func (t *table) families() (map[string]*adminpb.ColumnFamily, error) {
	i := &t.inspection
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-t.w.ctx.Done():
		return nil, ErrClosed
	}
	if now := time.Now(); i.read.IsZero() || now.Sub(i.read) >= inspectEvery {
		i.read = now
		i.has, i.unread = t.readFamilies()
	}
	return i.has, i.unread
}

func (t *table) readFamilies() (map[string]*adminpb.ColumnFamily, error) {
	ctx, cancel := context.WithTimeout(t.w.ctx, adminTimeout)
	defer cancel()
	conn, err := t.client.adminConn(t.w)
	if err != nil {
		return nil, err
	}
	return t.rpc.Families(ctx, conn)
}
