// Package functest is what the tests of several functions share: a Bigtable, a log, a
// delivery of Pub/Sub, and what instruments say. Each is ended with its test.
package functest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// Bigtable starts an emulator and connects to it, in memory.
func Bigtable(t testing.TB, o emulator.Options) (*emulator.Emulator, *grpc.ClientConn) {
	t.Helper()
	e, err := emulator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	conn, err := e.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return e, conn
}

// BigtableOverTCP is Bigtable for commands and for other processes, too: the emulator also
// listens at the address that is returned.
func BigtableOverTCP(t testing.TB, o emulator.Options) (*emulator.Emulator, *grpc.ClientConn, string) {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait) // after the emulator is closed
	e, conn := Bigtable(t, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving.Go(func() {
		if err := e.Serve(l); err != nil {
			t.Errorf("the emulator: %v", err)
		}
	})
	return e, conn, l.Addr().String()
}

// FreePort returns a port of this machine that was free just now, for a process that takes its port
// from its environment.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Log collects what several goroutines log.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Delivery returns the body with which Pub/Sub pushes a message; published is in RFC 3339.
func Delivery(t testing.TB, id, published string, data []byte) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"message":      map[string]any{"messageId": id, "publishTime": published, "data": data},
		"subscription": "projects/my-project/subscriptions/s",
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// Readings returns every series as name{attributes} → value; of a histogram, the count.
func Readings(t testing.TB, reader *sdk.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	series := func(name string, set attribute.Set, v int64) {
		for _, a := range set.ToSlice() {
			name += fmt.Sprintf("{%s=%s}", a.Key, a.Value.AsString())
		}
		out[name] = v
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					series(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					series(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					series(m.Name, p.Attributes, int64(p.Count))
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return out
}

// Killed starts a process, lets name name it by its PID, and kills it.
func Killed[Name any](t testing.TB, name func(pid int) Name) Name {
	t.Helper()
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	named := name(victim.Process.Pid)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // "signal: killed"
	return named
}
