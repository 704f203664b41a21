package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
)

const (
	// disturbances is how many there are, one in each part of the writes.
	disturbances = 3
	// leaseTime is short, so that the demo does not wait long for the leases of a reader that
	// is gone.
	leaseTime = 2 * time.Second
	// tickEvery is how often the reader gets a tick.
	tickEvery = 250 * time.Millisecond
)

// following is what the demo knows of the function changes.
type following struct {
	mu     sync.Mutex
	store  *severable // of the version that reads now
	closed int        // partitions that were replaced
	killed int        // versions that were cut off, as if their process had died
	moved  chan struct{}
}

// severable is a store that can be cut off from a function, as it is when a process dies:
// nothing that the function says or asks from then on has an effect.
type severable struct {
	ledger.Store
	gone atomic.Bool
}

var errSevered = errors.New("the process is gone")

// Get implements ledger.Store.
func (s *severable) Get(ctx context.Context, keys ...ledger.Key) ([]ledger.Doc, error) {
	if s.gone.Load() {
		return nil, errSevered
	}
	return s.Store.Get(ctx, keys...)
}

// Commit implements ledger.Store.
func (s *severable) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	if s.gone.Load() {
		return nil, errSevered
	}
	return s.Store.Commit(ctx, writes)
}

// List implements ledger.Store.
func (s *severable) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	if s.gone.Load() {
		return errSevered
	}
	return s.Store.List(ctx, each, collections...)
}

// openLedger opens the ledger for a version of the function.
func (f *following) openLedger(ctx context.Context, place ledger.Location, pipelineName string) (*ledger.Ledger, error) {
	store, err := file.Open(ctx, place.Path)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store = &severable{Store: store}
	return ledger.New(f.store, pipelineName, ledger.Options{Lease: leaseTime}), nil
}

// add takes what became of a visit.
func (f *following) add(_ context.Context, v changes.Visit) {
	if v.Outcome != changes.OutcomeClosed {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	close(f.signal())
	f.moved = nil
}

// signal returns the channel that the next close closes. f.mu is held.
func (f *following) signal() chan struct{} {
	if f.moved == nil {
		f.moved = make(chan struct{})
	}
	return f.moved
}

// awaitClosed waits until n partitions have closed.
func (f *following) awaitClosed(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		closed, moved := f.closed, f.signal()
		f.mu.Unlock()
		if closed >= n {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a partition of the change stream to close: %w", context.Cause(ctx))
		}
	}
}

// disturb splits the first tablet, kills the reader, or merges what was split.
func (d *Demo) disturb(ctx context.Context, step int) error {
	table := d.flights.Pipeline.Tables[0].Ref().String()
	key := []byte(cutKeys(d.flights.rows, 2*tablets)[0])
	switch step {
	case 0:
		if err := d.local.Emulator.SplitTablet(table, key); err != nil {
			return err
		}
		return d.following.awaitClosed(ctx, 1)
	case 1:
		return d.killReader(ctx)
	}
	return d.local.Emulator.MergeTablets(table, key)
}

// killReader ends the reader as the death of its process does, and starts another, which gets no
// partition before the leases of the one that is gone are over.
func (d *Demo) killReader(ctx context.Context) error {
	d.following.kill()
	return d.local.Deploy(ctx, d.flights.Loaded)
}

func (f *following) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.gone.Store(true)
	f.killed++
}

// followed is what has come of the changes.
type followed struct {
	equal, repeated int           // records
	killed, closed  int           // readers and partitions
	took            time.Duration // from the first publish to the last change
}

// follow waits until a change of each row has arrived, and compares the changes with the
// rows. began is when the first event was published.
func (d *Demo) follow(ctx context.Context, began time.Time) (out followed, differences, err error) {
	p, rows := d.flights.Pipeline, d.flights.rows
	topic := localdeploy.TopicName(p.Changes[0].To.PubSub.Topic)
	arrived := map[string]bool{}
	for read := 0; ; {
		messages := d.local.Cloud.Published(topic)
		for _, m := range messages[read:] {
			arrived[m.Attributes[sink.IDAttribute]] = true
		}
		if read = len(messages); len(arrived) >= len(rows) && d.following.closes() >= closesExpected {
			break
		}
		if err := d.local.Tick(ctx, p.Name); err != nil {
			return out, nil, err
		}
		if err := retry.Sleep(ctx, tickEvery); err != nil {
			return out, nil, fmt.Errorf("waiting for the changes of the rows, of which %d of %d have arrived: %w", len(arrived), len(rows), err)
		}
	}
	out = followed{took: time.Since(began), closed: d.following.closes(), killed: d.following.killed}
	out.equal, out.repeated, differences = compareChanges(rows, d.local.Cloud.Published(topic))
	return out, differences, nil
}

// closesExpected are the close of the tablet that is split, and those of the two that are
// merged.
const closesExpected = 3

func (f *following) closes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// compareChanges counts the changes that are as the rows say, and the records that came
// again. It names ids of those that are not as expected.
func compareChanges(rows map[string]cells, messages []push.Message) (equal, repeated int, differences error) {
	bodies := map[string][]byte{}
	seen := map[string]bool{} // rows
	var wrong []string
	for _, m := range messages {
		id := m.Attributes[sink.IDAttribute]
		if before, again := bodies[id]; again {
			repeated++
			if !sameChange(before, m.Data) {
				wrong = append(wrong, id)
			}
			continue
		}
		bodies[id] = m.Data
		row, ok := isChangeOf(rows, m.Data)
		if !ok || seen[row] {
			wrong = append(wrong, id)
			continue
		}
		seen[row] = true
		equal++
	}
	if len(wrong) > 0 {
		differences = fmt.Errorf("%d of %d records of changes differ from the rows, as %s", len(wrong), len(messages), wrong[:min(len(wrong), maxTold)])
	}
	if len(seen) != len(rows) {
		differences = errors.Join(differences, fmt.Errorf("changes of %d rows have arrived, and %d were written", len(seen), len(rows)))
	}
	return equal, repeated, differences
}

// change is what the demo reads of a record.
type change struct {
	RowKey  string
	Type    string
	Entries []struct {
		Kind, Family, Qualifier string
		ValueBase64             []byte
	}
}

// isChangeOf returns the row of a change, and whether the change sets the cells of that row
// and nothing else.
func isChangeOf(rows map[string]cells, body []byte) (row string, ok bool) {
	var c change
	if json.Unmarshal(body, &c) != nil || c.Type != "USER" || len(c.Entries) != len(rows[c.RowKey]) {
		return "", false
	}
	set := map[string]bool{}
	for _, e := range c.Entries {
		name := e.Family + ":" + e.Qualifier
		cell, exists := rows[c.RowKey][name]
		if e.Kind != "SET_CELL" || !exists || set[name] || !bytes.Equal(cell.Value, e.ValueBase64) {
			return "", false
		}
		set[name] = true
	}
	return c.RowKey, len(set) > 0
}

// sameChange reports whether two records tell of the same change; the low watermark may
// differ.
func sameChange(a, b []byte) bool {
	var first, second map[string]json.RawMessage
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil || len(first) != len(second) {
		return false
	}
	for name, value := range first {
		if name != "lowWatermark" && !bytes.Equal(value, second[name]) {
			return false
		}
	}
	return true
}
