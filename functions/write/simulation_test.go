package write_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest/deploy"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/replay"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// soak says that sizes are full.
func soak() bool { return os.Getenv("BTF_SOAK") != "" }

// simulation is a deployment in one bubble: an emulator, a Pub/Sub whose subscription pushes
// to two instances of the function, and everything that can go wrong between them.
type simulation struct {
	t        testing.TB
	delay    time.Duration
	emulator *emulator.Emulator
	conn     *grpc.ClientConn
	cloud    *localcloud.Cloud
	client   *pubsub.Client
	letters  *deadletter.Publisher
	events   *localcloud.Subscription
	closers  []func() error

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	nodes  [2]*node
	faultRates
	injected int
	arrived  map[string]time.Time // first delivery of each message, by its id
	span     time.Duration        // longest between the first delivery of one and a later one
}

// faultRates are the probabilities of what goes wrong.
type faultRates struct {
	faults   float64 // share of calls to Bigtable
	refusals float64 // share of calls that are refused for good
	twice    float64 // share of requests that are made twice
	lost     float64 // share of answers that Pub/Sub does not get
}

// setFaults says what goes wrong from now on.
func (w *simulation) setFaults(x faultRates) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faultRates = x
}

// seen returns how many faults were injected, and the longest time between the first
// delivery of a message and a later one.
func (w *simulation) seen() (injected int, span time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.injected, w.span
}

// roll draws a number below n.
func (w *simulation) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// node is one instance.
type node struct {
	handler http.Handler
	writer  *writer.Writer
	ctx     context.Context // ends when the instance is killed
	kill    context.CancelFunc
}

// simulationOptions are how a simulation differs from the usual one.
type simulationOptions struct {
	families map[string]*adminpb.ColumnFamily
	limits   emulator.Limits
	attempts int // before a message is moved to NAME-undelivered; 0: 100
	ordered  bool
	delay    time.Duration // of each call to Bigtable; 0: 1 to 30 ms
}

// newSimulation deploys a pipeline file. Inside a bubble, close ends everything.
func newSimulation(t testing.TB, seed uint64, file string, o simulationOptions) *simulation {
	t.Helper()
	// The clock of a bubble begins in 2000, far before the events of the tests.
	time.Sleep(time.Until(time.Date(2026, 9, 15, 0, 0, 0, 0, time.UTC)))
	w := &simulation{t: t, delay: o.delay, random: rand.New(rand.NewPCG(seed, 1))}
	p := parse(t, file)
	var err error
	w.emulator, err = emulator.New(emulator.Options{Limits: o.limits})
	w.must(err)
	w.onClose(w.emulator.Close)
	w.conn, err = w.emulator.Dial(t.Context())
	w.must(err)
	w.onClose(w.conn.Close)
	for _, table := range p.Tables {
		if table.IDFrom.IsZero() {
			_, err := adminpb.NewBigtableTableAdminClient(w.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
				Parent: instance, TableId: table.ID, Table: &adminpb.Table{ColumnFamilies: o.families},
			})
			w.must(err)
		}
	}
	w.cloud, err = localcloud.New(localcloud.Options{Project: "local", InMemory: true, Logger: slog.New(slog.DiscardHandler)})
	w.must(err)
	w.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		return w.cloud.Close(ctx)
	})
	w.client, err = w.cloud.Client(t.Context())
	w.must(err)
	w.onClose(w.client.Close)
	w.letters = deadletter.NewPublisher(w.client.Publisher(p.Name + "-dead-letter"))
	w.onClose(w.letters.Close)
	w.deploy(file)
	w.events = deploy.Write(t, w.cloud, file, w, func(p *localcloud.Push) {
		p.Ordered = o.ordered
		if o.attempts > 0 {
			p.MaxAttempts = o.attempts
		}
	})
	return w
}

func (w *simulation) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *simulation) onClose(f func() error) { w.closers = append(w.closers, f) }

