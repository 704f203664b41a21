package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// edit replaces a text of the pipeline file.
func (s *scanTable) edit(old, new string) {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	edited := strings.Replace(string(text), old, new, 1)
	if edited == string(text) {
		s.t.Fatalf("the file has no %q", old)
	}
	if err := os.WriteFile(s.file, []byte(edited), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scanTable) read(path string) string {
	s.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// ran is how a process has run a scan.
type ran struct {
	To      string `json:"to,omitempty"`
	IDs     bool   `json:"ids,omitempty"`
	Workers int    `json:"workers,omitempty"`
}

// ran begins the run of a scan anew, as a process does.
func (s *scanTable) ran(l *ledger.Ledger, id string, r ran, holder ledger.Holder) {
	s.t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := l.BeginRun(s.t.Context(), id, "ids", nil, ledger.Run{Settings: text, Holder: holder}, nil, nil); err != nil {
		s.t.Fatal(err)
	}
}

// refused runs the command and wants an error that says want, nothing on stderr, and the
// output and the ledger's scan as they were.
func (s *scanTable) refused(l *ledger.Ledger, out string, r scanrun.Request, want string) {
	s.t.Helper()
	state := func() string {
		scan, err := l.Scan(s.t.Context(), r.Resume)
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(s.dir, "*"))
		about, err := json.Marshal(scan)
		if err != nil {
			s.t.Fatal(err)
		}
		return fmt.Sprintf("%s %s %s", about, text, files)
	}
	before := state()
	stderr, err := s.scan(s.t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), want) || stderr != "" {
		s.t.Errorf("%v\n%s\nwant an error that says %s", err, stderr, want)
	}
	if after := state(); after != before {
		s.t.Errorf("something was written:\n%s\n%s", before, after)
	}
}

func TestAScanIsNotResumedOverAnotherTable(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.edit("instance: my-instance", "instance: other")
	s.refused(l, out, scanrun.Request{Resume: id}, "it was planned for table projects/my-project/instances/my-instance/tables/orders, and the pipeline file "+
		"(with BIGTABLE_PROJECT and BIGTABLE_INSTANCE) now says projects/my-project/instances/other/tables/orders")
	s.edit("instance: other", "instance: my-instance")
	s.edit("ids: {table: orders", "ids: {table: gone")
	s.refused(l, out, scanrun.Request{Resume: id}, "now says projects/my-project/instances/my-instance/tables/gone")
	s.edit("ids: {table: gone", "ids: {table: orders")
	if stderr, err := s.scan(t.Context(), scanrun.Request{Resume: id}); err != nil || !slices.Equal(lines(s.read(out)), ids(0, 400)) {
		t.Errorf("over its own table: %v\n%s", err, stderr)
	}
}

