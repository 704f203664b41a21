package ledger_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// rowKeys are the keys of the model's table.
var rowKeys = strings.Split("abcdefghijklmnop", "")

// shortGraces are the default ones, divided by 60: a check of many properties ends after a
// day by the bubble's clock.
var shortGraces = changestream.Graces{Tokens: 2 * time.Second, Tokenless: 20 * time.Second, Rewind: time.Minute, Stale: 15 * time.Second}

var streamID = ledger.StreamID{Name: "s", Table: "projects/p/instances/i/tables/t"}

// tailed is a table whose changes are read through a real ledger, by holders that crash,
// pause and lose replies, and work between any two calls of one another. A token's value
// is the number of changes before it.
type tailed struct {
	*rapid.T
	store     *storetest.Memory
	bounds    []string // where tablets begin, but for the first
	log       []change
	delivered map[int]bool
	paused    []*holder
	calm      bool
	depth     int // of holders that work within a call of another
}

type change struct {
	key string
	at  time.Time
}

// holder has a partition, and what it has read of it.
type holder struct {
	lease *ledger.PartitionLease
	at    *changestream.Position // read up to here, not committed
}

func (w *tailed) tablets() []rowrange.Range {
	out := []rowrange.Range{{}}
	for _, b := range w.bounds {
		out[len(out)-1].End = b
		out = append(out, rowrange.Range{Start: b})
	}
	return out
}

// cut begins or ends a tablet at a bound.
func (w *tailed) cut() {
	bound := rapid.SampledFrom(rowKeys[1:]).Draw(w.T, "bound")
	if i, found := slices.BinarySearch(w.bounds, bound); found {
		w.bounds = slices.Delete(w.bounds, i, i+1)
	} else {
		w.bounds = slices.Insert(w.bounds, i, bound)
	}
}

// place is how many changes lie before the place where an opening reads on for a key.
func (w *tailed) place(o changestream.Opening, key string) int {
	if len(o.Tokens) == 0 {
		i, _ := slices.BinarySearchFunc(w.log, o.Start, func(c change, at time.Time) int { return c.at.Compare(at) })
		return i
	}
	for _, t := range o.Tokens {
		if t.Range.Contains(key) {
			n, err := strconv.Atoi(t.Value)
			if err != nil {
				w.Fatal(err)
			}
			return n
		}
	}
	w.Fatalf("no token of %q among %d", key, len(o.Tokens))
	return 0
}

// ledger returns the ledger of a process of its own.
func (w *tailed) ledger() (*ledger.Ledger, *storetest.Faulty) {
	fail := faults(w.T, 30)
	f := &storetest.Faulty{Store: w.store, Next: func(commit bool) storetest.Fault {
		if w.calm {
			return storetest.FaultNone
		}
		if w.depth < 2 && rapid.IntRange(0, 6).Draw(w.T, "meanwhile") == 0 {
			w.depth++
			w.work()
			w.depth--
		}
		return fail(commit)
	}}
	return ledger.New(f, "p", ledger.Options{Lease: leaseTime}), f
}

// clean is the ledger without faults.
func (w *tailed) clean() *ledger.Ledger {
	return ledger.New(w.store, "p", ledger.Options{Lease: leaseTime})
}

func (w *tailed) topology() *ledger.Topology {
	t, err := w.clean().Topology(context.Background(), streamID)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return t
}

// may fails the test on an error that no fault explains.
func (w *tailed) may(err error) bool {
	var held *ledger.HeldError
	if err != nil && !stopped(err) && !errors.Is(err, ledger.ErrLost) && !errors.Is(err, ledger.ErrNotFound) && !errors.As(err, &held) && !errors.Is(err, ledger.ErrConflict) {
		w.Fatal(err)
	}
	return err == nil
}

