package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
)

// ackServer answers every write at once, so that the function is measured alone.
type ackServer struct {
	bigtablepb.UnimplementedBigtableServer
	entries atomic.Int64
}

func (s *ackServer) MutateRow(context.Context, *bigtablepb.MutateRowRequest) (*bigtablepb.MutateRowResponse, error) {
	s.entries.Add(1)
	return &bigtablepb.MutateRowResponse{}, nil
}

func (s *ackServer) MutateRows(r *bigtablepb.MutateRowsRequest, st bigtablepb.Bigtable_MutateRowsServer) error {
	s.entries.Add(int64(len(r.Entries)))
	out := &bigtablepb.MutateRowsResponse{Entries: make([]*bigtablepb.MutateRowsResponse_Entry, len(r.Entries))}
	ok := &status.Status{}
	for i := range r.Entries {
		out.Entries[i] = &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: ok}
	}
	return st.Send(out)
}

func startAckServer(t testing.TB) (*ackServer, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, g := &ackServer{}, grpc.NewServer(grpc.MaxRecvMsgSize(256<<20))
	bigtablepb.RegisterBigtableServer(g, s)
	var wg sync.WaitGroup
	wg.Go(func() { g.Serve(l) })
	t.Cleanup(func() { g.Stop(); wg.Wait() })
	return s, l.Addr().String()
}

const benchPipeline = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64, coupon: string}}
write:
  format: %s
  mappings:
    - name: order
      table: orders
      rowKey: key("order", event.tenant, event.id)
      timestamp: timestamp(event.updated_at)
      mutations:
        - set:
            cf: {status: event.status, total: event.total_cents, coupon: event.?coupon.orValue("none")}
`

// BenchmarkFunction measures whole function processes: user and system CPU time for
// each event, which moves little on a noisy machine, beside a handler that only
// decodes and a CloudEvent function that applies each event with Table.Apply. One run
// compares them:
//
//	go test ./cmd/functions -run '^$' -bench Function -benchtime 20000x
func BenchmarkFunction(b *testing.B) {
	order := func(i, k int) []byte {
		return fmt.Appendf(nil, `{"type":"order.updated","tenant":"acme","id":"a-%d-%d","status":"PAID","total_cents":%d,"cancelled":false,"updated_at":"2026-08-30T10:15:30.123Z","coupon":"SUMMER"}`, i, k, i)
	}
	one := func(i int) []byte { return envelope(i, order(i, 0)) }
	b.Run("floor", func(b *testing.B) { load(b, startChild(b, "floor"), one, 1) })
	b.Run("naive", func(b *testing.B) {
		_, addr := startAckServer(b)
		load(b, startChild(b, "naive", "BIGTABLE_EMULATOR_HOST="+addr), one, 1)
	})
	b.Run("write", func(b *testing.B) {
		load(b, startFunction(b, fmt.Sprintf(benchPipeline, "json")), one, 1)
	})
	b.Run("write-500-records", func(b *testing.B) {
		var flights [][]byte
		for line := range bytes.Lines(readFlights(b)) {
			flights = append(flights, line)
		}
		load(b, startFunction(b, strings.Replace(flightsPipeline(b), "format: json", "format: ndjson", 1)), func(i int) []byte {
			at := i * 500 % len(flights)
			return envelope(i, bytes.Join(flights[at:at+500], nil))
		}, 500)
	})
}

func startFunction(b testing.TB, file string) *child {
	_, addr := startAckServer(b)
	return startChild(b, "function", "PIPELINE="+file, "FUNCTION_TARGET=write", "BIGTABLE_EMULATOR_HOST="+addr,
		"PUBSUB_EMULATOR_HOST=127.0.0.1:1", deployedMemory)
}

// load posts b.N bodies over 64 connections and reports the child's CPU time.
func load(b *testing.B, c *child, body func(int) []byte, per int) {
	const clients = 64
	// The SDK's receiver, which naive uses, leaves some requests unanswered
	// (cloudevents/sdk-go#1224): those are given up and may be a few.
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	run := func(from, n int) {
		var next atomic.Int64
		var bad atomic.Int64
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					if post(client, c.url, body(from+i))/100 != 2 {
						bad.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if bad.Load() > int64(n/1000) {
			b.Fatalf("%d of %d events failed:\n%.2000s", bad.Load(), n, c.output())
		}
	}
	run(0, max(1, min(2000, b.N/5)))
	before := cpuMicros(b, c.cmd.Process.Pid)
	b.ResetTimer()
	run(1<<20, b.N)
	b.StopTimer()
	used := cpuMicros(b, c.cmd.Process.Pid) - before
	b.ReportMetric(float64(used)/float64(b.N*per), "cpu-us/record")
	b.ReportMetric(float64(b.N*per)/b.Elapsed().Seconds(), "records/s")
}

// cpuMicros reads a process's user and system time from /proc, in ticks of 10 ms.
func cpuMicros(b *testing.B, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("CPU time of another process is read from /proc: ", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return (user + system) * 10_000
}

func readFlights(t testing.TB) []byte { return readExample(t, "flights/flights.ndjson") }

func flightsPipeline(t testing.TB) string { return string(readExample(t, "flights/pipeline.yaml")) }
