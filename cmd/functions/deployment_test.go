package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/functest/deploy"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// soak says that sizes are full.
func soak() bool { return os.Getenv("BTF_SOAK") != "" }

// deployment is real processes of the function, between a Pub/Sub and a Bigtable of the
// test's process.
type deployment struct {
	t        *testing.T
	file     string
	env      []string
	emulator *emulator.Emulator
	addr     string // of the emulator
	conn     *grpc.ClientConn
	cloud    *localcloud.Cloud
	events   *localcloud.Subscription
	client   *pubsub.Client
	web      *http.Client

	mu       sync.Mutex
	random   *rand.Rand
	children []*child
}

// newDeployment starts n processes of the pipeline. The file's literal tables exist.
func newDeployment(t *testing.T, file string, n int, env ...string) *deployment {
	t.Helper()
	f := &deployment{t: t, file: file, random: rand.New(rand.NewPCG(1, 2)), web: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}}
	t.Cleanup(f.web.CloseIdleConnections)
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "pipeline.yaml"})
	f.must(err)
	f.startBigtable(p)
	f.cloud, err = localcloud.New(localcloud.Options{Project: "local", Logger: slog.New(slog.DiscardHandler)})
	f.must(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		f.cloud.Close(ctx) // cut off where the test has failed
	})
	f.client, err = f.cloud.Client(t.Context())
	f.must(err)
	t.Cleanup(func() { f.client.Close() })
	f.events = deploy.Write(t, f.cloud, file, f, func(p *localcloud.Push) {
		p.MinBackoff, p.MaxBackoff = 50*time.Millisecond, time.Second
	})
	f.env = append(env, "PIPELINE="+file, "FUNCTION_TARGET=write", "BIGTABLE_EMULATOR_HOST="+f.addr,
		"PUBSUB_EMULATOR_HOST="+f.cloud.Addr(), "PUBSUB_PROJECT=local")
	f.children = make([]*child, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f.restart(i) })
	}
	wg.Wait()
	return f
}

func (f *deployment) must(err error) {
	if err != nil {
		f.t.Helper()
		f.t.Fatal(err)
	}
}

func (f *deployment) startBigtable(p *pipeline.Pipeline) {
	f.emulator, f.conn, f.addr = functest.BigtableOverTCP(f.t, emulator.Options{Limits: emulator.Limits{CellBytes: 1 << 20}})
	schema := writer.Schemas(p.Tables)
	for _, table := range p.Tables {
		if !table.IDFrom.IsZero() {
			continue
		}
		s, err := schema(pipeline.TableRef{Project: table.Project, Instance: table.Instance, Table: table.ID})
		f.must(err)
		_, err = adminpb.NewBigtableTableAdminClient(f.conn).CreateTable(f.t.Context(), &adminpb.CreateTableRequest{
			Parent: "projects/my-project/instances/my-instance", TableId: table.ID, Table: &adminpb.Table{ColumnFamilies: s.Declared()},
		})
		f.must(err)
	}
}

// restart kills process i as kill -9 does, whatever it is doing, and starts another.
func (f *deployment) restart(i int) {
	f.mu.Lock()
	old := f.children[i]
	f.children[i] = nil
	f.mu.Unlock()
	if old != nil {
		if err := old.cmd.Process.Kill(); err != nil {
			f.t.Error(err)
		}
	}
	c := startChild(f.t, "function", f.env...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.children[i] = c
}

// ServeHTTP is the load balancer: it sends a delivery to a process that lives.
func (f *deployment) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	c := f.children[f.random.IntN(len(f.children))]
	f.mu.Unlock()
	if c == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	again, err := http.NewRequestWithContext(r.Context(), http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	again.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	resp, err := f.web.Do(again)
	if err != nil { // it was killed
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
}

// publish publishes messages to the pipeline's topic.
func (f *deployment) publish(topic string, data ...[]byte) {
	f.t.Helper()
	publisher := f.client.Publisher(topic)
	defer publisher.Stop()
	results := make([]*pubsub.PublishResult, len(data))
	for i, d := range data {
		results[i] = publisher.Publish(f.t.Context(), &pubsub.Message{Data: d})
	}
	for _, r := range results {
		_, err := r.Get(f.t.Context())
		f.must(err)
	}
}

// idle waits until every message is settled.
func (f *deployment) idle(within time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(f.t.Context(), within, errors.New("too slow"))
	defer cancel()
	if err := f.events.Idle(ctx); err != nil {
		f.t.Fatalf("%v: %+v", err, f.events.Counts())
	}
}

// rows reads a table: row key, then family:qualifier, to the newest value.
func (f *deployment) rows(table string) map[string]map[string]string {
	f.t.Helper()
	client, err := bigtable.NewClientWithConfig(f.t.Context(), "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(f.conn))
	f.must(err)
	out := map[string]map[string]string{}
	f.must(client.Open(table).ReadRows(f.t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		row := map[string]string{}
		for _, items := range r {
			for _, item := range items {
				row[item.Column] = string(item.Value)
			}
		}
		out[r.Key()] = row
		return true
	}, bigtable.RowFilter(bigtable.LatestNFilter(1))))
	return out
}
