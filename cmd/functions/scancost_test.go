package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// BenchmarkScanToPubSub measures the process of a worker that publishes a message for
// each row, of one cell: user and system CPU time for each, and the most memory that it
// held, by how many tasks it has at once. docs/scans.md says what that costs and bears.
//
//	go test ./cmd/functions -run '^$' -bench ScanToPubSub -benchtime 1x
func BenchmarkScanToPubSub(b *testing.B) {
	for _, c := range []struct{ rows, bytes int }{{200_000, 100}, {3_000, 100_000}, {320, 1_000_000}} {
		for _, tasks := range []int{1, 4, 8, 16} {
			b.Run(fmt.Sprintf("bytes-%d/tasks-%d", c.bytes, tasks), func(b *testing.B) { scanToPubSub(b, c.rows, c.bytes, tasks) })
		}
	}
}

func scanToPubSub(b *testing.B, rows, size, tasks int) {
	e, addr := tableOf(b, rows, tasks)
	conn, err := e.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	for from, n := 0, max(1, 10_000_000/size); from < rows; from += n {
		if err := writeOrders(conn, from, min(from+n, rows), strings.Repeat("x", size)); err != nil {
			b.Fatal(err)
		}
	}
	topics := startTopics(b)
	env := []string{
		"PIPELINE=" + strings.NewReplacer("    emit: {id: rowKey}\n", "    cells: {versions: 1}\n", "    fetch: {maxRows: 200}\n", "").Replace(scanPipeline),
		"BIGTABLE_EMULATOR_HOST=" + addr, "PUBSUB_EMULATOR_HOST=" + topics.Addr(), "PUBSUB_PROJECT=p",
		"LEDGER=file:" + filepath.Join(b.TempDir(), "ledger.db"),
	}
	planner := startChild(b, "function", append(env, "FUNCTION_TARGET=scan-planner")...)
	worker := startChild(b, "function", append(env, "FUNCTION_TARGET=scan-worker", deployedMemory)...)
	_, err = topics.CreatePush(b.Context(), localcloud.Push{
		ID: "orders-scan-requests", Topic: "orders-scan-requests", Endpoint: planner.url, AckDeadline: time.Minute,
		MinBackoff: time.Second, MaxBackoff: time.Second, Retention: time.Hour,
	})
	if err != nil {
		b.Fatal(err)
	}
	before := cpuMicros(b, worker.cmd.Process.Pid)
	for done := 0; b.Loop(); done += tasks {
		publish(b, topics, "orders-scan-requests", task.ScanRequest{Version: 1, Scan: "all", Parallelism: 16 * tasks})
		await(b, func() bool { return len(topics.Published("orders-scan-tasks")) == done+tasks })
		var all sync.WaitGroup
		for i, m := range topics.Published("orders-scan-tasks")[done:] { // at once, without Pub/Sub's slow start
			all.Go(func() {
				if status := post(http.DefaultClient, worker.url, envelope(i, m.Data)); status != http.StatusNoContent {
					b.Errorf("task %d: %d", i, status)
				}
			})
		}
		all.Wait()
	}
	if got := len(topics.Published("out")); got != rows*b.N {
		b.Fatalf("%d records of %d rows", got, rows*b.N)
	}
	b.ReportMetric(float64(cpuMicros(b, worker.cmd.Process.Pid)-before)/float64(rows*b.N), "cpu-us/record")
	b.ReportMetric(float64(peakMiB(b, worker.cmd.Process.Pid)), "peak-MiB")
}
