package write_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

const instance = "projects/my-project/instances/my-instance"

// harness is the function write over an emulator, behind a real HTTP server.
type harness struct {
	t        testing.TB
	emulator *emulator.Emulator
	conn     *grpc.ClientConn
	server   *httptest.Server
	letters  *letterBox
	log      *functest.Log
	limits   mapping.Limits
	service  emulator.Limits // what the emulator refuses
	create   bool            // tables exist from the start
	call     func(string)    // is told the name of each call to Bigtable
	meter    metric.Meter    // nil: no instruments
	writer   *writer.Writer
}

// told tells h.call of a call.
func (h *harness) told(method string) {
	if h.call != nil {
		h.call(method[strings.LastIndexByte(method, '/')+1:])
	}
}

// letterBox keeps dead letters in memory, or fails.
type letterBox struct {
	mu      sync.Mutex
	letters []deadletter.Letter
	err     error
}

func (b *letterBox) Put(_ context.Context, letters []deadletter.Letter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.letters = append(b.letters, letters...)
	return nil
}

func (b *letterBox) stats() (published, outstanding int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.letters)), 0
}

// connection lets the writer share the test's connection to the emulator.
type connection struct {
	*grpc.ClientConn
	told func(method string)
}

func (connection) Close() error { return nil }

func (c connection) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.told(method)
	return c.ClientConn.Invoke(ctx, method, args, reply, opts...)
}

func (c connection) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.told(method)
	return c.ClientConn.NewStream(ctx, d, method, opts...)
}

// newHarness deploys a pipeline file. Tables exist with the families given, which may be
// other ones than the file declares.
func newHarness(t testing.TB, file string, families map[string]*adminpb.ColumnFamily, change func(*harness)) *harness {
	t.Helper()
	h := &harness{t: t, letters: &letterBox{}, log: &functest.Log{}, limits: mapping.ServiceLimits(), create: true}
	if change != nil {
		change(h)
	}
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "pipeline.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	h.emulator, h.conn = functest.Bigtable(t, emulator.Options{Limits: h.service})
	for _, table := range p.Tables {
		if !h.create || !table.IDFrom.IsZero() {
			continue
		}
		_, err = adminpb.NewBigtableTableAdminClient(h.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
			Parent: instance, TableId: table.ID, Table: &adminpb.Table{ColumnFamilies: families},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	h.serve(p)
	return h
}

func (h *harness) serve(p *pipeline.Pipeline) {
	logger := slog.New(telemetry.NewHandler(h.log, slog.LevelDebug, ""))
	dial := func(context.Context, string, string) (writer.Conn, error) { return connection{h.conn, h.told}, nil }
	w, err := writer.New(writer.Config{
		Schema: writer.Schemas(p.Tables), Dial: dial, DialAdmin: dial, Limits: p.Write.Limits, Repair: p.Write.Repair, Logger: logger,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.writer = w
	log := write.NewLog(logger, p.Name)
	report := log.Report
	if h.meter != nil {
		metrics, err := write.NewMetrics(h.meter, write.Gauges{Writer: w.Stats, DeadLetters: h.letters.stats})
		if err != nil {
			h.t.Fatal(err)
		}
		report = func(ctx context.Context, s write.Summary) { log.Report(ctx, s); metrics.Report(ctx, s) }
	}
	h.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			h.t.Errorf("closing the writer: %v", err)
		}
	})
	compiled, err := mapping.Compile(p, h.limits)
	if err != nil {
		h.t.Fatal(err)
	}
	handler, err := write.New(write.Config{
		Pipeline: p, Compiled: compiled, Writer: w, DeadLetters: h.letters, Budget: time.Minute,
		Logger: logger, Now: time.Now, Report: report,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = httptest.NewServer(handler)
	h.t.Cleanup(h.server.Close)
}

// deliver posts data in a push envelope and returns the status.
func (h *harness) deliver(id string, data []byte) int {
	h.t.Helper()
	return h.post(functest.Delivery(h.t, id, "2026-08-30T10:15:31.456Z", data))
}

func (h *harness) post(body []byte) int {
	h.t.Helper()
	resp, err := http.Post(h.server.URL, "application/json", bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// read calls f with the rows of a table.
func (h *harness) read(table string, f func(bigtable.Row), opts ...bigtable.ReadOption) {
	h.t.Helper()
	client, err := bigtable.NewClientWithConfig(h.t.Context(), "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(h.conn))
	if err != nil {
		h.t.Fatal(err)
	}
	err = client.Open(table).ReadRows(h.t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		f(r)
		return true
	}, opts...)
	if err != nil {
		h.t.Fatal(err)
	}
}

// rows reads a table back: row key, then family:qualifier, to the newest value.
func (h *harness) rows(table string) map[string]map[string]string {
	h.t.Helper()
	out := map[string]map[string]string{}
	h.read(table, func(r bigtable.Row) {
		out[r.Key()] = map[string]string{}
		for _, items := range r {
			for _, item := range items {
				out[r.Key()][item.Column] = string(item.Value)
			}
		}
	}, bigtable.RowFilter(bigtable.LatestNFilter(1)))
	return out
}

// versions counts the cells of a row.
func (h *harness) versions(table, key string) int {
	h.t.Helper()
	n := 0
	h.read(table, func(r bigtable.Row) {
		for _, items := range r {
			if r.Key() == key {
				n += len(items)
			}
		}
	})
	return n
}

func plainFamilies(names ...string) map[string]*adminpb.ColumnFamily {
	out := map[string]*adminpb.ColumnFamily{}
	for _, n := range names {
		out[n] = &adminpb.ColumnFamily{}
	}
	return out
}

// ordersFile is a pipeline with the policies given.
func ordersFile(format, onFailure, onUnmatched string) string {
	return fmt.Sprintf(`
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64}}
      extra: {}
write:
  format: %s
  onFailure: %s
  onUnmatched: %s
  mappings:
    - name: order
      when: event.?type.orValue("order") == "order"
      table: orders
      rowKey: event.id
      timestamp: timestamp(event.?at.orValue("2026-08-30T10:15:30.123Z"))
      mutations:
        - set: {cf: {status: event.?status, total: event.?total}}
        - when: has(event.extra)
          set: {extra: {blob: event.extra}}
`, format, onFailure, onUnmatched)
}
