//go:build realgcp

package realgcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// paths is a pipeline of all jobs. ID stands for its name and for its instance.
const paths = `version: 1
name: ID
bigtable: {project: PROJECT, instance: ID}
tables:
  orders:
    create: if-needed
    appProfile: single
    families:
      cf: {gc: {maxVersions: 1}, columns: {batch: string}}
      extra: {gc: {maxVersions: 1}, columns: {seen: string}}
write:
  format: ndjson
  mappings:
    - name: order
      table: orders
      rowKey: event.id
      mutations: [{set: {cf: {batch: event.batch}, extra: {seen: event.batch}}}]
  onFailure: dead-letter
scans:
  all: {table: orders, appProfile: single, emit: {id: rowKey, batch: row.cf.batch}, to: {pubsub: {topic: ID-scanned}}}
changes:
  feed: {table: orders, appProfile: single, start: latest, idleStop: false, window: 5s, to: {pubsub: {topic: ID-changed, orderBy: rowKey}}}
`

// deployment is the functions as processes, to which the test brings what Pub/Sub has: the service
// cannot push to this machine.
type deployment struct {
	*cloud
	resources lint.Resources
	urls      map[string]string // by service
}

func deploy(c *cloud) *deployment {
	c.t.Helper()
	text := strings.NewReplacer("ID", c.id, "PROJECT", c.project).Replace(paths)
	loaded, findings := lint.Load([]byte(text), pipeline.Options{File: "pipeline.yaml"})
	if loaded == nil {
		c.t.Fatal(findings.Err())
	}
	d := &deployment{cloud: c, resources: loaded.Report.Resources, urls: map[string]string{}}
	binary := filepath.Join(c.t.TempDir(), "functions")
	build := exec.Command("go", "build", "-o", binary, "../cmd/functions")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	d.makeTopics()
	for _, s := range d.resources.Services {
		d.run(binary, s, text)
	}
	for _, s := range d.resources.Subscriptions {
		if s.Service != "" {
			d.forward(s.ID, d.urls[s.Service])
		}
	}
	return d
}

func (d *deployment) makeTopics() {
	d.t.Helper()
	ctx := d.t.Context()
	topic := func(id string) string { return "projects/" + d.project + "/topics/" + id }
	done := pipeline.TopicScanDone.Of(d.id)
	for _, id := range append(d.resources.Topics, d.resources.Outputs...) {
		_, err := d.topics.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic(id)})
		d.must(err)
	}
	subscriptions := map[string]string{done: done}
	for _, s := range d.resources.Subscriptions {
		subscriptions[s.ID] = s.Topic
	}
	for _, id := range d.resources.Outputs {
		subscriptions[id] = id
	}
	for id, of := range subscriptions {
		_, err := d.topics.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
			Name: "projects/" + d.project + "/subscriptions/" + id, Topic: topic(of), AckDeadlineSeconds: 120,
		})
		d.must(err)
	}
}

// run starts a function and waits until it listens.
func (d *deployment) run(binary string, s lint.Service, text string) {
	d.t.Helper()
	port := functest.FreePort(d.t)
	var log functest.Log
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "PORT="+port, "FUNCTION_TARGET="+string(s.Function), "PIPELINE="+text, "PUBSUB_PROJECT="+d.project,
		"LEDGER="+d.ledger, "GOMEMLIMIT=448MiB")
	cmd.Stdout, cmd.Stderr = &log, &log
	d.must(cmd.Start())
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	d.t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		<-exited
		if d.t.Failed() {
			d.t.Logf("%s said:\n%s", s.ID, &log)
		}
	})
	d.urls[s.ID] = "http://127.0.0.1:" + port + "/"
	d.await(s.ID+" serves", 1, func() int {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return 0
		}
		conn.Close()
		return 1
	})
}

// forward brings the messages of a subscription to a function until the test ends.
func (d *deployment) forward(id, url string) {
	d.receive(id, func(ctx context.Context, m *pubsub.Message) {
		body, err := json.Marshal(map[string]any{"subscription": "projects/" + d.project + "/subscriptions/" + id, "message": map[string]any{
			"messageId": m.ID, "publishTime": m.PublishTime, "data": m.Data, "attributes": m.Attributes, "orderingKey": m.OrderingKey,
		}})
		if err != nil {
			d.t.Error(err)
		}
		resp, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			m.Nack()
			return
		}
		resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			m.Ack()
			return
		}
		m.Nack()
	})
}

func (d *deployment) receive(id string, take func(context.Context, *pubsub.Message)) {
	ctx, cancel := context.WithCancel(d.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := d.topics.Subscriber(id).Receive(ctx, take); err != nil && ctx.Err() == nil {
			d.t.Errorf("receiving from %s: %v", id, err)
		}
	})
	d.t.Cleanup(func() { cancel(); done.Wait() })
}