// close ends everything, the newest first.
func (w *simulation) close() {
	for _, n := range w.nodes {
		n.end()
	}
	for len(w.closers) > 0 {
		last := len(w.closers) - 1
		if err := w.closers[last](); err != nil {
			w.t.Error(err)
		}
		w.closers = w.closers[:last]
	}
}

func parse(t testing.TB, file string) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "pipeline.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// deploy kills both instances and starts others with the file.
func (w *simulation) deploy(file string) {
	for i := range w.nodes {
		w.restart(i, file)
	}
}

// restart kills instance i, in whatever it is doing, and starts another.
func (w *simulation) restart(i int, file string) {
	p := parse(w.t, file)
	logger := slog.New(slog.DiscardHandler)
	dial := func(context.Context, string, string) (writer.Conn, error) {
		return connection{w.conn, w.told}, nil
	}
	bt, err := writer.New(writer.Config{
		Schema: writer.Schemas(p.Tables), Dial: dial, DialAdmin: dial, Limits: p.Write.Limits, Repair: p.Write.Repair, Logger: logger,
	})
	w.must(err)
	n := &node{writer: bt}
	n.ctx, n.kill = context.WithCancel(context.Background())
	compiled, err := mapping.Compile(p, mapping.ServiceLimits())
	w.must(err)
	n.handler, err = write.New(write.Config{
		Pipeline: p, Compiled: compiled, Writer: bt, DeadLetters: w.letters, Budget: write.Budget,
		Logger: logger, Now: time.Now, Report: write.NewLog(logger, p.Name).Report,
	})
	w.must(err)
	w.mu.Lock()
	old := w.nodes[i]
	w.nodes[i] = n
	w.mu.Unlock()
	if old != nil {
		old.end()
	}
}

// end is what kill -9 is to the service: calls in flight end, applied or not.
func (n *node) end() {
	n.kill()
	_ = n.writer.Close(n.ctx) // tells of what was in flight
}

// ServeHTTP is the load balancer between Pub/Sub and the instances.
func (w *simulation) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.mu.Lock()
	w.arrives(body)
	first, second := w.nodes[w.random.IntN(2)], w.nodes[w.random.IntN(2)]
	twice, lost := w.random.Float64() < w.twice, w.random.Float64() < w.lost
	w.mu.Unlock()
	var other sync.WaitGroup
	if twice {
		other.Go(func() { second.serve(r, body) })
	}
	status, alive := first.serve(r, body)
	other.Wait()
	if !alive || lost {
		panic(http.ErrAbortHandler)
	}
	out.WriteHeader(status)
}

