package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/bigtable-functions/bigtable-functions/examples"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// childVariable makes this test binary a function's process instead: what is killed
// and measured here is a real one.
const childVariable = "BTF_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "":
		os.Exit(m.Run())
	case "function":
		profiled(main)
	case "bigtable":
		serveBigtable()
	case "short leases":
		settings, err := readSettings(os.Getenv)
		if err == nil {
			err = run(environment{settings: settings, logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), ledgerOptions: ledger.Options{Lease: 2 * time.Second}})
		}
		if err != nil {
			log.Fatal(err)
		}
	case "floor":
		serveBaseline(decodeOnly())
	case "naive":
		serveBaseline(naive())
	}
}

// profiled writes a CPU profile where BTF_TEST_PROFILE names a file.
func profiled(f func()) {
	if name := os.Getenv("BTF_TEST_PROFILE"); name != "" {
		out, err := os.Create(name)
		if err != nil {
			log.Fatal(err)
		}
		if err := pprof.StartCPUProfile(out); err != nil {
			log.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	f()
}

// child is a running function.
type child struct {
	url    string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	mu     sync.Mutex
	log    bytes.Buffer
}

// startChild runs this binary as kind and waits until it serves.
func startChild(t testing.TB, kind string, env ...string) *child {
	t.Helper()
	port := functest.FreePort(t)
	c := &child{url: "http://127.0.0.1:" + port + "/", cmd: exec.Command(os.Args[0]), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), append(env, childVariable+"="+kind, "PORT="+port, "K_SERVICE=test")...)
	c.cmd.Stdout, c.cmd.Stderr = c, c
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(c.exited); c.cmd.Wait() }()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.exited
		if t.Failed() {
			t.Logf("%s said:\n%s", kind, c.output())
		}
	})
	for range 600 {
		select {
		case <-c.exited:
			t.Fatalf("%s ended: %s", kind, c.output())
		case <-time.After(50 * time.Millisecond):
		}
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			return c
		}
	}
	t.Fatalf("%s does not serve: %s", kind, c.output())
	return nil
}

// Write collects what the child prints.
func (c *child) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// stop sends SIGTERM and returns the exit code.
func (c *child) stop(t testing.TB) int {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.exited:
	case <-time.After(time.Minute):
		t.Fatalf("still running a minute after SIGTERM: %s", c.output())
	}
	return c.cmd.ProcessState.ExitCode()
}

// envelope is a wrapped push body.
func envelope(id int, data []byte) []byte {
	b, err := json.Marshal(map[string]any{
		"message": map[string]any{
			"data": data, "attributes": map[string]string{"kind": "order"}, "messageId": fmt.Sprint(id),
			"publishTime": "2026-08-30T10:15:31.000Z",
		},
		"subscription": "projects/p/subscriptions/s",
	})
	if err != nil {
		panic(err)
	}
	return b
}

// post delivers one body as Eventarc does and returns the status, 0 for none.
func post(client *http.Client, url string, body []byte) int {
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "ce-id": "1", "ce-specversion": "1.0",
		"ce-type": "google.cloud.pubsub.topic.v1.messagePublished", "ce-source": "//pubsub.googleapis.com/projects/p/topics/t",
	} {
		r.Header.Set(name, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// The two baselines that the write path is measured beside: decoding alone, and what
// one writes first.

type naivePush struct {
	Message struct {
		Data      []byte `json:"data"`
		MessageID string `json:"messageId"`
	} `json:"message"`
}

type naiveOrder struct {
	Tenant, ID, Status, Coupon string
	TotalCents                 int64     `json:"total_cents"`
	UpdatedAt                  time.Time `json:"updated_at"`
}

func decodeOnly() func() {
	return func() {
		functions.HTTP("fn", func(w http.ResponseWriter, r *http.Request) {
			var p naivePush
			var o naiveOrder
			if err := json.NewDecoder(r.Body).Decode(&p); err == nil {
				err = json.Unmarshal(p.Message.Data, &o)
				_ = err
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
}

func naive() func() {
	return func() {
		client, err := bigtable.NewClientWithConfig(context.Background(), "p", "i", bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}})
		if err != nil {
			log.Fatal(err)
		}
		table := client.Open("orders")
		functions.CloudEvent("fn", func(ctx context.Context, e event.Event) error {
			var p naivePush
			if err := e.DataAs(&p); err != nil {
				return err
			}
			var o naiveOrder
			if err := json.Unmarshal(p.Message.Data, &o); err != nil {
				return err
			}
			m := bigtable.NewMutation()
			ts := bigtable.Time(o.UpdatedAt)
			m.Set("cf", "status", ts, []byte(o.Status))
			m.Set("cf", "total", ts, fmt.Append(nil, o.TotalCents))
			m.Set("cf", "coupon", ts, []byte(o.Coupon))
			return table.Apply(ctx, "order#"+o.Tenant+"#"+o.ID, m)
		})
	}
}

func serveBaseline(register func()) {
	slog.SetLogLoggerLevel(slog.LevelError)
	register()
	os.Setenv("FUNCTION_TARGET", "fn")
	log.Fatal(funcframework.StartHostPort("127.0.0.1", os.Getenv("PORT")))
}

func linesWith(log, text string) int {
	n := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func readExample(t testing.TB, name string) []byte {
	t.Helper()
	b, err := examples.Flights.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
