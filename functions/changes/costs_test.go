package changes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/prices"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

var update = flag.Bool("update", false, "simulate in full and write the table of costs instead of comparing it")

const (
	costsFile   = "../../internal/bill/changes.json"
	costsInDocs = "../../docs/changes.md"
	costsBegin  = "<!-- Generated: go test ./functions/changes -run Costs -update -timeout 30m -->\n"
	costsEnd    = "<!-- End of what is generated. -->\n"
)

// load is what is simulated.
type load struct {
	Partitions int `json:"partitions"`
	PerSecond  int `json:"changesPerSecond"`
}

// usage is what a load takes in an hour.
type usage struct {
	InstanceSeconds float64 `json:"instanceSeconds"`
	Requests        float64 `json:"requests"`
	Reads           float64 `json:"reads"`
	Writes          float64 `json:"writes"`
	Deletes         float64 `json:"deletes"`
}

// cost is a load and its usage.
type cost struct {
	load
	usage
}

// costs are the loads of the documents, and a tenth of each.
type costs struct {
	Full  []cost `json:"full"`
	Tenth []cost `json:"tenth"`
}

func loads(divisor int) (out []load) {
	for _, n := range []int{10, 1000, 10_000} {
		for _, rate := range []int{0, 10, 1000} {
			out = append(out, load{n / divisor, rate / divisor})
		}
	}
	return out
}

// slow is a store whose calls take 10 ms, and a list another 0.1 ms for each document.
type slow struct{ ledger.Store }

// Get implements ledger.Store.
func (s slow) Get(ctx context.Context, keys ...ledger.Key) ([]ledger.Doc, error) {
	time.Sleep(10 * time.Millisecond)
	return s.Store.Get(ctx, keys...)
}

// Commit implements ledger.Store.
func (s slow) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	time.Sleep(10 * time.Millisecond)
	return s.Store.Commit(ctx, writes)
}

// List implements ledger.Store.
func (s slow) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	n := 0
	err := s.Store.List(ctx, func(doc ledger.Doc) error {
		n++
		return each(doc)
	}, collections...)
	time.Sleep(10*time.Millisecond + time.Duration(n)*100*time.Microsecond)
	return err
}

// distant opens a stream in 50 ms.
type distant struct{ grpc.ClientConnInterface }

// NewStream implements grpc.ClientConnInterface.
func (d distant) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	time.Sleep(50 * time.Millisecond)
	return d.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// forgetful is a sink that keeps nothing.
type forgetful struct{}

// Send implements relay.Sink.
func (forgetful) Send(context.Context, []relay.Record) []error { return nil }

// billed counts requests, each as if it had an instance of its own.
type billed struct {
	mu       sync.Mutex
	requests int
	instance time.Duration
}

func (b *billed) bill(began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	// Rounded up to 100 ms, as Cloud Run does.
	b.instance += max(1, (time.Since(began)+99*time.Millisecond)/(100*time.Millisecond)) * 100 * time.Millisecond
}

func (b *billed) total() (int, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests, b.instance
}

// simulate runs a stream with the default options, and returns what an hour takes.
func simulate(t *testing.T, l load, settled, measured int) (u usage) {
	synctest.Test(t, func(t *testing.T) {
		var splits []string
		for i := 1; i < l.Partitions; i++ {
			splits = append(splits, fmt.Sprintf("%05d", i))
		}
		r := newRig(t, toLog, splits...)
		meter := ledger.NewMeter(slow{r.store})
		r.cfg.Ledger = r.ledger(meter)
		r.cfg.Conn = distant{r.conn}
		r.cfg.Sink = func(context.Context, *pipeline.Change) (relay.Sink, error) { return forgetful{}, nil }
		r.cfg.Report = func(context.Context, changes.Visit) {}
		random := rand.New(rand.NewPCG(1, 2))
		var b billed
		var all sync.WaitGroup
		var before ledger.Usage
		var requests int
		var instance time.Duration
		for second := range (settled + measured) * 60 {
			if second == settled*60 {
				before = meter.Usage()
				requests, instance = b.total()
			}
			if second%1800 == 1799 {
				r.fresh()
			}
			if second%60 == 0 {
				all.Go(func() {
					began := time.Now()
					r.tick()
					b.bill(began)
				})
			}
			r.setMany(l.PerSecond, l.Partitions, random)
			for _, data := range r.take() {
				all.Go(func() {
					began := time.Now()
					r.deliver(t.Context(), r.cfg, data)
					b.bill(began)
				})
			}
			time.Sleep(time.Second)
		}
		used := meter.Usage().Minus(before)
		r2, i2 := b.total()
		all.Wait()
		hours := float64(measured) / 60
		u = usage{
			InstanceSeconds: (i2 - instance).Seconds() / hours, Requests: float64(r2-requests) / hours,
			Reads: float64(used.Reads) / hours, Writes: float64(used.Writes) / hours, Deletes: float64(used.Deletes) / hours,
		}
	})
	return u
}

// fresh checks that no position is older than a tenth of what the table keeps.
func (r *rig) fresh() {
	r.t.Helper()
	top, err := r.ledger(r.store).Topology(r.t.Context(), streamID)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range top.Partitions {
		if age := top.ReadAt.Sub(p.LowWatermark); age > retention/10 {
			r.t.Fatalf("a position of %d is %s old", len(top.Partitions), age)
		}
	}
}