// work is one thing that one process does.
func (w *tailed) work() {
	switch rapid.IntRange(0, 7).Draw(w.T, "work") {
	case 0:
		w.log = append(w.log, change{rapid.SampledFrom(rowKeys).Draw(w.T, "key"), time.Now()})
	case 1:
		w.cut()
	case 2:
		w.tick()
	case 3:
		if n := len(w.paused); n > 0 { // wakes, maybe long after its lease is over
			i := rapid.IntRange(0, n-1).Draw(w.T, "paused")
			h := w.paused[i]
			w.paused = slices.Delete(w.paused, i, i+1)
			w.goOn(h)
		}
	case 4:
		time.Sleep(time.Duration(rapid.IntRange(1, 6000).Draw(w.T, "milliseconds")) * time.Millisecond)
	default:
		if t := w.topology(); t != nil && len(t.Partitions) > 0 {
			slices.SortFunc(t.Partitions, func(a, b *ledger.Partition) int { return strings.Compare(a.Range.Start, b.Range.Start) })
			w.visit(rapid.SampledFrom(t.Partitions).Draw(w.T, "partition"))
		}
	}
	w.check()
}

func (w *tailed) visit(p *ledger.Partition) {
	l, _ := w.ledger()
	var lease *ledger.PartitionLease
	p, err := l.Partition(context.Background(), p.PartitionID)
	if err == nil {
		lease, err = l.AcquirePartition(context.Background(), p, "reader")
	}
	if !w.may(err) {
		return
	}
	h := &holder{lease: lease}
	if !w.calm && rapid.IntRange(0, 3).Draw(w.T, "pauses") == 0 {
		w.paused = append(w.paused, h)
		return
	}
	w.goOn(h)
}

// goOn reads what is there, commits, and hands over a partition whose tablet is gone.
func (w *tailed) goOn(h *holder) {
	p := h.lease.Partition()
	if slices.Contains(w.tablets(), p.Range) {
		h.read(w, p)
		if !w.calm && rapid.IntRange(0, 4).Draw(w.T, "pauses with changes in hand") == 0 {
			w.paused = append(w.paused, h)
			return
		}
		if rapid.Bool().Draw(w.T, "commits") && w.may(h.lease.Commit(context.Background(), h.at)) {
			h.at = nil
		}
	}
	if h.at == nil && slices.Contains(w.tablets(), p.Range) {
		w.may(h.lease.Release(context.Background(), nil, time.Minute, ledger.Cause{}))
		return
	}
	w.close(h)
}

func (h *holder) read(w *tailed, p *ledger.Partition) {
	if h.at != nil {
		return
	}
	for i, c := range w.log {
		if p.Range.Contains(c.key) && i >= w.place(p.Opening, c.key) {
			w.delivered[i] = true
		}
	}
	h.at = &changestream.Position{Token: strconv.Itoa(len(w.log)), LowWatermark: time.Now()}
}

// close hands the partition over to the tablets that have its keys now.
func (w *tailed) close(h *holder) {
	p := h.lease.Partition()
	out := &bigtablepb.ReadChangeStreamResponse_CloseStream{Status: &status.Status{Code: int32(codes.OutOfRange)}}
	for _, tablet := range w.tablets() {
		part, some := rowrange.Intersect(tablet, p.Range)
		if !some {
			continue
		}
		first := len(w.log)
		for _, k := range rowKeys {
			switch {
			case !part.Contains(k):
			case h.at != nil:
				first = w.place(changestream.Opening{Tokens: []changestream.Token{{Range: p.Range, Value: h.at.Token}}}, k)
			default:
				first = min(first, w.place(p.Opening, k))
			}
		}
		out.ContinuationTokens = append(out.ContinuationTokens, &bigtablepb.StreamContinuationToken{
			Partition: &bigtablepb.StreamPartition{RowRange: changestream.ProtoRange(part)}, Token: strconv.Itoa(first),
		})
		out.NewPartitions = append(out.NewPartitions, &bigtablepb.StreamPartition{RowRange: changestream.ProtoRange(tablet)})
	}
	closed, err := changestream.ReadClose(p.Range, out)
	if err != nil {
		w.Fatal(err)
	}
	_, err = h.lease.Close(context.Background(), closed.Successors, h.at)
	w.may(err)
}

