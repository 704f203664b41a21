package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/dev"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/devledger"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/status"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// scansOnly is a file with one scan to a topic and one to the log.
const scansOnly = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
scans:
  ids: {table: orders, emit: {id: rowKey}, to: {pubsub: {topic: out}}}
  shown: {table: orders, emit: {id: rowKey}, to: {log: {}}}
`

// startDevOf runs dev as the command does, but by a clock of the test's.
func startDevOf(t *testing.T, text string, c dev.Clock) (*developing, *dev.Dev) {
	t.Helper()
	in(t, map[string]string{"orders.yaml": text})
	return runDev(t, c)
}

// runDev runs dev for the file that is there.
func runDev(t *testing.T, c dev.Clock) (*developing, *dev.Dev) {
	t.Helper()
	d := &developing{t: t, done: make(chan error, 1)}
	running, err := dev.Start(t.Context(), dev.Config{File: "orders.yaml", Stdout: &d.stdout, Stderr: &d.stderr, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	d.start(func(ctx context.Context) error { return errors.Join(running.Run(ctx), running.Close()) })
	return d, running
}

// ask publishes a request and returns the scan's id.
func (d *developing) ask(body string) string {
	d.t.Helper()
	id, err := d.requests.Publish(d.t.Context(), &pubsub.Message{Data: []byte(body)}).Get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return id
}

// arrived are the messages of a topic as they come.
type arrived struct {
	sub *localcloud.Subscription
	mu  sync.Mutex
	got []string
}

func arrive(t *testing.T, d *dev.Dev, topic string) *arrived {
	t.Helper()
	a := &arrived{}
	var err error
	a.sub, err = d.Local.Cloud.CreatePush(t.Context(), localcloud.Push{
		ID: "test-" + strings.ReplaceAll(topic, "/", "-"), Topic: topic, AckDeadline: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Second, Retention: time.Hour,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var body struct{ Message struct{ Data []byte } }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.got = append(a.got, string(body.Message.Data))
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wait returns the messages, sorted, when there are n.
func (a *arrived) wait(t *testing.T, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.sub.Wait(ctx, func(c localcloud.Counts) bool { return c.Acked >= int64(n) }); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.got))
}

const withScan = "scans:\n  ids: {table: orders, emit: {id: rowKey, status: row.cf.status}, to: {pubsub: {topic: out}}}\n"

func TestDevScansOnRequestWhatItHasWritten(t *testing.T) {
	d, run := startDevOf(t, withValue("event.status")+withScan, dev.SystemClock())
	out := arrive(t, run, "out")
	d.publish(`{"id": "a", "status": "PAID"}`, `{"id": "b", "status": "NEW"}`)
	id := d.ask(`{"scan": "ids"}`)
	d.said(`scan ` + id + ` \(ids\) (has begun: 1 split, 1 task)`)
	d.said(`scan ` + id + ` \(ids\), split 0: (done, 2 rows, 2 records, 0 dropped in )`)
	d.said(`scan ` + id + ` \(ids\) (is done: 2 rows, 2 records, 0 dropped, 1 split, in )`)
	if got := out.wait(t, 2); !slices.Equal(got, []string{`{"id":"a","status":"PAID"}`, `{"id":"b","status":"NEW"}`}) {
		t.Errorf("sent %q", got)
	}
	bad := d.ask(`{"scan": "none"}`)
	d.said(`scan ` + bad + ` \(none\) (has failed: .*it has: ids)`)
	d.end()
}

func TestDevMakesTheApplicationProfilesThatAFileNames(t *testing.T) {
	file := strings.NewReplacer("    families:\n", "    appProfile: ingest\n    families:\n", "{table: orders, emit", "{table: orders, appProfile: analytics, emit")
	d := startDev(t, file.Replace(withValue("event.status")+withScan))
	d.publish(`{"id": "a", "status": "PAID"}`)
	d.ask(`{"scan": "ids"}`)
	d.said(`(is done: 1 row, 1 record)`)
	d.end()
}

func TestDevServesAFileThatHasScansOnly(t *testing.T) {
	d := startDev(t, scansOnly)
	d.said(`(to start a scan, publish {"scan": "ids"} to topic projects/local/topics/orders-scan-requests)`)
	d.said(`(btf scan -f orders.yaml ids --to -)`)
	d.said(`(when a scan has ended, a message says so on topic projects/local/topics/orders-scan-done, to be pulled from projects/local/subscriptions/orders-scan-done)`)
	d.said(`scan ids: (records go to topic projects/local/topics/out, to be pulled from projects/local/subscriptions/out)`)
	d.said(`scan shown: (records are printed here)`)
	if text := d.stderr.String(); strings.Contains(text, "function write") {
		t.Errorf("it tells of write:\n%s", text)
	}
	d.ask(`{"scan": "shown"}`)
	d.said(`\(shown\) (is done: 0 rows)`)
	d.end()
}

func TestDevPrintsTheRecordsOfASinkLog(t *testing.T) {
	d := startDev(t, withValue("event.status")+"scans:\n  shown: {table: orders, emit: {id: rowKey}, to: {log: {}}}\n")
	d.publish(`{"id": "a-1", "status": "PAID"}`)
	d.ask(`{"scan": "shown"}`)
	d.said(`("record":{"id":"a-1"})`)
	d.end()
}

// shell is the environment of another shell, in which what dev has printed was sourced.
func (d *developing) shell() assemble.Env {
	d.t.Helper()
	env := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^export (\w+)=(.+)$`).FindAllStringSubmatch(d.stdout.String(), -1) {
		env[m[1]] = m[2]
	}
	read, err := assemble.ReadEnv(func(name string) string { return env[name] })
	if err != nil {
		d.t.Fatal(err)
	}
	return read
}

