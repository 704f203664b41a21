package scanworker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

const tables = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families: {cf: {columns: {status: string, total: int64}}, other: {}, absent: {}}
scans:
`

const tableName = "projects/my-project/instances/my-instance/tables/orders"

// harness is the function over a ledger in memory.
type harness struct {
	t       testing.TB
	store   ledger.Store
	options ledger.Options
	cfg     scanworker.Config
	handler http.Handler
	sink    *keptSink
	log     *functest.Log

	// Where there is an emulator.
	emulator *emulator.Emulator
	conn     *grpc.ClientConn

	mu        sync.Mutex
	tasks     []task.Scan
	done      []task.ScanDone
	publish   error // of the next messages
	letters   []deadletter.Letter
	summaries []scanworker.Summary
}

// keptSink keeps what it takes.
type keptSink struct {
	mu      sync.Mutex
	records []relay.Record
	before  func(ctx context.Context, records []relay.Record) []error // nil: takes all
}

func (s *keptSink) Send(ctx context.Context, records []relay.Record) []error {
	var errs []error
	if s.before != nil {
		errs = s.before(ctx, records)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range records {
		if errs == nil || errs[i] == nil {
			s.records = append(s.records, r)
		}
	}
	return errs
}

// bodies returns what was sent, in order.
func (s *keptSink) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.records {
		out = append(out, string(r.Body))
	}
	return out
}

// newHarness deploys the scan `all` of the table orders, without a table behind it.
func newHarness(t testing.TB, scan string) *harness {
	t.Helper()
	p, err := pipeline.Parse([]byte(tables+"  all: {table: orders, "+scan+"}\n"), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, store: storetest.NewMemory(), sink: &keptSink{}, log: &functest.Log{}}
	h.cfg = scanworker.Config{
		Pipeline: p, Sink: func(context.Context, *pipeline.Scan) (relay.Sink, error) { return h.sink, nil },
		DeadLetters: h, Tasks: h, Done: h, Holder: "worker", Budget: scanworker.Budget, Slice: scanworker.Slice,
		CommitEvery: scanworker.CommitEvery, Stopping: context.Background(), Logger: slog.New(slog.NewTextHandler(h.log, nil)), Now: time.Now,
		Report: func(_ context.Context, s scanworker.Summary) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.summaries = append(h.summaries, s)
		},
	}
	h.start()
	return h
}

// start is another process of the same function.
func (h *harness) start() {
	h.t.Helper()
	h.cfg.Ledger = ledger.New(h.store, "orders", h.options)
	var err error
	if h.handler, err = scanworker.New(h.cfg); err != nil {
		h.t.Fatal(err)
	}
}

// withTable puts an emulated table behind the function, with families cf and other.
func (h *harness) withTable(o emulator.Options) *harness {
	h.t.Helper()
	h.emulator, h.conn = functest.Bigtable(h.t, o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.emulator.Serve(listener) })
	h.t.Cleanup(func() { h.emulator.Close(); serving.Wait() })
	_, err = adminpb.NewBigtableTableAdminClient(h.conn).CreateTable(h.t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders",
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"cf": {}, "other": {}}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: listener.Addr().String()})
	if err != nil {
		h.t.Fatal(err)
	}
	open := scanworker.NewTables(dialer)
	h.t.Cleanup(func() { open.Close() })
	h.cfg.Table = open.Table
	h.start()
	return h
}

// put writes cells of family cf or other: key, column, value.
func (h *harness) put(cells ...string) {
	h.t.Helper()
	req := &bigtablepb.MutateRowsRequest{TableName: tableName}
	for i := 0; i < len(cells); i += 3 {
		family, qualifier, _ := bytes.Cut([]byte(cells[i+1]), []byte(":"))
		req.Entries = append(req.Entries, &bigtablepb.MutateRowsRequest_Entry{
			RowKey: []byte(cells[i]), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
				FamilyName: string(family), ColumnQualifier: qualifier, TimestampMicros: 1000, Value: []byte(cells[i+2]),
			}}}},
		})
	}
	stream, err := bigtablepb.NewBigtableClient(h.conn).MutateRows(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	for res, err := stream.Recv(); err == nil; res, err = stream.Recv() {
		for _, e := range res.Entries {
			if e.Status.GetCode() != 0 {
				h.t.Fatal(e.Status)
			}
		}
	}
}

func key(i int) string { return fmt.Sprintf("k%05d", i) }

func number(n int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// putRows writes rows from 0 to n with cf:total.
func (h *harness) putRows(n int) {
	var cells []string
	for i := range n {
		cells = append(cells, key(i), "cf:total", number(i))
	}
	h.put(cells...)
}

// plan begins scan s with one split for each list of ranges.
func (h *harness) plan(limit int64, splits ...[]rowrange.Range) {
	h.t.Helper()
	if _, err := h.cfg.Ledger.Begin(h.t.Context(), "s", "all", nil); err != nil {
		h.t.Fatal(err)
	}
	scan, err := h.cfg.Ledger.Plan(h.t.Context(), "s", ledger.Draft{Splits: splits, Limit: limit, Table: tableName})
	if err != nil {
		h.t.Fatal(err)
	}
	tasks, err := h.cfg.Ledger.Unfinished(h.t.Context(), scan)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, t := range tasks {
		h.tasks = append(h.tasks, h.task(t.Index))
	}
}

func whole() []rowrange.Range { return []rowrange.Range{{}} }

func (h *harness) scan() *ledger.Scan {
	h.t.Helper()
	s, err := h.cfg.Ledger.Scan(h.t.Context(), "s")
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *harness) task(split int) task.Scan {
	return task.Scan{Version: 1, Scan: "s", Name: "all", Attempt: h.scan().Attempt, Split: split}
}

func (h *harness) split(index int) *ledger.Split {
	h.t.Helper()
	var found *ledger.Split
	err := h.cfg.Ledger.Splits(h.t.Context(), h.scan(), func(s *ledger.Split) error {
		if s.Index == index {
			found = s
		}
		return nil
	})
	if err != nil || found == nil {
		h.t.Fatalf("split %d: %v, %v", index, found, err)
	}
	return found
}

// deliver sends one task and returns the answer and what became of it.
func (h *harness) deliver(t task.Scan) (int, scanworker.Summary) {
	h.t.Helper()
	data, err := task.Encode(t)
	if err != nil {
		h.t.Fatal(err)
	}
	code := h.post(data)
	h.mu.Lock()
	defer h.mu.Unlock()
	return code, h.summaries[len(h.summaries)-1]
}

func (h *harness) post(data []byte) int {
	h.t.Helper()
	body := functest.Delivery(h.t, "m", "2026-08-30T03:00:04Z", data)
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	return w.Code
}

// run delivers tasks until none is left, and refused ones again after ten seconds.
func (h *harness) run() {
	h.t.Helper()
	for deliveries := 0; ; deliveries++ {
		h.mu.Lock()
		if len(h.tasks) == 0 {
			h.mu.Unlock()
			return
		}
		next := h.tasks[0]
		h.tasks = h.tasks[1:]
		h.mu.Unlock()
		if deliveries > 1000 {
			h.t.Fatal("the tasks do not end")
		}
		if code, _ := h.deliver(next); code != http.StatusNoContent {
			time.Sleep(10 * time.Second) // of a bubble
			h.mu.Lock()
			h.tasks = append(h.tasks, next)
			h.mu.Unlock()
		}
	}
}

// Publish implements scanjob.Publisher.
func (h *harness) Publish(_ context.Context, messages ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.publish != nil {
		return h.publish
	}
	for _, m := range messages {
		switch m := m.(type) {
		case task.Scan:
			h.tasks = append(h.tasks, m)
		case task.ScanDone:
			h.done = append(h.done, m)
		}
	}
	return nil
}

// Put implements DeadLetters.
func (h *harness) Put(_ context.Context, letters []deadletter.Letter) error {
	h.letters = append(h.letters, letters...)
	return nil
}

// calls counts the calls of a method, from now on.
func (h *harness) calls(method string) func() int {
	id := h.emulator.Inject(emulator.Fault{Method: method, Delay: time.Nanosecond})
	return func() int {
		faults := h.emulator.Faults()
		i := slices.IndexFunc(faults, func(f emulator.ActiveFault) bool { return f.ID == id })
		return faults[i].Hits
	}
}

// wantKeys is what `emit: {id: rowKey}` makes of rows from to to, and of one column.
func wantKeys(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, `{"id":"`+key(i)+`"}`)
	}
	return out
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
