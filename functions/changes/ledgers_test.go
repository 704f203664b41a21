package changes_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/functest/ledgers"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// Each case holds with a ledger in a file, in simulated time, and with one in Google's emulator
// of Firestore, in real time.
//
// covers: CS-28
// stream-case: 19, 30, 31, 34, 36, 43, 50
func TestReadersLoseNothingOnEachLedger(t *testing.T) {
	cases := []struct {
		name, options string
		test          func(r *rig, wait func())
	}{
		{"a reader that wakes with a change in hand", "", wakes(wakesWithAChange)},
		{"a reader that wakes after its sink has taken a change", "", wakes(wakesInItsSink)},
		{"a partition that closes in the middle of a batch", "", closesWithinABatch},
		{"a reader that wakes with a close in hand", "", wakes(wakesWithAClose)},
		{"a poison change under fail", "onFailure: fail, ", holdsPoison},
		{"a poison change under drop", "onFailure: drop, ", passesPoison(0)},
		{"a poison change under dead-letter", "onFailure: dead-letter, ", passesPoison(1)},
		{"keys that are no text", "", binaryKeys},
	}
	t.Run("file", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, c.options+toLog)
					r.keepIn(ledgers.File(t))
					c.test(r, func() { time.Sleep(10 * time.Second) })
				})
			})
		}
	})
	t.Run("Firestore", func(t *testing.T) {
		open := ledgers.Firestore(t)
		for i, c := range cases {
			if race.Enabled && i%2 == 1 {
				continue // the emulator takes seconds
			}
			t.Run(c.name, func(t *testing.T) {
				r := newRig(t, c.options+toLog)
				r.realTime, r.cfg.Heartbeat = true, 20*time.Millisecond
				r.keepIn(open(t))
				c.test(r, func() { time.Sleep(50 * time.Millisecond) })
			})
		}
	})
}

// again ticks and works until a condition holds.
func (r *rig) again(wait func(), until func() bool) {
	r.t.Helper()
	for range 1000 {
		r.tick()
		r.work()
		if until() {
			return
		}
		wait()
	}
	r.t.Fatalf("nothing more happens: %s", r.log)
}

// pausing is a process that stops altogether when its stream has brought something, or after its
// sink has taken something, until it is woken.
type pausing struct {
	*rig
	grpc.ClientConnInterface
	at     func(*bigtablepb.ReadChangeStreamResponse) bool // nil: in its sink
	asleep chan struct{}
	woken  chan struct{}
	paused atomic.Bool
	sent   atomic.Int32
}

func (p *pausing) pause() {
	if p.paused.CompareAndSwap(false, true) {
		close(p.asleep)
	}
	<-p.woken
}

// NewStream implements grpc.ClientConnInterface.
func (p *pausing) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := p.ClientConnInterface.NewStream(ctx, d, method, opts...)
	return &pausingStream{s, p}, err
}

type pausingStream struct {
	grpc.ClientStream
	process *pausing
}

// RecvMsg implements grpc.ClientStream.
func (s *pausingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*bigtablepb.ReadChangeStreamResponse); ok && err == nil && s.process.at != nil && s.process.at(resp) {
		s.process.pause()
	}
	return err
}

// Send implements relay.Sink.
func (p *pausing) Send(ctx context.Context, records []relay.Record) []error {
	p.sent.Add(int32(len(records)))
	errs := p.rig.Send(ctx, records)
	if p.at == nil {
		p.pause()
	}
	return errs
}

// config is that of the process: its calls of the ledger stop with it.
func (p *pausing) config() changes.Config {
	cfg := p.cfg
	cfg.Holder = "paused"
	cfg.Conn = p
	cfg.Sink = func(context.Context, *pipeline.Change) (relay.Sink, error) { return p, nil }
	cfg.Ledger = p.ledger(&storetest.Faulty{Store: p.store, Next: func(bool) storetest.Fault {
		if p.paused.Load() {
			<-p.woken
		}
		return storetest.FaultNone
	}})
	return cfg
}

// Where a paused reader stops.
const (
	wakesWithAChange = iota
	wakesInItsSink
	wakesWithAClose
)