func TestScanAndStatusWorkBesideDev(t *testing.T) {
	d := startDev(t, withValue("event.status")+withScan)
	d.publish(`{"id": "a", "status": "PAID"}`)
	id := d.ask(`{"scan": "ids"}`)
	d.said(`(is done: 1 row)`)
	var stdout, stderr output
	c := scanrun.Console{Env: d.shell(), Stdout: &stdout, Stderr: &stderr}
	if err := scanrun.Run(t.Context(), c, scanrun.Request{File: "orders.yaml", Name: "ids", To: "-", Workers: 2}); err != nil || stdout.String() != "{\"id\":\"a\",\"status\":\"PAID\"}\n" {
		t.Errorf("%v, %q\n%s", err, &stdout, &stderr)
	}
	for name, env := range map[string]assemble.Env{"with the variables": d.shell(), "without them": {}} {
		var out output
		if err := printStatus(t.Context(), status.Config{File: "orders.yaml", Env: env, Now: time.Now}, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"scan " + id + " (ids): done, 1 of 1 splits done, 1 row,", strings.Fields(stderr.String())[1] + " (ids): done"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s, status says %q, want %q", name, &out, want)
			}
		}
	}
	d.end()
	var out output
	if err := printStatus(t.Context(), status.Config{File: "orders.yaml", Now: time.Now}, &out); err != nil || strings.Contains(out.String(), id) {
		t.Errorf("after dev has ended, status says %q, %v", &out, err)
	}
}

// A second dev would take the ledger from the first; and what a dev that was killed has
// left is about tables that are no more.
func TestDevBeginsWithALedgerOfItsOwn(t *testing.T) {
	d := startDev(t, scansOnly)
	first := d.ask(`{"scan": "shown"}`)
	d.said(`\(shown\) (is done)`)
	if _, _, err := run(t, "dev", "-f", "orders.yaml"); err == nil || !strings.Contains(err.Error(), "another btf dev of pipeline orders runs in this directory") {
		t.Errorf("a second dev: %v", err)
	}
	path := strings.TrimPrefix(d.variable("LEDGER"), "file:")
	left, err := os.ReadFile(path)
	if err != nil || !filepath.IsAbs(path) {
		t.Fatalf("%s: %v", path, err)
	}
	d.end()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
	if err := os.WriteFile(path, left, 0o600); err != nil { // as a dev that is killed leaves it
		t.Fatal(err)
	}
	if place, err := devledger.Running("orders"); place != (ledger.Location{}) || err != nil {
		t.Errorf("none runs, and its ledger is said to be %q, %v", place, err)
	}
	again, _ := runDev(t, dev.SystemClock())
	if id := again.ask(`{"scan": "shown"}`); id != first {
		t.Fatalf("its first message is %s, and the first dev's was %s: this test shows nothing", id, first)
	}
	again.said(`\(shown\) (is done)`)
	again.end()
}

func TestAScanUnderWayGoesOnInTheNewVersionOfTheFile(t *testing.T) {
	file := withValue("event.status") + withScan
	d, run := startDevOf(t, file, dev.SystemClock())
	out := arrive(t, run, "out")
	var events []string
	for i := range 10 {
		events = append(events, fmt.Sprintf(`{"id": "k%d", "status": "PAID"}`, i))
	}
	d.publish(events...)
	// The stream breaks after four rows, and the next one never begins.
	run.Local.Emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Cut: true, CutAfter: 4})
	run.Local.Emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Hang: true})
	d.ask(`{"scan": "ids"}`)
	out.wait(t, 4)
	d.edit(strings.Replace(file, "status: row.cf.status", "state: row.cf.status", 1), `(reloaded) orders.yaml`)
	d.said(`split 0: (continued, 4 rows, 4 records)`)
	d.said(`split 0: (done, 6 rows, 6 records)`)
	d.said(`(is done: 10 rows, 10 records, 0 dropped, 1 split)`)
	got := out.wait(t, 10)
	for i, record := range got {
		want := fmt.Sprintf(`{"id":"k%d","state":"PAID"}`, i)
		if i < 4 {
			want = fmt.Sprintf(`{"id":"k%d","status":"PAID"}`, i)
		}
		if record != want {
			t.Errorf("record %d is %s, want %s", i, record, want)
		}
	}
	d.end()
}

