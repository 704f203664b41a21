package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// benchRows are read at a time.
const benchRows = 100_000

// serveBigtable is a child that serves an emulator with the table orders.
func serveBigtable() {
	e, err := emulator.New(emulator.Options{})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := e.Dial(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, err = adminpb.NewBigtableTableAdminClient(conn).CreateTable(context.Background(), &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders",
		Table: &adminpb.Table{
			ColumnFamilies:     map[string]*adminpb.ColumnFamily{"cf": {}},
			ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	rows, size := number("BTF_TEST_ROWS"), number("BTF_TEST_BYTES")
	value := strings.Repeat("x", size)
	for from := 0; from < rows; from += 1000 {
		if err := writeOrders(conn, from, min(rows, from+1000), value); err != nil {
			log.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(e.Serve(l))
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		log.Fatal(name, err)
	}
	return n
}

func startBigtableChild(t testing.TB, rows, bytes int) string {
	c := startChild(t, "bigtable", fmt.Sprintf("BTF_TEST_ROWS=%d", rows), fmt.Sprintf("BTF_TEST_BYTES=%d", bytes))
	return strings.TrimSuffix(strings.TrimPrefix(c.url, "http://"), "/")
}

// cpu is what this process has used.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkScan compares a worker, which makes a JSON object of each row and throws it
// away, with the official client as anybody would use it: CPU of this process, the
// server being another.
func BenchmarkScan(b *testing.B) {
	addr := startBigtableChild(b, benchRows, 100)
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: addr})
	if err != nil {
		b.Fatal(err)
	}
	tables := scanworker.NewTables(dialer)
	defer tables.Close()
	p, err := pipeline.Parse([]byte(strings.Replace(scanPipeline, "    emit: {id: rowKey}\n", "", 1)), pipeline.Options{File: "p.yaml"})
	if err != nil {
		b.Fatal(err)
	}
	table := officialTable(b, addr)
	client := func() {
		n := 0
		if err := table.ReadRows(b.Context(), bigtable.InfiniteRange(""), func(bigtable.Row) bool { n++; return true }); err != nil || n != benchRows {
			b.Fatal(n, err)
		}
	}
	worker := func() { scanOnce(b, p, tables) }
	var alone, relayed time.Duration
	rows := 0
	for b.Loop() { // by turns, so that both meet the same machine
		alone += spent(client)
		relayed += spent(worker)
		rows += benchRows
	}
	b.ReportMetric(float64(alone.Nanoseconds())/float64(rows), "client-ns/row")
	b.ReportMetric(float64(relayed.Nanoseconds())/float64(rows), "worker-ns/row")
	b.ReportMetric(relayed.Seconds()/alone.Seconds(), "ratio")
}

// officialTable is the table by the client as anybody would open it.
func officialTable(b *testing.B, addr string) *bigtable.Table {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	client, err := bigtable.NewClientWithConfig(b.Context(), "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(conn))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client.Open("orders")
}

// spent is the CPU time that f takes.
func spent(f func()) time.Duration {
	began := cpu()
	f()
	return cpu() - began
}

type discardSink struct{}

func (discardSink) Send(context.Context, []relay.Record) []error { return nil }

type discardMessages struct{}

func (discardMessages) Publish(context.Context, ...any) error { return nil }

// scanOnce reads the whole table as one split.
func scanOnce(b *testing.B, p *pipeline.Pipeline, tables *scanworker.Tables) {
	l := ledger.New(storetest.NewMemory(), "orders", ledger.Options{})
	rows := 0
	h, err := scanworker.New(scanworker.Config{
		Pipeline: p, Ledger: l, Table: tables.Table, Tasks: discardMessages{}, Done: discardMessages{}, Holder: "bench",
		Sink:   func(context.Context, *pipeline.Scan) (relay.Sink, error) { return discardSink{}, nil },
		Budget: scanworker.Budget, Slice: scanworker.Slice, CommitEvery: scanworker.CommitEvery, Stopping: b.Context(), Logger: discard(), Now: time.Now,
		Report: func(_ context.Context, s scanworker.Summary) { rows += int(s.Rows) },
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.Begin(b.Context(), "s", "all", nil); err != nil {
		b.Fatal(err)
	}
	scan, err := l.Plan(b.Context(), "s", ledger.Draft{Splits: [][]rowrange.Range{{{}}}})
	if err != nil {
		b.Fatal(err)
	}
	data, err := task.Encode(task.Scan{Version: 1, Scan: "s", Name: "all", Attempt: scan.Attempt})
	if err != nil {
		b.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(envelope(1, data)))))
	if w.Code != http.StatusNoContent || rows != benchRows {
		b.Fatalf("answer %d after %d rows", w.Code, rows)
	}
}

// covers: SC-25
func TestAWorkerHoldsAFewRowsHoweverLargeTheyAre(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector multiplies what a process holds")
	}
	const rows, size, most = 40, 10 << 20, 256
	addr := startBigtableChild(t, rows, size)
	topics := startTopics(t)
	path := filepath.Join(t.TempDir(), "ledger.db")
	env := []string{
		// Every record is over Pub/Sub's limit: it is made, refused and dropped.
		"PIPELINE=" + strings.Replace(scanPipeline, "    emit: {id: rowKey}\n", "    onFailure: drop\n", 1),
		"BIGTABLE_EMULATOR_HOST=" + addr, "PUBSUB_EMULATOR_HOST=" + topics.Addr(), "PUBSUB_PROJECT=p", "LEDGER=file:" + path,
	}
	planner := startChild(t, "function", append(env, "FUNCTION_TARGET=scan-planner")...)
	worker := startWorkers(t, 1, "short leases", append(env, "FUNCTION_TARGET=scan-worker", deployedMemory)...)
	subscribe(t, topics, planner.url, worker)
	publish(t, topics, "orders-scan-requests", task.ScanRequest{Version: 1, Scan: "all"})
	await(t, func() bool { return len(topics.Published("orders-scan-done")) > 0 })
	done, err := task.DecodeScanDone(topics.Published("orders-scan-done")[0].Data)
	if err != nil || done.Rows != rows || done.Dropped != rows {
		t.Errorf("announced %+v, %v", done, err)
	}
	peak := peakMiB(t, worker.children[0].cmd.Process.Pid)
	t.Logf("%d rows of %d MiB: %d MiB at most", rows, size>>20, peak)
	if peak > most {
		t.Errorf("the worker held %d MiB, want %d at most", peak, most)
	}
}
