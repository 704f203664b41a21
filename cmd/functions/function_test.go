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

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

// bigtableServer is an emulator over TCP with one table.
type bigtableServer struct {
	addr string
	conn *grpc.ClientConn
}

func startBigtable(t testing.TB, project, instance, table string, families ...string) *bigtableServer {
	t.Helper()
	b := &bigtableServer{}
	_, b.conn, b.addr = functest.BigtableOverTCP(t, emulator.Options{})
	declared := map[string]*adminpb.ColumnFamily{}
	for _, f := range families {
		declared[f] = &adminpb.ColumnFamily{}
	}
	_, err := adminpb.NewBigtableTableAdminClient(b.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/" + project + "/instances/" + instance, TableId: table, Table: &adminpb.Table{ColumnFamilies: declared},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keys returns the row keys of a table.
func (b *bigtableServer) keys(t testing.TB, project, instance, table string) map[string]bool {
	t.Helper()
	client, err := bigtable.NewClientWithConfig(t.Context(), project, instance,
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(b.conn))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	err = client.Open(table).ReadRows(t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		out[r.Key()] = true
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bigtableServer) orderKeys(t testing.TB) map[string]bool {
	return b.keys(t, "my-project", "my-instance", "orders")
}

func startOrders(t testing.TB, b *bigtableServer, env ...string) *child {
	return startChild(t, "function", append(env, "PIPELINE="+fmt.Sprintf(benchPipeline, "json"), "FUNCTION_TARGET=write", "BIGTABLE_EMULATOR_HOST="+b.addr)...)
}

func order(i int) []byte {
	return fmt.Appendf(nil, `{"tenant":"acme","id":"%d","status":"PAID","total_cents":%d,"updated_at":"2026-08-30T10:15:30.123Z"}`, i, i)
}

func orderKey(i int) string { return fmt.Sprintf("order#acme#%d", i) }

// Every event that was acknowledged before SIGTERM is in the table; every other can be
// delivered again and then is.
func TestSIGTERMUnderLoadLosesNothing(t *testing.T) {
	b := startBigtable(t, "my-project", "my-instance", "orders", "cf")
	c := startOrders(t, b)
	const events, clients = 3000, 64
	acked := make([]atomic.Bool, events)
	var done atomic.Int64
	send := func(url string) {
		var next atomic.Int64
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
		defer client.CloseIdleConnections()
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < events; i = int(next.Add(1)) - 1 {
					if !acked[i].Load() && post(client, url, envelope(i, order(i))) == http.StatusNoContent {
						acked[i].Store(true)
						done.Add(1)
					}
				}
			})
		}
		wg.Wait()
	}
	stopped := make(chan int)
	go func() {
		for done.Load() < events/3 {
			time.Sleep(time.Millisecond)
		}
		stopped <- c.stop(t)
	}()
	send(c.url)
	if code := <-stopped; code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	first := done.Load()
	if first == events {
		t.Log("SIGTERM came after the last event")
	}
	there := b.orderKeys(t)
	for i := range acked {
		if acked[i].Load() && !there[orderKey(i)] {
			t.Errorf("event %d was acknowledged and is not in the table", i)
		}
	}
	send(startOrders(t, b).url)
	if there = b.orderKeys(t); len(there) != events || done.Load() != events {
		t.Errorf("%d rows, %d acknowledged, of %d events (%d before SIGTERM)", len(there), done.Load(), events, first)
	}
}

// A Bigtable that never answers does not keep an instance beyond the ten seconds that it
// has: the delivery is refused, told of, and the process ends well.
func TestSIGTERMWithAStuckDeliveryEndsInTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := startOrders(t, &bigtableServer{addr: silent.Addr().String()})
	status := make(chan int)
	go func() { status <- post(http.DefaultClient, c.url, envelope(1, order(1))) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := silent.Accept() // the function is now waiting
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	if code := c.stop(t); code != 0 || time.Since(start) >= 10*time.Second {
		t.Errorf("exit code %d after %s", code, time.Since(start))
	}
	if got := <-status; got != http.StatusServiceUnavailable {
		t.Errorf("the stuck delivery was answered %d", got)
	}
	if err := waitFor(ctx, func() bool { return linesWith(c.output(), "delivery refused") == 1 }); err != nil {
		t.Errorf("the refusal is not told of:\n%s", c.output())
	}
}

