package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
)

const (
	changesPipeline = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families: {cf: {columns: {status: string}}}
changes:
  feed: {table: orders, appProfile: default, window: 5s, idleStop: false, to: {pubsub: {topic: out, orderBy: rowKey}}}
`
	ordersTable = "projects/my-project/instances/my-instance/tables/orders"
)

// feed is a table whose changes processes of the function read into a topic, while tablets
// split and merge and processes are killed.
type feed struct {
	t       *testing.T
	table   *emulator.Emulator
	conn    *grpc.ClientConn
	topics  *localcloud.Cloud
	readers *workers
}

func newFeed(t *testing.T, env ...string) *feed {
	t.Helper()
	f := &feed{t: t, topics: startTopics(t)}
	var addr string
	f.table, f.conn, addr = functest.BigtableOverTCP(t, emulator.Options{})
	_, err := adminpb.NewBigtableTableAdminClient(f.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders", Table: &adminpb.Table{
			ColumnFamilies:     map[string]*adminpb.ColumnFamily{"cf": {}},
			ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
		},
		InitialSplits: []*adminpb.CreateTableRequest_Split{{Key: []byte(scanKey(20))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.readers = startWorkers(t, 3, "short leases", append(env, "PIPELINE="+changesPipeline, "FUNCTION_TARGET=changes",
		"BIGTABLE_EMULATOR_HOST="+addr, "PUBSUB_EMULATOR_HOST="+f.topics.Addr(), "PUBSUB_PROJECT=p")...)
	if err := f.topics.CreateTopics(t.Context(), "orders-change-tasks"); err != nil {
		t.Fatal(err)
	}
	_, err = f.topics.CreatePush(t.Context(), localcloud.Push{
		ID: "orders-change-tasks", Topic: "orders-change-tasks", Handler: f.readers, AckDeadline: 2 * time.Minute,
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tick does what Cloud Scheduler does, and returns the status of the answer.
func (f *feed) tick() int {
	w := &recorder{}
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "http://changes/", http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	f.readers.ServeHTTP(w, r)
	return w.status
}

// recorder keeps the status of an answer without a body.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// during calls do every d until end is called, which waits for it.
func during(d time.Duration, do func()) (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(d):
				do()
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}

// arrived returns, by row, the values that arrived, repeats of a record left out, and how
// many records were repeats.
func (f *feed) arrived() (values map[string][]int, repeats int) {
	values = map[string][]int{}
	seen := map[string]bool{}
	for _, m := range f.topics.Published("out") {
		if id := m.Attributes[sink.IDAttribute]; seen[id] {
			repeats++
			continue
		} else {
			seen[id] = true
		}
		var c struct {
			RowKey  string
			Entries []struct{ Value string }
		}
		if err := json.Unmarshal(m.Data, &c); err != nil {
			f.t.Fatalf("%v: %s", err, m.Data)
		}
		for _, e := range c.Entries {
			n, err := strconv.Atoi(e.Value)
			if err != nil {
				f.t.Fatal(err)
			}
			values[c.RowKey] = append(values[c.RowKey], n)
		}
	}
	return values, repeats
}

// Processes are killed as by kill -9 while they read, and tablets split and merge: every
// change arrives, those of a row in order but for repeats, of which there are no more than
// each kill can cause, and in the end the ledger has each key once.
//
// covers: CS-08, CS-09, CS-25, CS-26, CS-27
func TestChangesSurviveTheDeathOfTheirReaders(t *testing.T) {
	t.Run("Firestore", func(t *testing.T) {
		addr := googleemu.Start(t, "firestore")
		t.Setenv("FIRESTORE_EMULATOR_HOST", addr) // of the processes, too
		changesSurvive(t, "LEDGER=firestore:p/(default)", func() ledger.Store {
			s, err := firestore.Open(t.Context(), "p", "(default)")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		})
	})
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		changesSurvive(t, "LEDGER=file:"+path, func() ledger.Store {
			s, err := file.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}

func changesSurvive(t *testing.T, place string, open func() ledger.Store) {
	span, kills := 6*time.Second, 4
	if soak() {
		span, kills = 2*time.Minute, 12
	}
	f := newFeed(t, place)
	await(t, func() bool { return f.tick() == http.StatusNoContent }) // from here on changes count
	l := ledger.New(open(), "orders", ledger.Options{})
	var written, moves atomic.Int64
	var pace pace
	endWrites := during(25*time.Millisecond, func() {
		n := written.Add(1)
		if err := writeOrders(f.conn, 0, 40, fmt.Sprint(n)); err != nil {
			t.Error(err)
		}
	})
	endTicks := during(200*time.Millisecond, func() {
		f.tick()
		pace.note(len(f.topics.Published("out")))
	})
	random := rand.New(rand.NewPCG(3, 1))
	// A tablet that moves again before readers have followed may take minutes to be found
	// again; that is tried in simulated time.
	endMoves := during(200*time.Millisecond, func() {
		if !f.settled(l) {
			return
		}
		moves.Add(1)
		key := []byte(scanKey(random.IntN(40)))
		if f.table.SplitTablet(ordersTable, key) != nil {
			_ = f.table.MergeTablets(ordersTable, key)
		}
	})
	for k := range kills {
		time.Sleep(span / time.Duration(kills))
		f.readers.kill(k % len(f.readers.children))
	}
	endMoves()
	endWrites()
	want := int(written.Load())
	await(t, func() bool {
		values, _ := f.arrived()
		for i := range 40 {
			if len(values[scanKey(i)]) < want {
				return false
			}
		}
		return true
	})
	endTicks()
	values, repeats := f.arrived()
	for row, got := range values {
		if !slices.IsSorted(got) || len(got) != want || got[0] != 1 || got[want-1] != want {
			t.Errorf("row %s: %d values of %d, sorted: %v", row, len(got), want, slices.IsSorted(got))
		}
	}
	most := kills * pace.most(changes.CommitEvery+time.Second)
	t.Logf("%d changes, %d of them once more after %d kills and %d moves; %d were allowed", 40*want, repeats, kills, moves.Load(), most)
	if moves.Load() < 3 {
		t.Error("hardly any tablet has moved")
	}
	if repeats > most {
		t.Errorf("%d repeats, want %d at most", repeats, most)
	}
	await(t, func() bool { f.tick(); return f.settled(l) })
}

// settled reports whether the ledger holds the table's tablets and nothing waits.
func (f *feed) settled(l *ledger.Ledger) bool {
	top, err := l.Topology(f.t.Context(), ledger.StreamID{Name: "feed", Table: ordersTable})
	if err != nil {
		f.t.Error(err)
		return false
	}
	tablets, err := f.table.Tablets(ordersTable)
	if err != nil {
		f.t.Error(err)
		return false
	}
	var held, want []string
	for _, p := range top.Partitions {
		held = append(held, p.Range.Start+" "+p.Range.End)
	}
	for _, tablet := range tablets {
		want = append(want, string(tablet.Start)+" "+string(tablet.End))
	}
	slices.Sort(held)
	slices.Sort(want)
	return slices.Equal(held, want) && len(top.Pending)+len(top.Stream.Missing) == 0
}