// setMany changes n rows of partitions by chance.
func (r *rig) setMany(n, partitions int, random *rand.Rand) {
	r.t.Helper()
	if n == 0 {
		return
	}
	req := &bigtablepb.MutateRowsRequest{TableName: tableName}
	for range n {
		req.Entries = append(req.Entries, &bigtablepb.MutateRowsRequest_Entry{
			RowKey: fmt.Appendf(nil, "%05dx", random.IntN(partitions)), Mutations: []*bigtablepb.Mutation{setCell("cf", "q", "1")},
		})
	}
	stream, err := bigtablepb.NewBigtableClient(r.conn).MutateRows(r.t.Context(), req)
	for err == nil {
		_, err = stream.Recv()
	}
	if err.Error() != "EOF" {
		r.t.Error(err)
	}
}

// simulateAll takes the longer, the fewer changes there are: an idle stream repeats itself
// only after some hours. A part of that time is enough to see that nothing has changed.
func simulateAll(t *testing.T, loads []load, part int) (out []cost) {
	for _, l := range loads {
		settled, measured := 60, 240/part
		switch {
		case l.PerSecond >= 100:
			settled, measured = 2, 8/part
		case l.PerSecond > 0:
			settled, measured = 40/part, 60/part
		}
		began := time.Now()
		c := cost{l, simulate(t, l, settled, measured)}
		t.Logf("%+v in %s", c, time.Since(began).Round(time.Millisecond))
		out = append(out, c)
	}
	return out
}

// The documents give the costs of streams as they were simulated, and a tenth of the streams
// still costs a tenth of that.
//
// covers: CS-07
func TestCostsAreAsTheDocumentsSay(t *testing.T) {
	if *update {
		writeCosts(t, costs{Full: simulateAll(t, loads(1), 1), Tenth: simulateAll(t, loads(10), 4)})
	}
	data, err := os.ReadFile(costsFile)
	if err != nil {
		t.Fatal(err)
	}
	var known costs
	if err := json.Unmarshal(data, &known); err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile(costsInDocs)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(docs), costsBegin)
	table, _, found := strings.Cut(rest, costsEnd)
	if want := tableOf(t, known.Full); !found || table != want {
		t.Errorf("%s does not have the table of %s: run it with -update. It is\n%swant\n%s", costsInDocs, costsFile, table, want)
	}
	tenth := loads(10)
	if race.Enabled { // the others take ten times as long with it
		tenth = slices.DeleteFunc(tenth, func(l load) bool { return l.Partitions > 100 || l.PerSecond > 10 })
	}
	for _, now := range simulateAll(t, tenth, 4) {
		i := slices.IndexFunc(known.Tenth, func(c cost) bool { return c.load == now.load })
		if i < 0 {
			t.Fatalf("%s does not have %+v: run it with -update", costsFile, now.load)
		}
		then := known.Tenth[i]
		for name, v := range map[string][2]float64{
			"instance-seconds": {now.InstanceSeconds, then.InstanceSeconds}, "requests": {now.Requests, then.Requests},
			"reads": {now.Reads, then.Reads}, "writes": {now.Writes, then.Writes}, "deletes": {now.Deletes, then.Deletes},
		} {
			if d := v[0] - v[1]; max(d, -d) > 20+v[1]/10 {
				t.Errorf("%d partitions at %d changes/s take %.0f %s in an hour, %.0f when the table of costs was made: run it with -update",
					now.Partitions, now.PerSecond, v[0], name, v[1])
			}
		}
	}
}

func writeCosts(t *testing.T, c costs) {
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile(costsInDocs)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := bytes.Cut(docs, []byte(costsBegin))
	_, after, found := bytes.Cut(rest, []byte(costsEnd))
	if !found {
		t.Fatalf("%s lacks the place of the table", costsInDocs)
	}
	docs = fmt.Appendf(nil, "%s%s%s%s%s", before, costsBegin, tableOf(t, c.Full), costsEnd, after)
	for name, text := range map[string][]byte{costsFile: append(data, '\n'), costsInDocs: docs} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hoursPerMonth is what the bills of btf plan take for a month, too.
const hoursPerMonth = 730

// tableOf is the table of a month, at the prices of us-central1 and without what is free.
func tableOf(t *testing.T, costs []cost) string {
	table, err := prices.Default()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| partitions | changes/s | instance-seconds | ledger reads | ledger writes | Cloud Run | ledger | together |\n")
	b.WriteString("|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range costs {
		// An instance has 1 vCPU and 512 MiB.
		run := hoursPerMonth * (table.Cost(prices.VCPUSecond, c.InstanceSeconds) + table.Cost(prices.GiBSecond, c.InstanceSeconds/2) + table.Cost(prices.Requests, c.Requests))
		kept := hoursPerMonth * (table.Cost(prices.Reads, c.Reads) + table.Cost(prices.Writes, c.Writes) + table.Cost(prices.Deletes, c.Deletes))
		fmt.Fprintf(&b, "| %d | %d | %.0f k | %.2f M | %.2f M | $%.2f | $%.2f | $%.2f |\n", c.Partitions, c.PerSecond,
			hoursPerMonth*c.InstanceSeconds/1e3, hoursPerMonth*c.Reads/1e6, hoursPerMonth*c.Writes/1e6, run, kept, run+kept)
	}
	return b.String()
}
