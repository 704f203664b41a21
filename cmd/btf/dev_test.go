package main

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// devFile sets the cell cf:status to what VALUE says.
const devFile = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {gc: {maxVersions: 1}, columns: {status: string}}
write:
  mappings:
    - name: order
      table: orders
      rowKey: event.id
      mutations:
        - set: {cf: {status: 'VALUE'}}
  onFailure: dead-letter
`

// developing is `btf dev` at work, in this process.
type developing struct {
	t              *testing.T
	stdout, stderr output
	interrupt      context.CancelFunc
	done           chan error
	topic          *pubsub.Publisher // of events
	requests       *pubsub.Publisher // of scans
	tables         *bigtable.Client
	published      int
}

func startDev(t *testing.T, text string) *developing {
	t.Helper()
	in(t, map[string]string{"orders.yaml": text})
	d := &developing{t: t, done: make(chan error, 1)}
	d.start(func(ctx context.Context) error {
		cmd := root(&d.stdout, &d.stderr)
		cmd.SetArgs([]string{"dev", "-f", "orders.yaml"})
		return cmd.ExecuteContext(ctx)
	})
	return d
}

// start runs dev and connects to what it has started.
func (d *developing) start(dev func(context.Context) error) {
	t := d.t
	t.Helper()
	var ctx context.Context
	ctx, d.interrupt = context.WithCancel(t.Context())
	go func() { d.done <- dev(ctx) }()
	t.Cleanup(d.interrupt)
	d.said(`(running) orders.yaml`)

	client, err := pubsub.NewClient(ctx, d.variable("PUBSUB_PROJECT"), d.dial("PUBSUB_EMULATOR_HOST"), option.WithTelemetryDisabled())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	d.topic = client.Publisher("orders-events")
	t.Cleanup(d.topic.Stop)
	d.requests = client.Publisher("orders-scan-requests")
	t.Cleanup(d.requests.Stop)
	d.tables, err = bigtable.NewClientWithConfig(ctx, "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, d.dial("BIGTABLE_EMULATOR_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.tables.Close() })
}

func (d *developing) variable(name string) string {
	d.t.Helper()
	m := regexp.MustCompile(`(?m)^export ` + name + `=(.+)$`).FindStringSubmatch(d.stdout.String())
	if m == nil {
		d.t.Fatalf("no %s in %q", name, d.stdout.String())
	}
	return m[1]
}

// dial connects to what a variable names.
func (d *developing) dial(name string) option.ClientOption {
	d.t.Helper()
	conn, err := grpc.NewClient(d.variable(name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return option.WithGRPCConn(conn)
}

// said waits until the command has said something, and returns its group.
func (d *developing) said(re string) string {
	d.t.Helper()
	return waitForText(d.t, &d.stderr, regexp.MustCompile(re), d.done)
}

// publish publishes events and waits until it was told that all have been delivered.
func (d *developing) publish(events ...string) {
	d.t.Helper()
	for _, event := range events {
		if _, err := d.topic.Publish(d.t.Context(), &pubsub.Message{Data: []byte(event)}).Get(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
	d.published += len(events)
	waitUntil(d.t, &d.stderr, d.done, func(text string) bool {
		delivered := 0
		for _, m := range regexp.MustCompile(`(?m)^delivered: (\d+) record`).FindAllStringSubmatch(text, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				d.t.Fatal(err)
			}
			delivered += n
		}
		return delivered == d.published
	})
}

// status reads a row's cf:status, empty where there is no row.
func (d *developing) status(key string) string {
	d.t.Helper()
	row, err := d.tables.Open("orders").ReadRow(d.t.Context(), key)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, item := range row["cf"] {
		return string(item.Value)
	}
	return ""
}

// edit replaces the file's text in place, and waits for the answer.
func (d *developing) edit(text, answer string) {
	d.t.Helper()
	if err := os.WriteFile("orders.yaml", []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	d.said(answer)
}

func (d *developing) end() {
	d.t.Helper()
	d.interrupt()
	if err := <-d.done; err != nil {
		d.t.Errorf("an interrupt ends it with %v", err)
	}
}

func withValue(v string) string { return strings.Replace(devFile, "VALUE", v, 1) }

func TestDevWritesWhatIsPublishedByTheNewestGoodVersionOfItsFile(t *testing.T) {
	d := startDev(t, withValue("event.status"))
	d.publish(`{"id": "a", "status": "PAID"}`)
	if got := d.status("a"); got != "PAID" {
		t.Errorf("a is %q\n%s", got, &d.stderr)
	}
	d.edit(withValue(`"now " + event.status`), `(reloaded) orders.yaml`)
	d.publish(`{"id": "b", "status": "PAID"}`)
	if got := d.status("b"); got != "now PAID" {
		t.Errorf("after an edit, b is %q\n%s", got, &d.stderr)
	}
	d.edit(withValue(`evnt.status`), `(orders.yaml:14:31: error: write.mappings\[0\].mutations\[0\].set.cf.status: evnt is neither)`)
	d.said(`(kept the version before)`)
	d.publish(`{"id": "c", "status": "PAID"}`)
	if got := d.status("c"); got != "now PAID" {
		t.Errorf("after a broken edit, c is %q\n%s", got, &d.stderr)
	}
	// As editors do it: another file takes the place of the old one.
	if err := os.WriteFile("other", []byte(withValue(`"third"`)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("other", "orders.yaml"); err != nil {
		t.Fatal(err)
	}
	d.said(`(?s)(?:reloaded.*){2}()`)
	d.publish(`{"id": "d"}`)
	if got := d.status("d"); got != "third" {
		t.Errorf("after a rename, d is %q\n%s", got, &d.stderr)
	}
	d.end()
}

func TestDevGivesTablesWhatANewVersionDeclares(t *testing.T) {
	d := startDev(t, withValue("event.status"))
	more := strings.NewReplacer("families:\n", "families:\n      sums: {aggregate: sum}\n", "maxVersions: 1", "maxVersions: 2",
		"      mutations:\n", "      timestamp: timestamp(event.at)\n      mutations:\n        - add: {sums: {views: '1'}}\n").Replace(withValue("event.status"))
	d.edit(more, `(reloaded) orders.yaml`)
	d.publish(`{"id": "a", "status": "NEW", "at": "2026-08-30T10:15:30Z"}`)
	if got := d.status("a"); got != "NEW" {
		t.Errorf("a is %q\n%s", got, &d.stderr)
	}
	d.edit(strings.Replace(more, "aggregate: sum", "aggregate: max", 1), `(creating table orders: .*value_type.aggregate_type)`)
	d.said(`(kept the version before)`)
	d.end()
}

func TestDevKeepsRunningUnderWhatItWasStartedWith(t *testing.T) {
	d := startDev(t, withValue("event.status"))
	d.edit(strings.Replace(withValue("event.status"), "name: orders", "name: others", 1), `(the name is now others)`)
	d.edit(strings.Replace(withValue("event.status"), "write:\n", "write:\n  ordered: true\n", 1), `(write.ordered changed)`)
	d.edit("version: 1\n", `(orders.yaml:1:1: error: name: is missing)`)
	if err := os.Remove("orders.yaml"); err != nil {
		t.Fatal(err)
	}
	d.said(`(?s)(?:kept the version before.*){4}()`)
	d.publish(`{"id": "a", "status": "PAID"}`)
	if got := d.status("a"); got != "PAID" {
		t.Errorf("a is %q\n%s", got, &d.stderr)
	}
	d.end()
}

func TestDevTellsOfRecordsThatCannotBeWritten(t *testing.T) {
	d := startDev(t, withValue("event.status"))
	d.publish(`{"id": "a", "secret": "hunter2"}`)
	if got := d.said(`(delivered: .*)`); got != "delivered: 1 record, 0 rows applied, 0 skipped, 1 failed, 1 kept as dead letters" {
		t.Errorf("says %q", got)
	}
	d.said(`record cannot be written.*(no such key: status)`)
	if strings.Contains(d.stderr.String(), "hunter2") {
		t.Errorf("says what the record holds:\n%s", &d.stderr)
	}
	d.end()
}

func TestDevNeedsAFileThatLoads(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"broken":           {withValue("evnt.x"), "orders.yaml:14:31: error: write.mappings[0].mutations[0].set.cf.status: evnt is neither"},
		"with credentials": {"credentialsFile: k.json\n" + withValue("event.x"), "credentialsFile and BIGTABLE_EMULATOR_HOST are both set"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, map[string]string{"orders.yaml": c.text})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var stdout, stderr output
			cmd := root(&stdout, &stderr)
			cmd.SetArgs([]string{"dev", "-f", "orders.yaml"})
			if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	in(t, nil)
	if _, _, err := run(t, "dev", "-f", "missing.yaml"); err == nil || !strings.Contains(err.Error(), "missing.yaml: no such file") {
		t.Errorf("error %v", err)
	}
	if _, _, err := run(t, "dev"); err == nil || !strings.Contains(err.Error(), `"file" not set`) {
		t.Errorf("error %v", err)
	}
}