// After a kill -9 the id is enough: what was said before need not be said again.
func TestResumingNeedsOnlyTheID(t *testing.T) {
	name := killed(t)
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.ran(l, id, ran{To: out, IDs: true, Workers: 2}, name)
	s.lease(l, id, name)
	if got := s.status(); !strings.Contains(got, "(ids): stopped") || !strings.Contains(got, "to go on: "+scanrun.Resumption(s.file, "ids", id)+"\n") {
		t.Errorf("status %s", got)
	}
	if stderr, err := s.scan(t.Context(), scanrun.Request{Resume: id}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	text := s.read(out)
	if n := strings.Count(text, `{"recordId":`); strings.Count(text, "\n") != 400 || n == 0 || n == 400 {
		t.Errorf("%d lines, %d with ids, want 400 in one file, with ids from where it went on", strings.Count(text, "\n"), n)
	}
	scan, err := l.Scan(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got ran
	if err := json.Unmarshal(scan.Run.Settings, &got); err != nil || got.Workers != 4 || got.To != out {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTwoFormatsOfLinesAreNotMixed(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.refused(l, out, scanrun.Request{Resume: id, IDs: true}, "the lines of "+out+" have no ids: leave out --ids")
	s.refused(l, out, scanrun.Request{Resume: id, To: out, IDs: true}, "have no ids: leave out --ids")
	s.ran(l, id, ran{To: out, IDs: true}, "")
	s.refused(l, out, scanrun.Request{Resume: id, IDsGiven: true}, "the lines of "+out+" have ids: leave out --ids=false")
	other := filepath.Join(s.dir, "other.ndjson")
	if stderr, err := s.scan(t.Context(), scanrun.Request{Resume: id, To: other, IDsGiven: true}); err != nil || strings.Contains(s.read(other), "recordId") {
		t.Errorf("in a new file: %v\n%s", err, stderr)
	}
}

// More lines than were committed there may be, after a crash. Fewer are a loss.
func TestAnOutputThatLacksWhatWasCommittedIsNotGoneOnWith(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	text := s.read(out)
	n := strings.Count(text, "\n")
	write := func(text string) {
		if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text[strings.IndexByte(text, '\n')+1:])
	want := fmt.Sprintf("%s has %s, and %d of the scan are committed to it: 1 are missing", out, terminal.Plural(n-1, "line"), n)
	s.refused(l, out, scanrun.Request{Resume: id}, want)
	s.refused(l, out, scanrun.Request{Resume: id, To: out}, want)
	write("")
	s.refused(l, out, scanrun.Request{Resume: id}, fmt.Sprintf("has 0 lines, and %d of the scan are committed to it: %d are missing", n, n))
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	s.refused(l, out, scanrun.Request{Resume: id}, fmt.Sprintf("%s, which has %s of the scan, is gone", out, scanrun.Records(int64(n))))
	write(text + ids(0, 400)[n] + "\nhalf a li")
	if stderr, err := s.scan(t.Context(), scanrun.Request{Resume: id}); err != nil || !slices.Equal(lines(s.read(out)), ids(0, 400)) {
		t.Errorf("with what was sent after the last commit: %v\n%s", err, stderr)
	}
}

func TestAnotherFileThatHoldsDataIsNotGoneOnWith(t *testing.T) {
	s := newScanTable(t, 400)
	out, other := filepath.Join(s.dir, "out.ndjson"), filepath.Join(s.dir, "other.ndjson")
	id, l := s.interrupted(out)
	if err := os.WriteFile(other, []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refused(l, other, scanrun.Request{Resume: id, To: other}, other+" holds data, and the scan's records go to "+out)
	if err := os.Rename(out, other); err != nil { // the user has moved it
		t.Fatal(err)
	}
	if stderr, err := s.scan(t.Context(), scanrun.Request{Resume: id, To: other}); err != nil || !slices.Equal(lines(s.read(other)), ids(0, 400)) {
		t.Errorf("%v\n%s", err, stderr)
	}
}

func TestAnEditedScanIsNotResumedWithoutSayingSo(t *testing.T) {
	for name, goOn := range map[string]scanrun.Request{"accepted": {AcceptChanges: true}, "in a new file": {To: "new.ndjson"}} {
		s := newScanTable(t, 400)
		out := filepath.Join(s.dir, "out.ndjson")
		id, l := s.interrupted(out)
		before := s.read(out)
		s.edit("ids: {table: orders, fetch: {maxRows: 10}, emit: {id: rowKey}, to: {log: {}}}",
			"ids: {table: orders, fetch: {maxRows: 20}, emit: {key: rowKey}, cells: {versions: 1}, to: {pubsub: {topic: other}}}")
		s.refused(l, out, scanrun.Request{Resume: id}, "the file has changed since it was planned: cells, emit. --accept-changes goes on as the file says now")
		if goOn.Resume = id; goOn.To != "" {
			goOn.To = filepath.Join(s.dir, goOn.To)
		}
		ctx, stop := context.WithCancel(t.Context())
		stderr, err := s.scan(ctx, goOn)
		stop()
		if err != nil || !strings.Contains(stderr, "the file has changed since the scan was planned (cells, emit): it goes on as the file says now, over the rows of its plan\n") {
			t.Errorf("%s: %v\n%s", name, err, stderr)
			continue
		}
		old, new := strings.Count(before, "\n"), s.read(out)
		if goOn.To != "" {
			old, new = 0, s.read(goOn.To)
		}
		if strings.Count(new, `{"id":`) != old || strings.Count(new, `{"key":`) != 400-strings.Count(before, "\n") {
			t.Errorf("%s: %d lines of the old shape and %d of the new", name, strings.Count(new, `{"id":`), strings.Count(new, `{"key":`))
		}
	}
}

func TestWhatWasAcceptedIsNotAskedAgain(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.edit("emit: {id: rowKey}", "emit: {key: rowKey}")
	s.lease(l, id, "elsewhere/12") // so that it does not end
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &untilWriter{text: "is leased by", stop: cancel}
	if err := scanrun.Run(ctx, s.console(io.Discard, stderr), scanrun.Request{File: s.file, Name: "ids", Resume: id, AcceptChanges: true, Workers: 2}); err == nil || !strings.HasPrefix(err.Error(), "stopped; to go on") {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	again := &untilWriter{text: "is leased by", stop: cancel}
	if err := scanrun.Run(ctx, s.console(io.Discard, again), s.request(scanrun.Request{Resume: id})); err == nil || !strings.HasPrefix(err.Error(), "stopped; to go on") {
		t.Errorf("again: %v", err)
	}
}

// Each of two outputs would have a part of the scan.
func TestAScanThatAnotherProcessReadsIsNotSplitOverTwoOutputs(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	lease := s.lease(l, id, "elsewhere/12")
	for _, to := range []string{filepath.Join(s.dir, "other.ndjson"), "-"} {
		s.refused(l, out, scanrun.Request{Resume: id, To: to}, fmt.Sprintf("elsewhere/12 has split %d, for 1m", lease.Split().Index))
	}
}

// leaseAll lets another process hold every split that is not finished.
func (s *scanTable) leaseAll(l *ledger.Ledger, id string) (leases []*ledger.Lease) {
	s.t.Helper()
	scan, err := l.Scan(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	tasks, err := l.Unfinished(s.t.Context(), scan)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, t := range tasks {
		lease, err := l.Acquire(s.t.Context(), t, "elsewhere/12")
		if err != nil {
			s.t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	return leases
}

func TestAScanThatAnotherProcessFinishesEndsHereToo(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	here := strings.Count(s.read(out), "\n")
	leases := s.leaseAll(l, id)
	finish := func() {
		for i, lease := range leases {
			n := int64(0)
			if i == 0 {
				n = int64(400 - here)
			}
			if _, err := lease.Finish(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: n, Records: n}}); err != nil {
				t.Error(err)
			}
		}
		leases = nil
		if err := l.MarkPublished(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	var once bool
	stderr := &untilWriter{text: "leased by", stop: func() {
		if !once {
			once = true
			finish()
		}
	}}
	if err := scanrun.Run(t.Context(), scanrun.Console{Env: s.environment(), Stderr: stderr}, scanrun.Request{File: s.file, Name: "ids", Resume: id, Workers: 2}); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	want := fmt.Sprintf("another process has finished the scan\n%d of its 400 records went to %s, the others to the output of another process\n", here, out)
	if !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("said %s\nwant %s", stderr.String(), want)
	}
}

func TestAFinishedScanIsNotResumedIntoAnOutputWithoutIt(t *testing.T) {
	s := newScanTable(t, 10)
	out, other := filepath.Join(s.dir, "out.ndjson"), filepath.Join(s.dir, "other.ndjson")
	stderr, err := s.scan(t.Context(), scanrun.Request{To: out})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Fields(stderr)[1]
	for _, c := range []scanrun.Request{{Resume: id}, {Resume: id, To: out}} {
		if stderr, err := s.scan(t.Context(), c); err != nil || stderr != "scan "+id+" is done already\n" {
			t.Errorf("where its records are: %v, %q", err, stderr)
		}
	}
	again := ": leave out --resume to scan again"
	l, closer, err := setup.OpenLedger(t.Context(), s.environment(), &pipeline.Pipeline{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer closer()
	s.refused(l, out, scanrun.Request{Resume: id, To: other}, other+" is not there"+again)
	s.refused(l, out, scanrun.Request{Resume: id, To: "-"}, "its records went to "+out+again)
	if err := os.Truncate(out, 30); err != nil {
		t.Fatal(err)
	}
	s.refused(l, out, scanrun.Request{Resume: id}, out+" lacks 8 records of it"+again)
	if err := os.Rename(out, other); err != nil {
		t.Fatal(err)
	}
	s.refused(l, out, scanrun.Request{Resume: id}, out+" is not there"+again)
}

func TestAStoppedScanSaysSoAndARunningOneDoesNot(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	for by, want := range map[ledger.Holder]string{"": "stopped", process.Self(): "running", "elsewhere/12": "running"} {
		s.ran(l, id, ran{To: out}, by)
		if got := s.status(); !strings.Contains(got, "(ids): "+want+", ") || strings.Contains(got, "to go on") != (want == "stopped") {
			t.Errorf("run by %q: %s, want %s", by, got, want)
		}
	}
	var later bytes.Buffer // elsewhere has told of nothing since
	then := func() time.Time { return time.Now().Add(ledger.LeaseTime) }
	s.ran(l, id, ran{To: out}, "elsewhere/12")
	if err := s.tellStatus(&later, io.Discard, then); err != nil || !strings.Contains(later.String(), "(ids): stopped, ") {
		t.Errorf("%v\n%s", err, later.String())
	}
	s.ran(l, id, ran{To: out}, "")
	s.lease(l, id, "elsewhere/12")
	if got := s.status(); !strings.Contains(got, "(ids): running, ") {
		t.Errorf("with a lease: %s", got)
	}
	if m := regexp.MustCompile(`(?m)^scan \S+ \(`).FindAllString(s.status(), -1); len(m) != 1 {
		t.Errorf("%q", m)
	}
}

// Between two slices, and while it waits to try again, a process holds no split.
func TestAScanThatAnotherProcessWaitsForIsNotSplitOverTwoOutputs(t *testing.T) {
	if !process.IsCertain() {
		t.Skip("this system does not tell for certain whether a process runs")
	}
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.ran(l, id, ran{To: out}, process.Of(os.Getppid()))
	for _, to := range []string{filepath.Join(s.dir, "other.ndjson"), "-"} {
		s.refused(l, out, scanrun.Request{Resume: id, To: to}, fmt.Sprintf("/%d goes on with it", os.Getppid()))
	}
	s.ran(l, id, ran{To: "-"}, process.Of(os.Getppid()))
	s.refused(l, out, scanrun.Request{Resume: id}, fmt.Sprintf("/%d goes on with it", os.Getppid()))
}

// Its splits would be waited for for ever.
func TestAScanWhoseSplitsAreForgottenIsNotResumed(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, _ := s.interrupted(out)
	db, err := bbolt.Open(filepath.Join(s.dir, "ledger.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		documents := tx.Bucket([]byte("documents.1"))
		c := documents.Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			if bytes.Contains(k, []byte("/splits\x00")) {
				return c.Delete()
			}
		}
		return errors.New("there is no split")
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	l, _, err := setup.OpenLedger(t.Context(), s.environment(), &pipeline.Pipeline{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	s.refused(l, out, scanrun.Request{Resume: id}, "the ledger has 3 of its 4 splits, the others were not worked on for 30 days; without --resume the scan begins again")
}