// collect keeps what the messages of a subscription say, as key to value.
func (d *deployment) collect(id string, read func(record map[string]any) (key, value string)) func() map[string]string {
	var mu sync.Mutex
	all := map[string]string{}
	d.receive(id, func(_ context.Context, m *pubsub.Message) {
		var record map[string]any
		if err := json.Unmarshal(m.Data, &record); err != nil {
			record = map[string]any{"raw": string(m.Data)}
		}
		key, value := read(record)
		mu.Lock()
		all[key] = value
		mu.Unlock()
		m.Ack()
	})
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(all)
	}
}

func (d *deployment) publish(topic string, data []byte) {
	d.t.Helper()
	publisher := d.topics.Publisher(topic)
	defer publisher.Stop()
	_, err := publisher.Publish(d.t.Context(), &pubsub.Message{Data: data}).Get(d.t.Context())
	d.must(err)
}

func (d *deployment) await(what string, want int, count func() int) {
	d.t.Helper()
	began, got := time.Now(), 0
	for time.Since(began) < 10*time.Minute {
		if got = count(); got >= want {
			d.t.Logf("%s: %d after %s", what, got, time.Since(began).Round(time.Millisecond))
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	d.t.Fatalf("%s: %d of %d", what, got, want)
}

// Write, scan and tail, from Pub/Sub to Bigtable and back. On the way it is proved that default
// credentials suffice, that a missing family is made and an existing one keeps its rule, that one bad
// record harms no neighbour, and that splits follow the tablets.
//
// covers: TST-10
func TestTheFunctionsWriteScanAndTailATable(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	// The table lacks the family extra, and its other family has another rule than the file.
	c.must(c.tables.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID: "orders", SplitKeys: []string{"row-100", "row-200"}, ChangeStreamRetention: 24 * time.Hour,
		ColumnFamilies: map[string]bigtable.Family{"cf": {GCPolicy: bigtable.MaxVersionsPolicy(3)}},
	}))
	client, err := bigtable.NewClient(ctx, c.project, c.id)
	c.must(err)
	defer client.Close()
	keys, err := client.Open("orders").SampleRowKeys(ctx)
	c.must(err)
	if got := strings.Join(keys, " "); !strings.HasPrefix(got, "row-100 row-200") {
		t.Errorf("a table that was split in advance has the samples %q", keys)
	}

	d := deploy(c)
	field := func(names ...string) func(map[string]any) (string, string) {
		return func(r map[string]any) (string, string) { return fmt.Sprint(r[names[0]]), fmt.Sprint(r[names[1]]) }
	}
	changed := d.collect(c.id+"-changed", func(r map[string]any) (string, string) { return fmt.Sprint(r["rowKey"]), fmt.Sprint(r["type"]) })
	scanned := d.collect(c.id+"-scanned", field("id", "batch"))
	done := d.collect(pipeline.TopicScanDone.Of(c.id), field("name", "state"))
	letters := d.collect(pipeline.TopicDeadLetter.Of(c.id), field("raw", "batch"))
	tick := func() int {
		resp, err := http.Post(d.urls[c.id+"-changes"], "", nil)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return 0
		}
		return 1
	}
	d.await("the first tick", 1, tick)

	want := map[string]string{}
	for batch := range 6 {
		var lines bytes.Buffer
		for n := range 50 {
			key := fmt.Sprintf("row-%03d", batch*50+n)
			want[key] = fmt.Sprint(batch)
			fmt.Fprintf(&lines, "{\"id\": %q, \"batch\": \"%d\"}\n", key, batch)
		}
		lines.WriteString(`{"batch": "a record without an id"}` + "\n")
		d.publish(pipeline.TopicEvents.Of(c.id), lines.Bytes())
	}
	rows := func() map[string]string {
		out := map[string]string{}
		err := client.Open("orders").ReadRows(ctx, bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
			if len(r["extra"]) == 1 && len(r["cf"]) == 1 {
				out[r.Key()] = string(r["cf"][0].Value)
			}
			return true
		}, bigtable.RowFilter(bigtable.LatestNFilter(1)))
		if err != nil {
			t.Logf("reading the rows: %v", err)
		}
		return out
	}
	d.await("rows", len(want), func() int { return len(rows()) })
	if got := rows(); !maps.Equal(got, want) {
		t.Errorf("the rows are %v", got)
	}
	d.await("dead letters of bad records", 1, func() int { return len(letters()) })
	info, err := c.tables.TableInfo(ctx, "orders")
	c.must(err)
	rules := map[string]string{}
	for _, f := range info.FamilyInfos {
		rules[f.Name] = f.GCPolicy
	}
	if rules["cf"] != "versions() > 3" || rules["extra"] != "versions() > 1" {
		t.Errorf("the families have the rules %v: want the old one of cf and the file's of extra", rules)
	}

	d.await("changes of rows", len(want), func() int { tick(); return len(changed()) })
	d.publish(pipeline.TopicScanRequests.Of(c.id), []byte(`{"scan": "all"}`))
	d.await("scans done", 1, func() int { return len(done()) })
	if got := done(); got["all"] != "done" {
		t.Errorf("the scan ends as %v", got)
	}
	d.await("records of the scan", len(want), func() int { return len(scanned()) })
	if got := scanned(); !maps.Equal(got, want) {
		t.Errorf("the scan sent %v", got)
	}
}
