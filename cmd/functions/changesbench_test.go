package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

const streamPipeline = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables: {orders: {families: {cf: {}}}}
changes:
  feed: {table: orders, appProfile: default, %s, to: {log: {}}}
`

// tailing is a deployed function changes, its tasks, and what its sink gets.
type tailing struct {
	b       *testing.B
	handler http.Handler
	tasks   chan []byte
	running sync.WaitGroup

	mu     sync.Mutex
	n      int
	arrive func(records []relay.Record)
	ended  []time.Time // windows
}

// Publish implements changes.Publisher.
func (t *tailing) Publish(_ context.Context, messages ...any) error {
	for _, m := range messages {
		data, err := task.Encode(m)
		if err != nil {
			return err
		}
		t.tasks <- data
	}
	return nil
}

// Send implements relay.Sink.
func (t *tailing) Send(_ context.Context, records []relay.Record) []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += len(records)
	if t.arrive != nil {
		t.arrive(records)
	}
	return nil
}

func (t *tailing) sent() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// await waits until the sink has n records, which takes at most the pause between two ticks.
func (t *tailing) await(n int) {
	t.b.Helper()
	for deadline := time.Now().Add(2 * changes.Tick); t.sent() < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.b.Fatalf("%d of %d changes arrived", t.sent(), n)
		}
	}
}

func newTailing(b *testing.B, conn grpc.ClientConnInterface, options string) *tailing {
	b.Helper()
	p, err := pipeline.Parse(fmt.Appendf(nil, streamPipeline, options), pipeline.Options{File: "p.yaml"})
	if err != nil {
		b.Fatal(err)
	}
	t := &tailing{b: b, tasks: make(chan []byte, 100)}
	t.handler, err = changes.New(changes.Config{
		Pipeline: p, Ledger: ledger.New(storetest.NewMemory(), "orders", ledger.Options{}), Tasks: t, Holder: "bench", Graces: changestream.DefaultGraces(),
		Conn: conn, Now: time.Now,
		Sink:   func(context.Context, *pipeline.Change) (relay.Sink, error) { return t, nil },
		Budget: changes.Budget, CommitEvery: changes.CommitEvery, Heartbeat: changes.Heartbeat, Stopping: b.Context(), Logger: discard(),
		Report: func(_ context.Context, v changes.Visit) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if v.Outcome == changes.OutcomeFailed {
				b.Error(v.Reason)
			}
			if v.Outcome == changes.OutcomeWindow {
				t.ended = append(t.ended, time.Now())
			}
		},
		Ticked: func(context.Context, changes.Reconciliation) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// serve sends a tick, which has no body, or a task.
func (t *tailing) serve(body string) {
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	if w.Code != http.StatusNoContent {
		t.b.Errorf("answer %d", w.Code)
	}
}

// run sends a tick each minute and delivers tasks as they come, until ctx ends.
func (t *tailing) run(ctx context.Context) {
	t.serve("")
	ticker := time.NewTicker(changes.Tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.serve("")
		case data := <-t.tasks:
			t.running.Go(func() {
				t.serve(string(functest.Delivery(t.b, "m", time.Now().UTC().Format(time.RFC3339Nano), data)))
			})
		case <-ctx.Done():
			return
		}
	}
}

func dialBench(b *testing.B, addr string) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

// drain reads n changes of the whole table from a time on, as the generated client gives them.
func drain(b *testing.B, conn grpc.ClientConnInterface, from time.Time, n int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	stream, err := bigtablepb.NewBigtableClient(conn).ReadChangeStream(ctx, &bigtablepb.ReadChangeStreamRequest{
		TableName: "projects/my-project/instances/my-instance/tables/orders",
		Partition: &bigtablepb.StreamPartition{RowRange: &bigtablepb.RowRange{
			StartKey: &bigtablepb.RowRange_StartKeyClosed{}, EndKey: &bigtablepb.RowRange_EndKeyOpen{},
		}},
		StartFrom: &bigtablepb.ReadChangeStreamRequest_StartTime{StartTime: timestamppb.New(from)},
	})
	if err != nil {
		b.Fatal(err)
	}
	for n > 0 {
		res, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		if res.GetDataChange().GetDone() {
			n--
		}
	}
}

// BenchmarkChanges compares the function, whose sink throws records away, with draining and
// decoding the raw stream: CPU of this process, the server being another. The function also
// waits for two heartbeats, in which it uses none.
func BenchmarkChanges(b *testing.B) {
	conn := dialBench(b, startBigtableChild(b, 0, 100))
	start := time.Now().Truncate(time.Millisecond).Add(time.Millisecond) // as a file says a time
	time.Sleep(time.Until(start))
	for from := 0; from < benchRows; from += 1000 {
		if err := writeOrders(conn, from, from+1000, strings.Repeat("x", 100)); err != nil {
			b.Fatal(err)
		}
	}
	var raw, read time.Duration
	n := 0
	for b.Loop() { // by turns, so that both meet the same machine
		raw += spent(func() { drain(b, conn, start, benchRows) })
		read += spent(func() {
			t := newTailing(b, conn, fmt.Sprintf("start: %q", start.UTC().Format("2006-01-02T15:04:05.000Z")))
			ctx, stop := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() { t.run(ctx) })
			t.await(benchRows)
			stop()
			running.Wait()
			t.running.Wait()
		})
		n += benchRows
	}
	b.ReportMetric(float64(raw.Nanoseconds())/float64(n), "raw-ns/change")
	b.ReportMetric(float64(read.Nanoseconds())/float64(n), "function-ns/change")
	b.ReportMetric(read.Seconds()/raw.Seconds(), "ratio")
}

// BenchmarkChangesLag writes a change each millisecond, so that -benchtime=130000x takes two
// minutes and has two ends of windows. It reports how long after its commit a change reaches
// the sink, and for how long none does after a window has ended: until the next tick.
func BenchmarkChangesLag(b *testing.B) {
	conn := dialBench(b, startBigtableChild(b, 0, 100))
	t := newTailing(b, conn, "start: latest, idleStop: false")
	var lags []time.Duration
	var arrivals []time.Time
	t.arrive = func(records []relay.Record) {
		now := time.Now()
		arrivals = append(arrivals, now)
		for i := range records {
			var c struct{ CommitTime time.Time }
			if err := json.Unmarshal(records[i].Body, &c); err != nil {
				b.Error(err)
			}
			lags = append(lags, now.Sub(c.CommitTime))
		}
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { t.run(ctx) })
	began, written := time.Now(), 0
	for b.Loop() {
		if written%10 == 0 {
			time.Sleep(time.Until(began.Add(time.Duration(written) * time.Millisecond)))
			if err := writeOrders(conn, written, written+10, "x"); err != nil {
				b.Fatal(err)
			}
		}
		written++
	}
	written = (written + 9) / 10 * 10
	t.await(written)
	stop()
	running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(lags)
	b.ReportMetric(float64(lags[len(lags)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(lags[len(lags)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(longestGap(t.ended, arrivals).Seconds()*1000, "handover-ms")
}

// longestGap is the longest time from the end of a window to the next arrival.
func longestGap(ends, arrivals []time.Time) time.Duration {
	longest := time.Duration(0)
	for _, end := range ends {
		i, _ := slices.BinarySearchFunc(arrivals, end, time.Time.Compare)
		if i < len(arrivals) {
			longest = max(longest, arrivals[i].Sub(end))
		}
	}
	return longest
}