// arrives notes when a message comes.
func (w *simulation) arrives(body []byte) {
	_, rest, _ := bytes.Cut(body, []byte(`"messageId":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	if w.arrived == nil {
		w.arrived = map[string]time.Time{}
	}
	began, again := w.arrived[string(id)]
	if !again {
		w.arrived[string(id)] = time.Now()
		return
	}
	w.span = max(w.span, time.Since(began))
}

// serve reports the answer, and whether the instance lived to give it.
func (n *node) serve(r *http.Request, body []byte) (status int, alive bool) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	again, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), bytes.NewReader(body))
	if err != nil {
		return http.StatusInternalServerError, true
	}
	again.Header = r.Header
	out := httptest.NewRecorder()
	n.handler.ServeHTTP(out, again)
	return out.Code, n.ctx.Err() == nil
}

// publish publishes events to the topic and waits until Pub/Sub has them.
func (w *simulation) publish(topic string, messages ...*pubsub.Message) {
	w.t.Helper()
	publisher := w.client.Publisher(topic)
	publisher.EnableMessageOrdering = true
	defer publisher.Stop()
	var results []*pubsub.PublishResult
	for _, m := range messages {
		results = append(results, publisher.Publish(w.t.Context(), m))
	}
	for _, r := range results {
		_, err := r.Get(w.t.Context())
		w.must(err)
	}
}

// idle waits until every message is settled, three simulated days at most.
func (w *simulation) idle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 72*time.Hour)
	defer cancel()
	if err := w.events.Idle(ctx); err != nil {
		w.t.Fatalf("%v: %+v", err, w.events.Counts())
	}
}

// told lets a call take its time, and makes the share of calls go wrong, in every way
// there is.
func (w *simulation) told(method string) {
	w.mu.Lock()
	delay := time.Duration(1+w.random.IntN(30)) * time.Millisecond
	if w.delay > 0 {
		delay = w.delay
	}
	w.mu.Unlock()
	time.Sleep(delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.random.Float64()
	if p >= w.faults+w.refusals {
		return
	}
	f := emulator.Fault{Method: method[strings.LastIndexByte(method, '/')+1:], Count: 1}
	entries := []int{w.random.IntN(4), w.random.IntN(40)}
	switch w.random.IntN(12) {
	case 0:
		f.Code = codes.Unavailable
	case 1, 2:
		f.Code, f.After = codes.Unavailable, true
	case 3:
		f.Code, f.After = codes.DeadlineExceeded, true
	case 4:
		f.Code, f.Entries = codes.Aborted, entries
	case 5:
		f.Code, f.Entries, f.After = codes.Unavailable, entries, true
	case 6:
		f.Omit = entries
	case 7:
		f.Code, f.RetryDelay = codes.ResourceExhausted, time.Second
	case 8:
		f.Hang = true
	case 9:
		f.Code, f.After, f.Message = codes.Internal, true, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"
	case 10:
		f.Delay, f.RateLimitFactor = 100*time.Millisecond, 0.8
	case 11:
		fatal := []codes.Code{codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.NotFound, codes.OutOfRange}
		f.Code = fatal[w.random.IntN(len(fatal))]
	}
	if p >= w.faults {
		f = emulator.Fault{Method: f.Method, Count: 1, Code: codes.InvalidArgument}
	}
	w.emulator.Inject(f)
	w.injected++
}

// read reads a table: row key, then family:qualifier, to its newest value.
func (w *simulation) read(table string) map[string]map[string]string {
	w.t.Helper()
	client, err := bigtable.NewClientWithConfig(w.t.Context(), "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(w.conn))
	w.must(err)
	out := map[string]map[string]string{}
	err = client.Open(table).ReadRows(w.t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		row := map[string]string{}
		for _, items := range r {
			for _, item := range items {
				if _, older := row[item.Column]; !older {
					row[item.Column] = string(item.Value)
				}
			}
		}
		out[r.Key()] = row
		return true
	})
	w.must(err)
	return out
}

// replay applies what was published to topics, under a file, as btf replay does, and
// returns what could not be.
func (w *simulation) replay(file string, newIDs bool, topics ...string) []error {
	w.t.Helper()
	p := parse(w.t, file)
	dial := func(context.Context, string, string) (writer.Conn, error) {
		return connection{w.conn, w.told}, nil
	}
	bt, err := writer.New(writer.Config{
		Schema: writer.Schemas(p.Tables), Dial: dial, DialAdmin: dial, Limits: p.Write.Limits, Repair: p.Write.Repair,
		Logger: slog.New(slog.DiscardHandler),
	})
	w.must(err)
	defer func() { w.must(bt.Close(context.Background())) }()
	r, err := replay.NewReader(p, mapping.ServiceLimits(), newIDs)
	w.must(err)
	var left []error
	for _, topic := range topics {
		for _, m := range w.cloud.Published(topic) {
			m.Subscription = "projects/local/subscriptions/" + topic
			left = append(left, w.replayOne(r, bt, &m))
		}
	}
	failed := left[:0]
	for _, err := range left {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

func (w *simulation) replayOne(r *replay.Reader, bt *writer.Writer, m *push.Message) error {
	x, err := r.Read(m, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	return errors.Join(errors.Join(x.Refused...), x.Apply(ctx, bt))
}
