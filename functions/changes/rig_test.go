package changes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

const file = `
version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders: {families: {cf: {columns: {total: int64}}, other: {}}}
changes:
  feed: {table: orders, appProfile: one, %s}
`

const (
	instance  = "projects/p/instances/i"
	tableName = instance + "/tables/orders"
	retention = 24 * time.Hour
)

var streamID = ledger.StreamID{Name: "feed", Table: tableName}

// rig is the function over an emulated table and a ledger in memory, in a bubble.
type rig struct {
	t        *testing.T
	emulator *emulator.Emulator
	conn     *grpc.ClientConn
	store    ledger.Store
	lease    time.Duration // 0: that of the deployed function
	realTime bool          // it is in no bubble
	cfg      changes.Config
	log      *functest.Log

	mu      sync.Mutex
	records []relay.Record
	refuse  func([]relay.Record) []error // nil: the sink takes all
	tasks   [][]byte
	letters []deadletter.Letter
	visits  []changes.Visit
	ticks   []changes.Reconciliation
}

// Send implements relay.Sink.
func (r *rig) Send(ctx context.Context, records []relay.Record) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	if r.refuse != nil {
		errs = r.refuse(records)
	}
	for i, rec := range records {
		if ctx.Err() == nil && (errs == nil || errs[i] == nil) {
			r.records = append(r.records, rec)
		}
	}
	return errs
}

// Publish implements changes.Publisher.
func (r *rig) Publish(_ context.Context, messages ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		data, err := task.Encode(m)
		if err != nil {
			return err
		}
		r.tasks = append(r.tasks, data)
	}
	return nil
}

// Put implements changes.DeadLetters.
func (r *rig) Put(_ context.Context, letters []deadletter.Letter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.letters = append(r.letters, letters...)
	return nil
}

// newRig deploys the stream feed with the options given, `to` included.
func newRig(t *testing.T, options string, splits ...string) *rig {
	t.Helper()
	p, err := pipeline.Parse(fmt.Appendf(nil, file, options), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: storetest.NewMemory(), log: &functest.Log{}}
	r.emulator, r.conn = functest.Bigtable(t, emulator.Options{})
	req := &adminpb.CreateTableRequest{Parent: instance, TableId: "orders", Table: &adminpb.Table{
		ColumnFamilies:     map[string]*adminpb.ColumnFamily{"cf": {}, "other": {}},
		ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(retention)},
	}}
	for _, s := range splits {
		req.InitialSplits = append(req.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(s)})
	}
	if _, err := adminpb.NewBigtableTableAdminClient(r.conn).CreateTable(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	_, err = adminpb.NewBigtableInstanceAdminClient(r.conn).CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{
		Parent: instance, AppProfileId: "one", AppProfile: &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{
			SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "c1"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = changes.Config{
		Pipeline: p, Ledger: r.ledger(r.store), Tasks: r, DeadLetters: r, Holder: "reader", Graces: changestream.DefaultGraces(),
		Conn:      r.conn,
		Retention: func(context.Context, *pipeline.Change) (time.Duration, error) { return retention, nil },
		Sink:      func(context.Context, *pipeline.Change) (relay.Sink, error) { return r, nil },
		Budget:    changes.Budget, CommitEvery: changes.CommitEvery, Heartbeat: changes.Heartbeat, Stopping: context.Background(),
		Logger: slog.New(slog.NewTextHandler(r.log, nil)), Now: time.Now,
		Report: func(_ context.Context, v changes.Visit) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.visits = append(r.visits, v)
		},
		Ticked: func(_ context.Context, t changes.Reconciliation) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ticks = append(r.ticks, t)
		},
	}
	return r
}

func (r *rig) ledger(s ledger.Store) *ledger.Ledger {
	return ledger.New(s, "orders", ledger.Options{Lease: r.lease})
}

// keepIn has the function's ledger in another store than one in memory.
func (r *rig) keepIn(s ledger.Store) {
	r.store = s
	r.cfg.Ledger = r.ledger(s)
}

