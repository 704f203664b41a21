//go:build linux

package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// The stream is read all the time, so that ticks need not be a minute apart.
const allJobs = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {batch: string}}}}
write:
  format: ndjson
  mappings:
    - name: order
      table: orders
      rowKey: event.id
      mutations: [{set: {cf: {batch: event.batch}}}]
  onFailure: dead-letter
scans:
  all: {table: orders, emit: {id: rowKey, batch: row.cf.batch}, to: {pubsub: {topic: scanned}}}
changes:
  feed: {table: orders, appProfile: default, start: latest, idleStop: false, window: 5s, to: {pubsub: {topic: changed, orderBy: rowKey}}}
`

const (
	project  = "my-project"
	perEvent = 50
	events   = 30
	patience = 3 * time.Minute // of a machine that does much else
)

// program is one process that is killed and started again, always with the same arguments.
type program struct {
	t    *testing.T
	name string
	path string
	args []string
	env  []string
	port string
	log  functest.Log

	cmd    *exec.Cmd
	exited chan struct{}
}

// start runs the program until it listens.
func (p *program) start() {
	p.t.Helper()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.env...), &p.log, &p.log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	p.cmd, p.exited = cmd, exited
	awaitServing(p.t, p.port, exited, &p.log)
}

// end signals the program and waits until it has ended.
func (p *program) end(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		p.t.Fatalf("%s runs a minute after %s: %s", p.name, signal, &p.log)
	}
	if signal == syscall.SIGTERM && p.cmd.ProcessState.ExitCode() != 0 {
		p.t.Errorf("%s ends with %s after SIGTERM", p.name, p.cmd.ProcessState)
	}
}

// landscape is everything that a deployment consists of, as processes of this machine.
type landscape struct {
	t         *testing.T
	programs  map[string]*program
	resources lint.Resources
	pubsub    *pubsub.Client
	table     *bigtable.Table
}

func newLandscape(t *testing.T) *landscape {
	ctx := t.Context()
	topics, documents := googleemu.Start(t, "pubsub"), googleemu.Start(t, "firestore")
	l := &landscape{t: t, programs: map[string]*program{}}
	t.Cleanup(func() {
		for _, p := range l.programs {
			if p.cmd != nil {
				p.cmd.Process.Kill()
				<-p.exited
			}
			if t.Failed() {
				t.Logf("%s said:\n%s", p.name, &p.log)
			}
		}
	})
	btf := filepath.Join(t.TempDir(), "btf")
	build := exec.Command("go", "build", "-o", btf, "./cmd/btf")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	port := functest.FreePort(t)
	l.run("emulator", btf, port, []string{"emulator", "--port", port, "--data-dir", filepath.Join(t.TempDir(), "data"),
		"--project", project, "--instance", "my-instance", "--table", "orders:cf;splits=row-0400,row-0800,row-1200;stream=24h"})
	bigtableAddr := "127.0.0.1:" + port
	for _, name := range []string{"write", "scan-planner", "scan-worker", "changes"} {
		port := functest.FreePort(t)
		l.run(name, binary(t), port, nil, "PORT="+port, "FUNCTION_TARGET="+name, "K_SERVICE=orders-"+name, "PIPELINE="+allJobs,
			"LEDGER=firestore:"+project+"/(default)", "PUBSUB_PROJECT="+project, "GOMEMLIMIT=448MiB",
			"BIGTABLE_EMULATOR_HOST="+bigtableAddr, "PUBSUB_EMULATOR_HOST="+topics, "FIRESTORE_EMULATOR_HOST="+documents)
	}

	loaded, findings := lint.Load([]byte(allJobs), pipeline.Options{File: "pipeline.yaml"})
	if loaded == nil {
		t.Fatal(findings.Err())
	}
	l.resources = loaded.Report.Resources
	var err error
	if l.pubsub, err = pubsub.NewClient(ctx, project, option.WithGRPCConn(l.dial(topics))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.pubsub.Close() })
	l.makeTopics()
	client, err := bigtable.NewClientWithConfig(ctx, project, "my-instance", bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}},
		option.WithGRPCConn(l.dial(bigtableAddr)))
	if err != nil {
		t.Fatal(err)
	}
	l.table = client.Open("orders")
	return l
}

func (l *landscape) run(name, path, port string, args []string, env ...string) {
	l.t.Helper()
	p := &program{t: l.t, name: name, path: path, args: args, env: env, port: port}
	l.programs[name] = p
	p.start()
}

func (l *landscape) dial(addr string) *grpc.ClientConn {
	l.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() })
	return conn
}

// makeTopics makes the topics and subscriptions of the pipeline, and subscriptions to what it
// sends elsewhere.
func (l *landscape) makeTopics() {
	l.t.Helper()
	ctx := l.t.Context()
	for _, topic := range append(slices.Clone(l.resources.Topics), l.resources.Outputs...) {
		if _, err := l.pubsub.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topicName(topic)}); err != nil {
			l.t.Fatal(err)
		}
	}
	subscriptions := slices.Clone(l.resources.Subscriptions)
	for _, topic := range append([]string{pipeline.TopicScanDone.Of("orders")}, l.resources.Outputs...) {
		subscriptions = append(subscriptions, lint.Subscription{ID: topic, Topic: topic, AckDeadline: lint.Duration(time.Minute), Retention: lint.Duration(time.Hour)})
	}
	for _, s := range subscriptions {
		sub := &pubsubpb.Subscription{
			Name: "projects/" + project + "/subscriptions/" + s.ID, Topic: topicName(s.Topic), AckDeadlineSeconds: int32(time.Duration(s.AckDeadline) / time.Second),
			// The service keeps messages for up to 31 days, the emulator for 7.
			MessageRetentionDuration: durationpb.New(min(time.Duration(s.Retention), 7*24*time.Hour)),
			// Shorter than in a deployment, where nobody waits for a test.
			RetryPolicy: &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(5 * time.Second)},
		}
		if s.DeadLetterTopic != "" {
			sub.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: topicName(s.DeadLetterTopic), MaxDeliveryAttempts: int32(s.MaxAttempts)}
		}
		for name, p := range l.programs {
			if s.Service == "orders-"+name {
				sub.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "http://127.0.0.1:" + p.port + "/"}
			}
		}
		if (sub.PushConfig == nil) != (s.Service == "") {
			l.t.Fatalf("no process serves %s", s.Service)
		}
		if _, err := l.pubsub.SubscriptionAdminClient.CreateSubscription(ctx, sub); err != nil {
			l.t.Fatalf("%s: %v", s.ID, err)
		}
	}
}

func topicName(id string) string { return "projects/" + project + "/topics/" + id }

// publish publishes messages and waits until Pub/Sub has them.
func (l *landscape) publish(topic string, messages ...[]byte) {
	l.t.Helper()
	publisher := l.pubsub.Publisher(topicName(topic))
	defer publisher.Stop()
	var results []*pubsub.PublishResult
	for _, m := range messages {
		results = append(results, publisher.Publish(l.t.Context(), &pubsub.Message{Data: m}))
	}
	for _, r := range results {
		if _, err := r.Get(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	}
}

// received are the messages that a subscription has brought.
type received struct {
	mu  sync.Mutex
	all []*pubsub.Message
}

func (r *received) messages() []*pubsub.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// receive takes the messages of a subscription until the test ends.
func (l *landscape) receive(id string) *received {
	var r received
	ctx, cancel := context.WithCancel(l.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		err := l.pubsub.Subscriber(id).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			r.mu.Lock()
			r.all = append(r.all, m)
			r.mu.Unlock()
			m.Ack()
		})
		if err != nil && ctx.Err() == nil {
			l.t.Errorf("receiving from %s: %v", id, err)
		}
	})
	l.t.Cleanup(func() { cancel(); done.Wait() })
	return &r
}

// tick calls the function changes as Cloud Scheduler does, and reports whether it succeeded.
func (l *landscape) tick() bool {
	resp, err := http.Post("http://127.0.0.1:"+l.programs["changes"].port+"/", "", nil)
	if err != nil { // it is not running just now
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode < 300
}

// schedule ticks each second until the test ends.
func (l *landscape) schedule() {
	ctx, cancel := context.WithCancel(l.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			l.tick()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	l.t.Cleanup(func() { cancel(); done.Wait() })
}

// await waits until what counts has come to want.
func (l *landscape) await(what string, want int, count func() int) {
	l.t.Helper()
	began, got := time.Now(), 0
	for time.Since(began) < patience {
		if got = count(); got >= want {
			l.t.Logf("%d %s after %s", got, what, time.Since(began).Round(time.Millisecond))
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	l.t.Fatalf("%d %s of %d after %s", got, what, want, patience)
}

// rows returns the rows of the table: key to value.
func (l *landscape) rows() map[string]string {
	out := map[string]string{}
	err := l.table.ReadRows(l.t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		for _, item := range r["cf"] {
			out[r.Key()] = string(item.Value)
		}
		return true
	}, bigtable.RowFilter(bigtable.LatestNFilter(1)))
	if err != nil { // the emulator is not running just now
		return nil
	}
	return out
}

// ids returns what records have in a field, by their row keys.
func ids(t *testing.T, messages []*pubsub.Message, key, value func(map[string]any) any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range messages {
		var record map[string]any
		if err := json.Unmarshal(m.Data, &record); err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprint(key(record))] = fmt.Sprint(value(record))
	}
	return out
}

func field(name string) func(map[string]any) any {
	return func(record map[string]any) any { return record[name] }
}

// newValue is the value of the one cell of a change.
func newValue(record map[string]any) any {
	entries, _ := record["entries"].([]any)
	if len(entries) != 1 {
		return entries
	}
	return entries[0].(map[string]any)["value"]
}

// The four functions run as processes of the image's binary, behind push subscriptions of Google's
// Pub/Sub emulator, with Google's Firestore emulator as the ledger and `btf emulator` as Bigtable.
// Each of these processes is killed and started again. Those that hold leases end by SIGTERM, on
// which they give them back: after a kill -9 nobody takes a lease for 90 s, which other tests try
// with short leases. Google's emulators keep nothing and stay.
func TestNothingIsLostBehindRealPushSubscriptions(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	l := newLandscape(t)
	changed, scanned, done := l.receive("changed"), l.receive("scanned"), l.receive("orders-scan-done")
	l.await("first tick", 1, func() int {
		if l.tick() {
			return 1
		}
		return 0
	})
	l.schedule()

	want := map[string]string{}
	for i := range events {
		var lines bytes.Buffer
		for n := range perEvent {
			key := fmt.Sprintf("row-%04d", n*events+i) // each message changes rows of all partitions
			want[key] = fmt.Sprint(i)
			fmt.Fprintf(&lines, "{\"id\": %q, \"batch\": \"%d\"}\n", key, i)
		}
		l.publish("orders-events", lines.Bytes())
		switch i {
		case events / 6:
			l.programs["write"].end(syscall.SIGKILL)
		case events / 3:
			l.programs["write"].start()
		case events / 2:
			l.programs["emulator"].end(syscall.SIGKILL)
		case 2 * events / 3:
			l.programs["emulator"].start()
			l.programs["changes"].end(syscall.SIGTERM)
		case 5 * events / 6:
			l.programs["changes"].start()
		}
	}
	l.await("rows", len(want), func() int { return len(l.rows()) })
	if got := l.rows(); !maps.Equal(got, want) {
		t.Errorf("the table has other rows than were published: %v", got)
	}
	changes := func() map[string]string { return ids(t, changed.messages(), field("rowKey"), newValue) }
	l.await("rows of changes", len(want), func() int { return len(changes()) })
	if got := changes(); !maps.Equal(got, want) {
		t.Errorf("the changes have other rows than were published: %v", got)
	}

	l.publish("orders-scan-requests", []byte(`{"scan": "all"}`))
	l.programs["scan-planner"].end(syscall.SIGKILL)
	l.programs["scan-planner"].start()
	l.await("records of the scan", 1, func() int { return len(scanned.messages()) })
	l.programs["scan-worker"].end(syscall.SIGTERM)
	l.programs["scan-worker"].start()
	l.await("completion of the scan", 1, func() int { return len(done.messages()) })
	var end task.ScanDone
	if err := json.Unmarshal(done.messages()[0].Data, &end); err != nil {
		t.Fatal(err)
	}
	if end.State != "done" || end.Rows < int64(len(want)) || end.Failed != 0 || end.Dropped != 0 {
		t.Errorf("the scan ends as %+v", end)
	}
	records := func() map[string]string { return ids(t, scanned.messages(), field("id"), field("batch")) }
	l.await("rows of the scan", len(want), func() int { return len(records()) })
	if got := records(); !maps.Equal(got, want) {
		t.Errorf("the scan sent other records: %v", got)
	}
}