func TestDevEndsWhileAScanIsUnderWay(t *testing.T) {
	d, run := startDevOf(t, withValue("event.status")+withScan, dev.SystemClock())
	out := arrive(t, run, "out")
	d.publish(`{"id": "a", "status": "PAID"}`)
	run.Local.Emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Cut: true, CutAfter: 1})
	run.Local.Emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Hang: true})
	d.ask(`{"scan": "ids"}`)
	out.wait(t, 1)
	d.end()
	if text := d.stderr.String(); !strings.Contains(text, "split 0: continued, 1 row") {
		t.Errorf("the slice did not end by itself:\n%s", text)
	}
}

func TestDevServesScansThatAnEditAdds(t *testing.T) {
	d, run := startDevOf(t, withValue("event.status"), dev.SystemClock())
	if _, err := os.Stat(".btf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file without scans has a ledger: %v", err)
	}
	d.publish(`{"id": "a", "status": "PAID"}`)
	d.edit(withValue("event.status")+withScan, `(reloaded) orders.yaml`)
	d.variable("LEDGER")
	out := arrive(t, run, "out")
	d.ask(`{"scan": "ids"}`)
	if got := out.wait(t, 1); got[0] != `{"id":"a","status":"PAID"}` {
		t.Errorf("sent %q", got)
	}
	more := withValue("event.status") + strings.Replace(withScan, "topic: out", "topic: projects/elsewhere/topics/out", 1)
	d.edit(more, `(scan ids: records go to topic projects/elsewhere/topics/out, to be pulled from projects/elsewhere/subscriptions/out)`)
	d.said(`(?s)(?:reloaded.*){2}()`)
	elsewhere := arrive(t, run, "projects/elsewhere/topics/out")
	d.ask(`{"scan": "ids"}`)
	elsewhere.wait(t, 1)
	d.edit(withValue("event.status"), `(the write section, the scans or the changes are gone)`)
	d.said(`(kept the version before)`)
	d.end()
}

// handClock is a clock that stands until a test moves it.
type handClock struct {
	mu    sync.Mutex
	time  time.Time
	slept chan time.Duration
	woken chan struct{}
}

func newHandClock(at time.Time) *handClock {
	return &handClock{time: at, slept: make(chan time.Duration), woken: make(chan struct{})}
}

func (h *handClock) clock() dev.Clock {
	return dev.Clock{
		Now: func() time.Time {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.time
		},
		Sleep: func(ctx context.Context, d time.Duration) {
			select {
			case h.slept <- d:
			case <-ctx.Done():
				return
			}
			<-h.woken
		},
	}
}

// wake lets the sleeper sleep, and returns for how long.
func (h *handClock) wake() time.Duration {
	d := <-h.slept
	h.mu.Lock()
	h.time = h.time.Add(d)
	h.mu.Unlock()
	h.woken <- struct{}{}
	return d
}

func TestDevStartsAScanWhenItIsDue(t *testing.T) {
	began := time.Date(2026, 8, 30, 2, 59, 20, 0, time.UTC)
	h := newHandClock(began)
	scheduled := strings.Replace(scansOnly, "emit: {id: rowKey}, to: {log", `schedule: {cron: "0 3 * * *"}, emit: {id: rowKey}, to: {log`, 1)
	d, run := startDevOf(t, scheduled, h.clock())
	d.said(`scan shown: records are printed here; (due at 0 3 \* \* \* in Etc/UTC)`)
	requests := arrive(t, run, "orders-scan-requests")
	if slept := h.wake(); slept != 40*time.Second {
		t.Errorf("it slept %s, up to the minute it is 40 s", slept)
	}
	got := requests.wait(t, 1)
	want, err := task.Encode(task.ScanRequest{Version: task.Version, Scan: "shown", Scheduled: true})
	if err != nil || got[0] != string(want) {
		t.Errorf("asked for %s, want %s, %v", got[0], want, err)
	}
	d.said(`scan shown@\S+Z \(shown\) (is done)`)
	d.edit(strings.Replace(scheduled, "0 3 * * *", "2 3 * * *", 1), `(reloaded)`)
	h.wake() // 3:01, when nothing is due
	h.wake()
	if got := requests.wait(t, 2); len(got) != 2 {
		t.Errorf("asked %d times", len(got))
	}
	d.end()
}