// serve sends a request to a process of the function, and returns its answer.
func (r *rig) serve(ctx context.Context, cfg changes.Config, path string, body []byte) int {
	handler, err := changes.New(cfg)
	if err != nil {
		r.t.Error(err)
		return 0
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body)))
	return w.Code
}

func (r *rig) tick() {
	r.t.Helper()
	if code := r.serve(r.t.Context(), r.cfg, "/changes", nil); code != http.StatusNoContent {
		r.t.Fatalf("a tick is answered with %d: %s", code, r.log)
	}
}

// take returns the tasks that are published, and forgets them.
func (r *rig) take() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := r.tasks
	r.tasks = nil
	return tasks
}

// deliver delivers a task that is published now.
func (r *rig) deliver(ctx context.Context, cfg changes.Config, data []byte) {
	body := functest.Delivery(r.t, "m", time.Now().UTC().Format(time.RFC3339Nano), data)
	if code := r.serve(ctx, cfg, "/", body); code != http.StatusNoContent {
		r.t.Errorf("a task is answered with %d", code)
	}
}

// work delivers tasks until there are none.
func (r *rig) work() {
	for tasks := r.take(); len(tasks) > 0; tasks = r.take() {
		var all sync.WaitGroup
		for _, data := range tasks {
			all.Go(func() { r.deliver(r.t.Context(), r.cfg, data) })
		}
		all.Wait()
	}
}

// round is what happens in a minute.
func (r *rig) round() {
	r.t.Helper()
	next := time.Now().Add(time.Minute)
	r.tick()
	r.work()
	time.Sleep(time.Until(next))
}

// set writes cf:total of rows, number by number.
func (r *rig) set(row string, value int64) {
	r.t.Helper()
	r.mutate(row, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: "cf", ColumnQualifier: []byte("total"), TimestampMicros: 1000,
		Value: []byte{byte(value >> 56), byte(value >> 48), byte(value >> 40), byte(value >> 32), byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)},
	}}})
}

func (r *rig) mutate(row string, m ...*bigtablepb.Mutation) {
	r.t.Helper()
	_, err := bigtablepb.NewBigtableClient(r.conn).MutateRow(r.t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte(row), Mutations: m})
	if err != nil {
		r.t.Fatal(err)
	}
}

// told is one record as a user reads it.
type told struct {
	RowKey  string
	Entries []struct {
		Index                                int
		Kind, Family, Qualifier, ValueBase64 string
		Value                                any
	}
}

// values returns, by row, the values that arrived, each record once, in order.
func (r *rig) values() map[string][]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, seen := map[string][]int64{}, map[string]bool{}
	for _, rec := range r.records {
		if seen[rec.ID()] {
			continue
		}
		seen[rec.ID()] = true
		var c told
		if err := json.Unmarshal(rec.Body, &c); err != nil {
			r.t.Fatalf("%v: %s", err, rec.Body)
		}
		for _, e := range c.Entries {
			out[c.RowKey] = append(out[c.RowKey], int64(e.Value.(float64)))
		}
	}
	return out
}

// outcomes returns what became of the visits since it was last asked, sorted.
func (r *rig) outcomes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, v := range r.visits {
		out = append(out, string(v.Outcome))
	}
	r.visits = nil
	slices.Sort(out)
	return strings.Join(out, " ")
}

// held compares the ledger with the tablets of the table.
func (r *rig) held() error {
	top, err := r.ledger(r.store).Topology(r.t.Context(), streamID)
	if err != nil {
		return err
	}
	tablets, err := r.emulator.Tablets(tableName)
	if err != nil {
		return err
	}
	var want, got []string
	for _, tablet := range tablets {
		want = append(want, fmt.Sprintf("[%s,%s)", tablet.Start, tablet.End))
	}
	for _, p := range top.Partitions {
		got = append(got, fmt.Sprintf("[%s,%s)", p.Range.Start, p.Range.End))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(top.Pending)+len(top.Stream.Missing) > 0 || top.Stream.Initial {
		return fmt.Errorf("the ledger holds %v, the table has %v; %d pending, %d missing", got, want, len(top.Pending), len(top.Stream.Missing))
	}
	return nil
}
