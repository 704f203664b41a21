package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
)

const scanPipeline = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families: {cf: {columns: {status: string}}}
scans:
  all:
    table: orders
    fetch: {maxRows: 200}
    emit: {id: rowKey}
    to: {pubsub: {topic: out}}
`

// tableOf starts a Bigtable whose table orders has rows from 0 to n in some tablets.
func tableOf(t testing.TB, rows, tablets int) (*emulator.Emulator, string) {
	t.Helper()
	e, conn, addr := functest.BigtableOverTCP(t, emulator.Options{})
	request := &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders",
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"cf": {}}},
	}
	for i := 1; i < tablets; i++ {
		request.InitialSplits = append(request.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(scanKey(i * rows / tablets))})
	}
	if _, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < rows; from += 10_000 {
		if err := writeOrders(conn, from, min(from+10_000, rows), "PAID"); err != nil {
			t.Fatal(err)
		}
	}
	return e, addr
}

// writeOrders writes the rows from from to to, a cell each.
func writeOrders(conn *grpc.ClientConn, from, to int, value string) error {
	req := &bigtablepb.MutateRowsRequest{TableName: "projects/my-project/instances/my-instance/tables/orders"}
	send := func() error {
		stream, err := bigtablepb.NewBigtableClient(conn).MutateRows(context.Background(), req)
		if err != nil {
			return err
		}
		for req.Entries = nil; ; {
			res, err := stream.Recv()
			if err == io.EOF {
				return nil
			}
			for _, e := range res.GetEntries() {
				err = errors.Join(err, status.ErrorProto(e.Status))
			}
			if err != nil {
				return err
			}
		}
	}
	for i := from; i < to; i++ {
		req.Entries = append(req.Entries, &bigtablepb.MutateRowsRequest_Entry{
			RowKey: []byte(scanKey(i)), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
				FamilyName: "cf", ColumnQualifier: []byte("status"), TimestampMicros: 1000, Value: []byte(value),
			}}}},
		})
		if len(req.Entries)*len(value) > 64<<20 || i+1 == to {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return nil
}

func scanKey(i int) string { return fmt.Sprintf("k%07d", i) }

// workers are processes of scan-worker behind one endpoint, as instances of a service.
type workers struct {
	t    testing.TB
	kind string // of child
	env  []string

	mu       sync.Mutex
	children []*child
	next     atomic.Int64
}

func startWorkers(t testing.TB, n int, kind string, env ...string) *workers {
	w := &workers{t: t, kind: kind, env: env, children: make([]*child, n)}
	for i := range w.children {
		w.children[i] = startChild(t, kind, w.env...)
	}
	return w
}

// ServeHTTP sends a request to one of the processes, as it finds them.
func (w *workers) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	c := w.children[int(w.next.Add(1))%len(w.children)]
	w.mu.Unlock()
	target, err := url.Parse(c.url)
	if err != nil {
		w.t.Error(err)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) }
	proxy.ServeHTTP(rw, r)
}

// kill ends one process with SIGKILL and starts another.
func (w *workers) kill(i int) {
	if err := w.children[i].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	c := startChild(w.t, w.kind, w.env...)
	w.mu.Lock()
	w.children[i] = c
	w.mu.Unlock()
}

// subscribe pushes requests to the planner and tasks to the workers.
func subscribe(t testing.TB, c *localcloud.Cloud, planner string, worker http.Handler) {
	t.Helper()
	_, err := c.CreatePush(t.Context(), localcloud.Push{
		ID: "orders-scan-requests", Topic: "orders-scan-requests", Endpoint: planner, AckDeadline: time.Minute,
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreatePush(t.Context(), localcloud.Push{
		ID: "orders-scan-tasks", Topic: "orders-scan-tasks", Handler: worker, AckDeadline: 2 * time.Minute,
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func startTopics(t testing.TB) *localcloud.Cloud {
	t.Helper()
	c, err := localcloud.New(localcloud.Options{Project: "p", Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := c.CreateTopics(t.Context(), "orders-scan-requests", "orders-scan-tasks", "orders-scan-done", "out"); err != nil {
		t.Fatal(err)
	}
	return c
}

// covers: SC-01, SC-03, SC-06, SC-23
// issue-row: 16
func TestAScanSurvivesTheDeathOfItsWorkers(t *testing.T) {
	rows, kind := 50_000, "short leases"
	if soak() {
		rows, kind = 1_000_000, "function" // with leases and commits as they are deployed
	}
	const tablets, processes, kills = 12, 4, 5
	e, bigtableAddr := tableOf(t, rows, tablets)
	// The table is small, so the reads are slowed down for somebody to die within one.
	e.Inject(emulator.Fault{Method: "ReadRows", Delay: 200 * time.Millisecond})

	path := filepath.Join(t.TempDir(), "ledger.db")
	topics := startTopics(t)
	env := []string{
		"PIPELINE=" + scanPipeline, "BIGTABLE_EMULATOR_HOST=" + bigtableAddr, "PUBSUB_EMULATOR_HOST=" + topics.Addr(), "PUBSUB_PROJECT=p",
		"LEDGER=file:" + path,
	}
	planner := startChild(t, "function", append(env, "FUNCTION_TARGET=scan-planner")...)
	w := startWorkers(t, processes, kind, append(env, "FUNCTION_TARGET=scan-worker")...)
	subscribe(t, topics, planner.url, w)

	var pace pace
	published := func() int { return pace.note(len(topics.Published("out"))) }
	publish(t, topics, "orders-scan-requests", task.ScanRequest{Version: 1, Scan: "all", Parallelism: tablets})
	for k := range kills {
		await(t, func() bool { return published() >= (k+1)*rows/(kills+2) })
		w.kill(k % processes)
	}
	await(t, func() bool { published(); return len(topics.Published("orders-scan-done")) > 0 })

	done, err := task.DecodeScanDone(topics.Published("orders-scan-done")[0].Data)
	if err != nil || done.State != "done" || done.Rows != int64(rows) || done.Splits != tablets {
		t.Errorf("announced %+v, %v", done, err)
	}
	repeated := repeatedRows(t, topics, rows)
	lost := lostLeases(t, path, done.Scan)
	if lost == 0 {
		t.Error("no split was leased again: nobody died while reading")
	}
	// With leases this short a split is committed after every batch.
	most := lost * 200
	if soak() {
		most = kills * pace.most(scanworker.CommitEvery+time.Second)
	}
	t.Logf("%d rows, %d of them once more after %d kills, which ended %d leases; %d were allowed", rows, repeated, kills, lost, most)
	if repeated > most {
		t.Errorf("%d rows repeated, want %d at most", repeated, most)
	}
}

// pace is how many records there were when.
type pace struct {
	at    []time.Time
	count []int
}

func (p *pace) note(n int) int {
	p.at, p.count = append(p.at, time.Now()), append(p.count, n)
	return n
}

// most is how many records came within d at most.
func (p *pace) most(d time.Duration) int {
	most, first := 0, 0
	for i, at := range p.at {
		for at.Sub(p.at[first]) > d {
			first++
		}
		most = max(most, p.count[i]-p.count[first])
	}
	return most
}

// repeatedRows wants every row in the topic, and says how many are there more than once.
func repeatedRows(t testing.TB, topics *localcloud.Cloud, rows int) int {
	t.Helper()
	counts := map[string]int{}
	for _, m := range topics.Published("out") {
		var body struct{ ID string }
		if err := json.Unmarshal(m.Data, &body); err != nil {
			t.Fatal(err)
		}
		counts[body.ID]++
	}
	repeated := 0
	for i := range rows {
		n := counts[scanKey(i)]
		if n == 0 {
			t.Fatalf("row %d is missing", i)
		}
		repeated += n - 1
	}
	if len(counts) != rows {
		t.Errorf("%d keys for %d rows", len(counts), rows)
	}
	return repeated
}

// lostLeases is how often a split was leased again: no slice of the test's scans is
// long enough to be continued.
func lostLeases(t testing.TB, path, id string) int {
	t.Helper()
	store, err := file.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(store, "orders", ledger.Options{})
	scan, err := l.Scan(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	if err := l.Splits(t.Context(), scan, func(s *ledger.Split) error {
		lost += int(s.Fence) - 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lost
}

func publish(t testing.TB, c *localcloud.Cloud, topic string, m any) {
	t.Helper()
	client, err := c.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	body, err := task.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	p := client.Publisher(topic)
	defer p.Stop()
	if _, err := p.Publish(t.Context(), &pubsub.Message{Data: body}).Get(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func await(t testing.TB, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !what(); {
		if time.Now().After(deadline) {
			t.Fatal("it takes too long")
		}
		time.Sleep(20 * time.Millisecond) // another process's progress has no signal
	}
}

func TestAScanFunctionSaysWhatItLacks(t *testing.T) {
	for _, target := range []string{"scan-planner", "scan-worker"} {
		for want, env := range map[string]map[string]string{
			"LEDGER is not set":         {"PIPELINE": scanPipeline},
			`LEDGER "orders.db"`:        {"PIPELINE": scanPipeline, "LEDGER": "orders.db"},
			"the pipeline has no scans": {"PIPELINE": fmt.Sprintf(benchPipeline, "json"), "LEDGER": "file:/tmp/x"},
		} {
			_, err := buildFrom(env, target)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want one that says %q", target, err, want)
			}
		}
	}
	_, err := buildFrom(map[string]string{"PIPELINE": scanPipeline}, "scan")
	if err == nil || !strings.Contains(err.Error(), "scan-planner, scan-worker, write") {
		t.Error(err)
	}
}