// wakes has a reader pause past its lease, while another takes its partition over, which
// splits. It wakes with a change in hand, with one that its sink has taken, or with the close
// of the partition, which the other has recorded. What it has is refused, and nothing that it
// does moves the ledger or comes after what the other has sent.
func wakes(where int) func(r *rig, wait func()) {
	at := map[int]func(*bigtablepb.ReadChangeStreamResponse) bool{
		wakesWithAChange: func(r *bigtablepb.ReadChangeStreamResponse) bool { return r.GetDataChange() != nil },
		wakesWithAClose:  func(r *bigtablepb.ReadChangeStreamResponse) bool { return r.GetCloseStream() != nil },
	}[where]
	return func(r *rig, wait func()) {
		if r.realTime {
			r.lease = time.Second
			r.keepIn(r.store)
		}
		r.tick()
		r.take()
		id := r.partition()
		r.set("a", 1)
		split := func() { must(r.t, r.emulator.SplitTablet(tableName, []byte("m"))) }
		if where == wakesWithAClose {
			split()
		}
		p := &pausing{rig: r, ClientConnInterface: r.conn, at: at, asleep: make(chan struct{}), woken: make(chan struct{})}
		var sleeper sync.WaitGroup
		sleeper.Go(func() { r.deliver(r.t.Context(), p.config(), taskOf(r.t, id)) })
		<-p.asleep
		if where != wakesWithAClose {
			split()
		}
		r.set("a", 2)
		r.set("z", 1)
		r.deliver(r.t.Context(), r.cfg, taskOf(r.t, id))
		if got := r.outcomes(); got != "held" && !r.realTime { // else the lease may be over
			r.t.Errorf("while the reader has its lease another visit ends %s", got)
		}
		r.again(wait, func() bool { return len(r.values()["a"]) == 2 && len(r.values()["z"]) == 1 && r.held() == nil })
		r.outcomes()
		before := r.places()
		close(p.woken)
		sleeper.Wait()
		if !r.overtaken() {
			r.t.Errorf("the reader that woke has not lost its partition: %s", r.outcomes())
		}
		if got := r.outcomes(); got != "failed" {
			r.t.Errorf("the visit of the reader that woke ended %s", got)
		}
		if after := r.places(); after != before {
			r.t.Errorf("it has changed the ledger from %s to %s", before, after)
		}
		sent := p.sent.Load()
		if where == wakesWithAChange && sent != 0 || where == wakesInItsSink && sent != 1 {
			r.t.Errorf("it has sent %d records", sent)
		}
		if got := fmt.Sprint(r.values()); got != "map[a:[1 2] z:[1]]" || len(r.records) != 3+int(sent) {
			r.t.Errorf("%s in %d records, %d of them by the reader that woke", got, len(r.records), sent)
		}
	}
}

// overtaken reports whether a visit has found that its partition is another's.
func (r *rig) overtaken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.visits, func(v changes.Visit) bool {
		return errors.Is(v.Reason, ledger.ErrLost) || errors.Is(v.Reason, relay.ErrOvertaken)
	})
}

