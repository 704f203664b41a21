package scanrun

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// recorded is a scan of one split in the ledger of a file, which another process has begun.
type recorded struct {
	t       *testing.T
	console Console
	request Request // resumes the scan
	ledger  *ledger.Ledger
	dir     string
}

func newRecorded(t *testing.T, s settings) *recorded {
	t.Helper()
	r := &recorded{t: t, dir: t.TempDir()}
	r.request = Request{File: filepath.Join(r.dir, "p.yaml"), Name: "ids", Resume: "ids-1"}
	const text = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables: {orders: {families: {cf: {}}}}
scans: {ids: {table: orders, emit: {id: rowKey}, to: {log: {}}}}
`
	if err := os.WriteFile(r.request.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.console = Console{Env: assemble.Env{Ledger: ledger.Location{Path: filepath.Join(r.dir, "ledger.db")}}, Stdout: io.Discard, Stderr: io.Discard}
	target, err := load(r.console.Env, r.request.File, "ids")
	if err != nil {
		t.Fatal(err)
	}
	l, closer, err := setup.OpenLedger(t.Context(), r.console.Env, target.pipeline)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closer() })
	r.ledger = l
	run, err := s.run("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginRun(t.Context(), "ids-1", "ids", nil, run, nil, nil); err != nil {
		t.Fatal(err)
	}
	plan := ledger.Draft{Splits: [][]rowrange.Range{{{}}}, Table: target.scan.Table.Ref().String(), Definition: scanjob.Definition(target.scan)}
	if _, err := l.Plan(t.Context(), "ids-1", plan); err != nil {
		t.Fatal(err)
	}
	return r
}

// finish reads the scan to its end, as another process does.
func (r *recorded) finish(rows int64) {
	r.t.Helper()
	scan, err := r.ledger.Scan(r.t.Context(), "ids-1")
	if err != nil {
		r.t.Fatal(err)
	}
	lease, err := r.ledger.Acquire(r.t.Context(), ledger.Task{Scan: "ids-1", Attempt: scan.Attempt}, "elsewhere/12")
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := lease.Finish(r.t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: rows, Records: rows}}); err != nil {
		r.t.Fatal(err)
	}
}

func TestWhatIsRememberedOfARunIsTakenWhereNoFlagSaysOtherwise(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.ndjson")
	s := newRecorded(t, settings{To: out, IDs: true, Workers: 7})
	for _, c := range []struct{ given, want Request }{
		{Request{}, Request{To: out, IDs: true, Workers: 7}},
		{Request{Workers: 2, IDs: true}, Request{To: out, IDs: true, Workers: 2}},
		{Request{To: "-"}, Request{To: "-", IDs: true, Workers: 7}},
		{Request{To: "-", IDsGiven: true}, Request{To: "-", Workers: 7}},
	} {
		r := c.given
		r.File, r.Name, r.Resume = s.request.File, s.request.Name, s.request.Resume
		_, got, err := prepare(t.Context(), s.console, r)
		if err != nil {
			t.Fatal(err)
		}
		if got.to != c.want.To || got.ids != c.want.IDs || got.workers != c.want.Workers {
			t.Errorf("%+v became %s, %t, %d; want %+v", c.given, got.to, got.ids, got.workers, c.want)
		}
	}
}

func TestStoppingAFinishedScanDoesNotSayHowToGoOn(t *testing.T) {
	s := newRecorded(t, settings{})
	s.finish(4)
	c := job{decision: &decision{id: "ids-1"}, output: &output{}, ledger: s.ledger}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.outcome(ctx, nil, nil); err != nil {
		t.Errorf("stopped when it was done: %v", err)
	}
	if err := c.outcome(ctx, &task.ScanDone{State: "done"}, nil); err != nil {
		t.Errorf("stopped when it had told so: %v", err)
	}
}

// Another process may commit and end between the look at the ledger and that at the file.
func TestAnOutputIsNotEmptiedOnceSomethingIsCommittedToIt(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.ndjson")
	if err := os.WriteFile(out, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newRecorded(t, settings{To: out, Overwrite: true})
	target, d, err := prepare(t.Context(), s.console, s.request)
	if err != nil {
		t.Fatal(err)
	}
	if !d.overwrite {
		t.Error("the output is not to be overwritten, and nothing is committed to it")
	}
	const lines = "{\"id\":\"a\"}\n{\"id\":\"b\"}\n"
	if err := os.WriteFile(out, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	s.finish(2)
	var open closers.Stack
	defer open.Close()
	if _, err := openJob(t.Context(), s.console, target, d, &open); err == nil || !strings.Contains(err.Error(), "another process has gone on with it just now: give the command again") {
		t.Errorf("ended with %v", err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != lines {
		t.Errorf("the output holds %q, %v", got, err)
	}
}

// Two that have looked at the same moment must not write the scan to two places.
func TestOfTwoRunsDecidedFromTheSameOneBegins(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	begin := func(s settings, holder ledger.Holder) error {
		run, err := s.run(holder)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.BeginRun(t.Context(), "s", "archive", nil, run, nil, s.begins(holder, "dead"))
		return err
	}
	holder := func() ledger.Holder {
		scan, err := l.Scan(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		return scan.Run.Holder
	}
	if err := begin(settings{To: "/out"}, "dead"); err != nil {
		t.Fatal(err)
	}
	if err := begin(settings{To: "/new"}, "a"); err != nil {
		t.Fatal(err)
	}
	if err := begin(settings{To: "/other"}, "b"); !errors.Is(err, errElsewhere) || holder() != "a" {
		t.Errorf("%v, run by %s: want the first to keep it", err, holder())
	}
	if err := begin(settings{To: "/new", Workers: 2}, "a"); err != nil { // the reply was lost
		t.Errorf("again: %v", err)
	}
	if err := begin(settings{To: "/new"}, "b"); err != nil { // it waits for the same output
		t.Errorf("to the same output: %v", err)
	}
}

// This version may not be able to read the settings of a later one. A wrong output would be
// worse than none.
func TestASettingThatCannotBeReadIsNotGuessed(t *testing.T) {
	s := newRecorded(t, settings{})
	if _, err := s.ledger.BeginRun(t.Context(), "ids-1", "ids", nil, ledger.Run{Settings: []byte(`{"to": 7}`)}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := prepare(t.Context(), s.console, s.request); err == nil || !strings.Contains(err.Error(), `resuming "ids-1": reading how the scan was run before: `) {
		t.Errorf("resumed: %v", err)
	}
	if err := Cancel(t.Context(), s.console, s.request.File, "ids", "ids-1"); err != nil {
		t.Errorf("cancelled: %v", err)
	}
}