// Clients that hang up half-way harm nobody else (cloudevents/sdk-go#1224 is what
// happens otherwise).
func TestClientsThatHangUpHarmNobodyElse(t *testing.T) {
	b := startBigtable(t, "my-project", "my-instance", "orders", "cf")
	c := startOrders(t, b)
	const requests, clients = 4000, 64
	const within = 2 * time.Second
	addr := strings.TrimSuffix(strings.TrimPrefix(c.url, "http://"), "/")
	var next, late atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			client := &http.Client{Timeout: within, Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for i := int(next.Add(1)) - 1; i < requests; i = int(next.Add(1)) - 1 {
				body := envelope(i, order(i))
				if i%3 == 0 {
					hangUp(t, addr, body, i)
				} else if post(client, c.url, body) != http.StatusNoContent {
					late.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if late.Load() > 0 {
		t.Errorf("%d undisturbed requests were not acknowledged within %s", late.Load(), within)
	}
	there := b.orderKeys(t)
	for i := range requests {
		if i%3 != 0 && !there[orderKey(i)] {
			t.Errorf("event %d was acknowledged and is not in the table", i)
		}
	}
}

// hangUp sends a part of a request, the whole of it in every other case, and leaves.
func hangUp(t *testing.T, addr string, body []byte, i int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	sent := body
	if i%2 == 0 {
		sent = body[:len(body)/2]
	}
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	if _, err := conn.Write(sent); err != nil {
		t.Error(err)
	}
}

// deployedMemory is the limit of a service of 256 MiB: what the program itself takes, and
// what the heap takes beyond its limit for a moment, are left out of it.
const deployedMemory = "GOMEMLIMIT=192MiB"

// A body of 13 MB beside 500 small ones fits the memory that is deployed.
func TestALargeBodyBesideSmallOnesStaysWithinMemory(t *testing.T) {
	b := startBigtable(t, "my-project", "my-instance", "orders", "cf")
	c := startOrders(t, b, deployedMemory)
	large := fmt.Appendf(nil, `{"tenant":"acme","id":"large","status":"%s","total_cents":1,"updated_at":"2026-08-30T10:15:30.123Z"}`, strings.Repeat("x", 9_700_000))
	client := &http.Client{}
	defer client.CloseIdleConnections()
	statuses := make([]int, 501)
	var wg sync.WaitGroup
	for i := range statuses {
		body := envelope(i, order(i))
		if i == 250 {
			body = envelope(i, large)
		}
		wg.Go(func() { statuses[i] = post(client, c.url, body) })
	}
	wg.Wait()
	for i, s := range statuses {
		if s != http.StatusNoContent {
			t.Errorf("event %d: %d", i, s)
		}
	}
	if got := len(b.orderKeys(t)); got != 501 {
		t.Errorf("%d rows, want 501", got)
	}
	peak := peakMiB(t, c.cmd.Process.Pid)
	t.Logf("peak RSS %d MiB", peak)
	if peak > 256 && !race.Enabled {
		t.Errorf("peak RSS %d MiB, want at most 256", peak)
	}
}

func peakMiB(t testing.TB, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("peak memory is read from /proc: ", err)
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

func TestAWrongDeploymentSaysWhatToSet(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		says string
	}{
		{map[string]string{}, "neither PIPELINE (the YAML) nor PIPELINE_FILE (its path) is set"},
		{map[string]string{"PIPELINE": "a", "PIPELINE_FILE": "b"}, "PIPELINE and PIPELINE_FILE are both set"},
		{map[string]string{"FUNCTION_TARGET": "wirte", "PIPELINE": "a"}, "FUNCTION_TARGET=wirte names no function"},
		{map[string]string{"PIPELINE_FILE": "/nonexistent.yaml"}, "reading the pipeline file"},
		{map[string]string{"PIPELINE": "version: 1\nname: orders\n"}, "PIPELINE:"},
	} {
		_, err := buildFrom(c.env, c.env["FUNCTION_TARGET"])
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v does not say %q", c.env, err, c.says)
		}
	}
}

func waitFor(ctx context.Context, what func() bool) error {
	for !what() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
