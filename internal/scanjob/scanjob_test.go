package scanjob_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

const file = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
  copy: {families: {cf: {}}}
scans:
  plain: {table: orders, to: {pubsub: {topic: out}}}
  dressed:
    table: orders
    rows: {prefixes: [a, b]}
    cells: {families: [cf], since: "2026-08-01T00:00:00Z", until: "2026-09-01T00:00:00Z"}
    emit: {id: rowKey}
    to: {pubsub: {topic: projects/elsewhere/topics/out, orderBy: rowKey, attributes: {kind: '"row"'}}}
  columns: {table: orders, cells: {columns: {cf: [status]}}, to: {log: {}}}
  filtered: {table: orders, cells: {filter: 'pass_all_filter: true'}, to: {pubsub: {topic: out}}}
  keys: {table: orders, cells: {keysOnly: true}, to: {pubsub: {topic: out}}}
  copied: {table: orders, to: {bigtable: {table: copy}}}
  stored: {table: orders, to: {gcs: {bucket: my-bucket}}}
`

func parse(t testing.TB) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func find(t *testing.T, name string, o task.Options) *pipeline.Scan {
	t.Helper()
	s, err := scanjob.Find(parse(t), name, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refusal returns why Find refuses.
func refusal(t *testing.T, name string, o task.Options) string {
	t.Helper()
	s, err := scanjob.Find(parse(t), name, o)
	if err == nil {
		t.Errorf("scan %s is found, to %.100v, with options that ask for nonsense", name, s.To.PubSub)
		return ""
	}
	return err.Error()
}

func day(n int) time.Time { return time.Date(2026, 8, n, 0, 0, 0, 0, time.UTC) }

func to(topic string) *task.To { return &task.To{PubSub: &task.PubSub{Topic: topic}} }

var toLog = &task.To{Log: &struct{}{}}

func TestAScanWithoutOptionsIsTheFiles(t *testing.T) {
	p := parse(t)
	for _, want := range p.Scans {
		got, err := scanjob.Find(p, want.Name, task.Options{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("scan %s is %+v, %v, want the file's %+v", want.Name, got, err, want)
		}
	}
}

func TestANameThatTheFileLacksIsRefusedWithThoseItHas(t *testing.T) {
	if got, want := refusal(t, "Plain", task.Options{}), "pipeline orders has no scan of this name; it has: plain, dressed, columns, filtered, keys, copied, stored"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := scanjob.Find(&pipeline.Pipeline{Name: "p"}, "plain", task.Options{}); err == nil || !strings.HasSuffix(err.Error(), "it has: none") {
		t.Errorf("of a file without scans: %v", err)
	}
}

func TestARequestsWindowReplacesTheFilesBoundByBound(t *testing.T) {
	for name, c := range map[string]struct {
		scan         string
		options      task.Options
		since, until time.Time
	}{
		"both":               {"plain", task.Options{Since: day(2), Until: day(3)}, day(2), day(3)},
		"since alone":        {"plain", task.Options{Since: day(2)}, day(2), time.Time{}},
		"until alone":        {"plain", task.Options{Until: day(3)}, time.Time{}, day(3)},
		"since, until stays": {"dressed", task.Options{Since: day(10)}, day(10), day(32)},
		"until, since stays": {"dressed", task.Options{Until: day(10)}, day(1), day(10)},
		"beside columns":     {"columns", task.Options{Since: day(2)}, day(2), time.Time{}},
	} {
		s := find(t, c.scan, c.options)
		if !s.Cells.Since.Equal(c.since) || !s.Cells.Until.Equal(c.until) {
			t.Errorf("%s: [%v, %v), want [%v, %v)", name, s.Cells.Since, s.Cells.Until, c.since, c.until)
		}
		without := find(t, c.scan, task.Options{})
		without.Cells.Since, without.Cells.Until = s.Cells.Since, s.Cells.Until
		if !reflect.DeepEqual(s, without) {
			t.Errorf("%s: more than the window differs: %+v", name, s)
		}
	}
}

func TestAWindowCannotStandBesideAFilterOrKeysOnly(t *testing.T) {
	for _, name := range []string{"filtered", "keys"} {
		for _, o := range []task.Options{{Since: day(2)}, {Until: day(3)}, {Since: day(2), Until: day(3), To: to("other")}} {
			if got := refusal(t, name, o); !strings.Contains(got, "cells.filter or cells.keysOnly") {
				t.Errorf("%s: %s", name, got)
			}
		}
		if s := find(t, name, task.Options{To: to("other")}); s.To.PubSub.Topic != "other" {
			t.Errorf("%s without a window: to %+v", name, s.To)
		}
	}
}

func TestToAnotherTopicWhatTheFileSaysBesideItStays(t *testing.T) {
	s := find(t, "dressed", task.Options{To: to("projects/third/topics/other")})
	want := find(t, "dressed", task.Options{})
	want.To.PubSub.Topic = "projects/third/topics/other"
	if s.To.PubSub.OrderBy.IsZero() || len(s.To.PubSub.Attributes) != 1 || !reflect.DeepEqual(s, want) {
		t.Errorf("to %+v", s.To.PubSub)
	}
}

func TestAnotherSinkReplacesTheFilesWhole(t *testing.T) {
	for _, name := range []string{"columns", "copied", "stored"} {
		s := find(t, name, task.Options{To: to("other")})
		want := pipeline.Sink{Pos: s.To.Pos, PubSub: &pipeline.PubSubSink{Topic: "other"}}
		if !reflect.DeepEqual(s.To, want) {
			t.Errorf("%s to a topic: %+v", name, s.To)
		}
	}
	for _, want := range parse(t).Scans {
		s := find(t, want.Name, task.Options{To: toLog})
		if !reflect.DeepEqual(s.To, pipeline.Sink{Pos: want.To.Pos, Log: true}) {
			t.Errorf("%s to the log: %+v", want.Name, s.To)
		}
	}
}

func TestASinkThatCannotBeMeantIsRefused(t *testing.T) {
	for want, sinks := range map[string][]*task.To{
		"exactly one of pubsub and log": {{}, {PubSub: &task.PubSub{Topic: "t"}, Log: &struct{}{}}},
		"one of the pipeline's own":     {to("orders-events"), to("orders-scan-tasks"), to("projects/any/topics/orders-scan-requests"), to("orders-dead-letter")},
		"goog":                          {to("google-topic"), to("projects/any/topics/googol")},
		"is no topic": {to(""), to("x"), to("a b"), to("projects/p/topics/"), to("topics/out"), to("projects/p/subscriptions/out"),
			to("1st"), to("out\n"), to(strings.Repeat("x", 256)), to(strings.Repeat("x", 9<<20))},
	} {
		for _, sink := range sinks {
			got := refusal(t, "plain", task.Options{To: sink})
			if !strings.Contains(got, want) || len(got) > 300 {
				t.Errorf("%.100v: %.300s, want one that says %s", sink.PubSub, got, want)
			}
			if sink.PubSub != nil && len(sink.PubSub.Topic) > 3 && strings.Contains(got, sink.PubSub.Topic) {
				t.Errorf("the refusal quotes the request: %.300s", got)
			}
		}
	}
}

// anyOptions draws what a request may say, good or bad.
func anyOptions(t *rapid.T) task.Options {
	var o task.Options
	if rapid.Bool().Draw(t, "since") {
		o.Since = day(rapid.IntRange(1, 60).Draw(t, "from"))
	}
	if rapid.Bool().Draw(t, "until") {
		o.Until = day(rapid.IntRange(1, 60).Draw(t, "to"))
	}
	o.To = rapid.SampledFrom([]*task.To{nil, toLog, to("a-topic"), to("b-topic"), to("projects/p/topics/c-topic"), to("orders-events"), {}}).Draw(t, "sink")
	return o
}

// Whatever requests ask for and whatever is made of them, the file's scans stay, and
// so do those of other requests: a worker keeps both side by side.
func TestOptionsChangeNeitherTheFileNorOtherRequests(t *testing.T) {
	untouched := parse(t)
	rapid.Check(t, func(rt *rapid.T) {
		p := parse(t)
		name := rapid.SampledFrom(p.Scans).Draw(rt, "scan").Name
		o := anyOptions(rt)
		kept, err := scanjob.Find(p, name, o)
		if err != nil {
			kept = nil
		}
		for range rapid.IntRange(1, 4).Draw(rt, "others") {
			other, err := scanjob.Find(p, rapid.SampledFrom(p.Scans).Draw(rt, "other scan").Name, anyOptions(rt))
			if err != nil {
				continue
			}
			// What belongs to the scan itself is the caller's to change.
			other.Cells.Since, other.Limit, other.Emit = day(59), 99, nil
			if sink := other.To.PubSub; sink != nil && !isTheFiles(p, sink) {
				sink.Topic, sink.Attributes = "changed", nil
			}
			other.To = pipeline.Sink{}
		}
		if !reflect.DeepEqual(p, untouched) {
			rt.Fatal("the file's scans have changed")
		}
		again, err := scanjob.Find(parse(t), name, o)
		if err != nil {
			again = nil
		}
		if !reflect.DeepEqual(kept, again) {
			rt.Fatalf("scan %s was %+v and is %+v", name, kept, again)
		}
	})
}

// isTheFiles reports whether a sink was handed out as the file has it.
func isTheFiles(p *pipeline.Pipeline, sink *pipeline.PubSubSink) bool {
	return slices.ContainsFunc(p.Scans, func(s *pipeline.Scan) bool { return s.To.PubSub == sink })
}

// What the planner has taken, the worker takes: it sees the same options, as a task
// carries them.
func TestATaskMeansToTheWorkerWhatTheRequestMeantToThePlanner(t *testing.T) {
	p := parse(t)
	rapid.Check(t, func(rt *rapid.T) {
		name, o := rapid.SampledFrom(p.Scans).Draw(rt, "scan").Name, anyOptions(rt)
		split := ledger.Task{Scan: rapid.StringN(1, 20, -1).Draw(rt, "id"), Attempt: rapid.StringN(1, 20, -1).Draw(rt, "attempt"), Index: rapid.IntRange(0, 1<<30).Draw(rt, "index")}
		body, err := task.Encode(scanjob.Task(split, name, o))
		if err != nil {
			rt.Fatal(err)
		}
		got, err := task.DecodeScan(body)
		if err != nil {
			rt.Fatalf("%s: %v", body, err)
		}
		if back := (ledger.Task{Scan: got.Scan, Attempt: got.Attempt, Index: got.Split}); back != split || got.Name != name {
			rt.Fatalf("%+v of %s came back as %+v of %s", split, name, back, got.Name)
		}
		planned, planErr := scanjob.Find(p, name, o)
		read, readErr := scanjob.Find(p, got.Name, got.Options)
		if (planErr == nil) != (readErr == nil) || !reflect.DeepEqual(planned, read) {
			rt.Fatalf("planned as %+v, %v; read as %+v, %v", planned, planErr, read, readErr)
		}
	})
}

// endedScan is a ledger with one finished scan, and the topic of completion events. What
// is done to either is kept in order.
type endedScan struct {
	memory *storetest.Memory
	ledger *ledger.Ledger
	happen []string
	events []task.ScanDone
	fault  storetest.Fault // of the next commit
	down   error           // of the topic
}

// finishedScan has a scan "s" of two splits, one of which has failed.
func finishedScan(t *testing.T) *endedScan {
	t.Helper()
	w := &endedScan{memory: storetest.NewMemory()}
	w.restart()
	if _, err := w.ledger.Begin(t.Context(), "s", "plain", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ledger.Plan(t.Context(), "s", ledger.Draft{Splits: [][]rowrange.Range{{{End: "m"}}, {{Start: "m"}}}}); err != nil {
		t.Fatal(err)
	}
	for i, cause := range []error{nil, errors.New("no such family")} {
		lease, err := w.ledger.Acquire(t.Context(), ledger.Task{Scan: "s", Attempt: w.scan(t).Attempt, Index: i}, "w")
		if err != nil {
			t.Fatal(err)
		}
		if progress := (ledger.Progress{Counts: ledger.Counts{Rows: 3, Records: 2, Dropped: 1}}); cause == nil {
			_, err = lease.Finish(t.Context(), progress)
		} else {
			_, err = lease.Fail(t.Context(), progress, cause)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.happen = nil
	return w
}

// restart is another process.
func (w *endedScan) restart() {
	w.ledger = ledger.New(&storetest.Faulty{Store: w.memory, Next: func(commit bool) storetest.Fault {
		if !commit {
			return storetest.FaultNone
		}
		w.happen = append(w.happen, "commit")
		fault := w.fault
		w.fault = storetest.FaultNone
		return fault
	}}, "orders", ledger.Options{})
}

func (w *endedScan) scan(t *testing.T) *ledger.Scan {
	t.Helper()
	s, err := w.ledger.Scan(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *endedScan) announce(t *testing.T) error {
	t.Helper()
	return scanjob.Announce(t.Context(), w.ledger, w, w.scan(t))
}

// Publish implements scanjob.Publisher.
func (w *endedScan) Publish(_ context.Context, messages ...any) error {
	if w.down != nil {
		return w.down
	}
	for _, m := range messages {
		w.happen = append(w.happen, "publish")
		w.events = append(w.events, m.(task.ScanDone))
	}
	return nil
}

func TestTheCompletionEventSaysWhatTheLedgerSays(t *testing.T) {
	w := finishedScan(t)
	if err := w.announce(t); err != nil {
		t.Fatal(err)
	}
	s := w.scan(t)
	want := task.ScanDone{
		Version: task.Version, Scan: "s", Name: "plain", State: "failed", Error: "1 of 2 splits failed, the first of them split 1: no such family",
		Splits: 2, Failed: 1, Rows: 6, Records: 4, Dropped: 2, CreatedAt: s.CreatedAt, FinishedAt: s.FinishedAt,
	}
	if s.CreatedAt.IsZero() || s.FinishedAt.IsZero() || len(w.events) != 1 || w.events[0] != want {
		t.Errorf("announced %+v, want %+v", w.events, want)
	}
	body, err := task.Encode(w.events[0])
	if err != nil {
		t.Fatal(err)
	}
	if back, err := task.DecodeScanDone(body); err != nil || back != want {
		t.Errorf("read back as %+v, %v", back, err)
	}
}

func TestAScanIsMarkedOnlyAfterItsEventIsStored(t *testing.T) {
	w := finishedScan(t)
	if err := w.announce(t); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.happen, []string{"publish", "commit"}) || !w.scan(t).Published {
		t.Errorf("happened: %v, published %t", w.happen, w.scan(t).Published)
	}
}

func TestAnEventThatIsNotStoredLeavesItDue(t *testing.T) {
	w := finishedScan(t)
	w.down = errors.New("the topic is down")
	if err := w.announce(t); !errors.Is(err, w.down) || !strings.Contains(err.Error(), `scan "s"`) {
		t.Errorf("error %v", err)
	}
	if s := w.scan(t); !s.CompletionDue() || len(w.happen) != 0 {
		t.Errorf("due %t after %v", s.CompletionDue(), w.happen)
	}
	w.down = nil
	if err := w.announce(t); err != nil || len(w.events) != 1 || w.scan(t).CompletionDue() {
		t.Errorf("then: %v, %d events, due %t", err, len(w.events), w.scan(t).CompletionDue())
	}
}

// A process that dies between the event and the mark leaves it due; whoever comes next
// announces the same again, and then it is over.
func TestAnAnnouncementIsRepeatedUntilItIsMarked(t *testing.T) {
	for _, fault := range []storetest.Fault{storetest.FaultCrash, storetest.FaultCrashAfter} {
		w := finishedScan(t)
		w.fault = fault
		if err := w.announce(t); !errors.Is(err, storetest.ErrCrash) {
			t.Errorf("fault %d: error %v", fault, err)
		}
		w.restart()
		if due, want := w.scan(t).CompletionDue(), fault == storetest.FaultCrash; due != want {
			t.Errorf("fault %d: due %t, want %t", fault, due, want)
		}
		before := *w.scan(t)
		if err := w.announce(t); err != nil {
			t.Errorf("fault %d: again: %v", fault, err)
		}
		after := *w.scan(t)
		if len(w.events) != 2 || w.events[0] != w.events[1] {
			t.Errorf("fault %d: announced %+v", fault, w.events)
		}
		if before.Published, after.Published = true, true; after.FinishedAt != before.FinishedAt || after.State != before.State || after.Counts != before.Counts || w.scan(t).CompletionDue() {
			t.Errorf("fault %d: the scan is %+v, was %+v", fault, after, before)
		}
	}
}

func TestAScanThatIsNotFinishedIsNotMarked(t *testing.T) {
	w := &endedScan{memory: storetest.NewMemory()}
	w.restart()
	s, err := w.ledger.Begin(t.Context(), "s", "plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := scanjob.Announce(t.Context(), w.ledger, w, s); err == nil || !strings.Contains(err.Error(), "not finished") {
		t.Errorf("error %v", err)
	}
	if len(w.events) != 0 {
		t.Errorf("announced %+v", w.events)
	}
}