// places tells where the ledger reads on.
func (r *rig) places() string {
	top, err := r.ledger(r.store).Topology(r.t.Context(), streamID)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, p := range top.Partitions {
		out = append(out, fmt.Sprint(p.Range, p.Incarnation, p.Fence, p.Tokens))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// closesWithinABatch has a partition close while a batch of its changes is being filled: the
// batch is sent, and only then the partition is replaced. If the sink takes only some of it, the
// partition stays, at the last change before the first that was not taken, and closes at a
// later visit.
func closesWithinABatch(r *rig, _ func()) {
	r.tick()
	r.take()
	id := r.partition()
	var want []int64
	write := func() {
		for range 50 {
			n := int64(len(want))
			r.set("a", n)
			r.set("c", n)
			want = append(want, n)
		}
	}
	write()
	r.refuse = func(records []relay.Record) []error {
		errs := make([]error, len(records))
		for i := len(errs) / 2; i < len(errs); i++ {
			errs[i] = errors.New("not now")
		}
		return errs
	}
	p := &pausing{
		rig: r, ClientConnInterface: r.conn, asleep: make(chan struct{}), woken: make(chan struct{}),
		at: func(r *bigtablepb.ReadChangeStreamResponse) bool { return r.GetDataChange() != nil },
	}
	var reader sync.WaitGroup
	reader.Go(func() { r.deliver(r.t.Context(), p.config(), taskOf(r.t, id)) })
	<-p.asleep // with the first change
	must(r.t, r.emulator.SplitTablet(tableName, []byte("b")))
	write()
	close(p.woken)
	reader.Wait()
	taken := len(r.records)
	if got := r.outcomes(); got != "failed" || taken == 0 || taken >= 100 {
		r.t.Errorf("while the sink takes half of a batch, a visit ends %s, with %d records", got, taken)
	}
	if p := r.partition(); p.Incarnation != id.Incarnation || len(p.Tokens) == 0 {
		r.t.Errorf("%v has replaced %v", p, id)
	}
	r.refuse = nil
	r.deliver(r.t.Context(), r.cfg, taskOf(r.t, id))
	if got := r.outcomes(); got != "closed" {
		r.t.Errorf("once the sink is back, a visit ends %s", got)
	}
	r.work()
	if got := r.values(); !slices.Equal(got["a"], want) || !slices.Equal(got["c"], want) || len(r.records) != 200 {
		r.t.Errorf("%d records: %v", len(r.records), got)
	}
	must(r.t, r.held())
}

// noTwos is a sink that never takes a change to 2.
func noTwos(records []relay.Record) []error {
	errs := make([]error, len(records))
	for i, rec := range records {
		if strings.Contains(string(rec.Body), `"value":2`) {
			errs[i] = &retry.Rejected{Reason: "no twos"}
		}
	}
	return errs
}

// holdsPoison has a change that cannot be delivered keep the position just before it: each
// visit fails and is logged as an error, and once the sink takes the change, it and all that
// waited come, in order.
func holdsPoison(r *rig, wait func()) {
	var log functest.Log
	told, logged := r.cfg.Report, changes.Log(slog.New(slog.NewTextHandler(&log, nil)), "orders")
	r.cfg.Report = func(ctx context.Context, v changes.Visit) {
		told(ctx, v)
		logged(ctx, v)
	}
	r.tick()
	for i := range int64(4) {
		r.set("a", i)
	}
	r.refuse = noTwos
	r.work()
	at := r.partition()
	for range 3 {
		r.tick()
		r.work()
	}
	p := r.partition()
	if !slices.Equal(p.Tokens, at.Tokens) || p.Fruitless < 3 || !strings.Contains(p.LastError, "no twos") || p.Idle > 0 {
		r.t.Errorf("the position has moved from %v to %v, %d visits in vain, %q", at.Tokens, p.Tokens, p.Fruitless, p.LastError)
	}
	if got := r.values()["a"]; len(got) < 2 || !slices.Equal(got[:2], []int64{0, 1}) || slices.Contains(got, 2) {
		r.t.Errorf("%v has come", got)
	}
	if n := strings.Count(log.String(), "level=ERROR msg=\"visit of a partition\""); n != 4 || strings.Count(log.String(), "onFailure: fail") != n {
		r.t.Errorf("of 4 visits %d are logged as errors: %s", n, &log)
	}
	r.refuse = nil
	r.again(wait, func() bool { return len(r.values()["a"]) == 4 })
	if p := r.partition(); p.Fruitless > 0 || p.LastError != "" {
		r.t.Errorf("%d visits in vain, %q", p.Fruitless, p.LastError)
	}
}

// passesPoison has the position pass a change that cannot be delivered.
func passesPoison(letters int) func(r *rig, wait func()) {
	return func(r *rig, _ func()) {
		r.tick()
		for i := range int64(4) {
			r.set("a", i)
		}
		r.refuse = noTwos
		r.work()
		p := r.partition()
		if got := fmt.Sprint(r.values()); got != "map[a:[0 1 3]]" || r.outcomes() != "idle" || p.LastError != "" || len(p.Tokens) != 1 {
			r.t.Errorf("%s, %q: %s", got, p.LastError, r.log)
		}
		if len(r.letters) != letters {
			r.t.Errorf("%d dead letters", len(r.letters))
		}
	}
}

// readAll reads every partition, also those that are not due.
func (r *rig) readAll() {
	r.t.Helper()
	top, err := r.ledger(r.store).Topology(r.t.Context(), streamID)
	must(r.t, err)
	r.deliver(r.t.Context(), r.cfg, taskOf(r.t, top.Partitions...))
	r.work()
}

// binaryKeys has partitions between keys that are no text, are long, or begin as another does.
func binaryKeys(r *rig, _ func()) {
	keys := []string{"\x00\x80\xff", "*", strings.Repeat("k", 4096), "\xff\xff", "\xff\xff\x00"}
	r.tick()
	for _, key := range keys {
		must(r.t, r.emulator.SplitTablet(tableName, []byte(key)))
		r.set(key, 1)
		r.readAll()
	}
	must(r.t, r.held())
	for _, key := range keys[1:] {
		must(r.t, r.emulator.MergeTablets(tableName, []byte(key)))
		r.set(key, 2)
		r.readAll()
	}
	must(r.t, r.held())
	want := map[string]int{}
	for i, key := range keys {
		want[base64.StdEncoding.EncodeToString([]byte(key))] = min(2, 1+i)
	}
	got := map[string]int{}
	for _, rec := range r.records {
		var c struct{ RowKeyBase64 string }
		must(r.t, json.Unmarshal(rec.Body, &c))
		got[c.RowKeyBase64]++
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("%v, want %v", got, want)
	}
}