// tick is a coordinator's visit, as a scheduler repeats it.
func (w *tailed) tick() {
	l, _ := w.ledger()
	ctx := context.Background()
	_, err := l.BeginStream(ctx, streamID, func(now time.Time) (time.Time, error) { return now, nil })
	if !w.may(err) {
		return
	}
	lease, err := l.AcquireStream(ctx, streamID, "coordinator")
	if !w.may(err) {
		return
	}
	t, err := l.Topology(ctx, streamID)
	if !w.may(err) {
		return
	}
	r := changestream.Reconcile(t.Compare(w.tablets()), shortGraces, t.ReadAt)
	if _, err = lease.Reconcile(ctx, t, r); w.may(err) {
		w.may(lease.Release(ctx, nil))
	}
}

// check holds the ledger against the guarantee: every key has one place that reads it,
// from a position not later than what is delivered.
func (w *tailed) check() {
	t := w.topology()
	if t == nil {
		return
	}
	for _, k := range rowKeys {
		first, places := -1, 0
		for _, p := range t.Partitions {
			if p.Range.Contains(k) {
				places++
				first = w.place(p.Opening, k)
			}
		}
		if places > 1 {
			w.Fatalf("%d partitions hold %q: %v", places, k, t.Partitions)
		}
		for _, p := range t.Pending {
			for _, token := range p.Tokens {
				if places == 0 && token.Range.Contains(k) {
					at := w.place(changestream.Opening{Tokens: []changestream.Token{token}}, k)
					if first < 0 || at < first {
						first = at
					}
				}
			}
		}
		if first < 0 {
			if t.Stream.Initial {
				continue
			}
			w.Fatalf("no place reads %q: %v, %v", k, t.Partitions, t.Pending)
		}
		for i, c := range w.log[:first] {
			if c.key == k && !c.at.Before(t.Stream.Start) && !w.delivered[i] {
				w.Fatalf("change %d of %q is not delivered, and reading goes on at %d", i, k, first)
			}
		}
	}
}

// settle lets everything come to rest.
func (w *tailed) settle() {
	w.calm = true
	for range 60 {
		time.Sleep(time.Second)
		w.tick()
		for _, p := range w.topology().Partitions {
			w.visit(p)
		}
		w.check()
	}
	t := w.topology()
	var got []rowrange.Range
	for _, p := range t.Partitions {
		got = append(got, p.Range)
	}
	slices.SortFunc(got, func(a, b rowrange.Range) int { return strings.Compare(a.Start, b.Start) })
	if !slices.Equal(got, w.tablets()) || len(t.Pending) > 0 || len(t.Stream.Missing) > 0 || t.Stream.Initial {
		w.Fatalf("at rest the ledger holds %v, the service %v; pending %v, missing %v", got, w.tablets(), t.Pending, t.Stream.Missing)
	}
	for i, c := range w.log {
		if !c.at.Before(t.Stream.Start) && !w.delivered[i] {
			w.Fatalf("change %d of %q was never delivered", i, c.key)
		}
	}
}

// Whoever dies, pauses, loses replies or works between two calls of another, every key
// has one place that will read it, and everything is delivered in the end.
//
// covers: CS-08, CS-09, CS-10, CS-11, CS-28
// stream-case: 19, 20, 21, 26, 29, 30, 31, 45, 49, 50, 51
func TestALedgerNeverLosesAKeysPlace(t *testing.T) {
	checkInBubble(t, func(t *rapid.T) {
		w := &tailed{T: t, store: storetest.NewMemory(), delivered: make(map[int]bool)}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			w.work()
		}
		w.settle()
	})
}
