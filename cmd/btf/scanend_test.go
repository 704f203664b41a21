package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func (s *scanTable) cancel(id string) (stderr string, err error) {
	var out output
	c := scanner{file: s.file, name: "ids", cancel: id, stderr: &out, env: s.environment()}
	err = c.runCancel(s.t.Context())
	return out.String(), err
}

func TestACancelledScanHasFailedForEverybody(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	lease := s.lease(l, id, "elsewhere/12")
	n := strings.Count(s.read(out), "\n")
	s.edit("emit: {id: rowKey}", "emit: {id: what does not compile}")
	if stderr, err := s.cancel(id); err != nil || !regexp.MustCompile(fmt.Sprintf(`^scan %s is cancelled: \d of 4 splits done, %d rows, %d records\n$`, id, n, n)).MatchString(stderr) {
		t.Fatalf("%v, %q", err, stderr)
	}
	if err := lease.Commit(t.Context(), ledger.Progress{}); !errors.Is(err, ledger.ErrFinished) {
		t.Errorf("its holder commits: %v", err)
	}
	if got := s.status(); !strings.Contains(got, "(ids): failed, ") || !strings.Contains(got, "\n  cancelled\n") || strings.Contains(got, "to go on") {
		t.Errorf("status %s", got)
	}
	if _, err := s.cancel(id); err != nil {
		t.Errorf("again: %v", err)
	}
	s.edit("emit: {id: what does not compile}", "emit: {id: rowKey}")
	s.refused(l, out, scanner{resume: id}, `"`+id+`" has failed: cancelled`)
	if _, err := s.cancel("ids-gone"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	stderr, err := s.scan(t.Context(), scanner{to: "-", stdout: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.cancel(strings.Fields(stderr)[1]); !errors.Is(err, ledger.ErrScanFinished) || !strings.Contains(err.Error(), "it is done") {
		t.Errorf("one that is done: %v", err)
	}
}

func TestAScanThatIsCancelledWhileItRunsEnds(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.lease(l, id, "elsewhere/12") // so that it goes on
	once := false
	stderr := &untilWriter{text: "leased by", stop: func() {
		if !once {
			once = true
			if _, err := s.cancel(id); err != nil {
				t.Error(err)
			}
		}
	}}
	c := scanner{file: s.file, name: "ids", resume: id, workers: 2, stderr: stderr, env: s.environment()}
	if err := c.run(t.Context()); err == nil || err.Error() != "scan "+id+" has failed: cancelled" {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}

func TestAScanNeedsNothingThatOnlyOtherScansNeed(t *testing.T) {
	s := newScanTable(t, 4)
	s.edit("named: {table: orders,", "named: {table: orders, onFailure: dead-letter,")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(s.dir, "none.json"))
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	if stderr, err := s.scan(t.Context(), scanner{to: "-", stdout: &bytes.Buffer{}}); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	if _, err := s.scan(t.Context(), scanner{name: "named", to: "-", stdout: &bytes.Buffer{}}); err == nil || !strings.Contains(err.Error(), "connecting to Pub/Sub") {
		t.Errorf("the one that keeps dead letters: %v", err)
	}
}

// Somebody may make the topic, so what is done stays.
func TestATopicThatIsMissingEndsTheScanAndIsNamedInFull(t *testing.T) {
	s := newScanTable(t, 4)
	server := pstest.NewServer()
	defer server.Close()
	t.Setenv("PUBSUB_EMULATOR_HOST", server.Addr)
	_, err := s.scan(t.Context(), scanner{name: "topic"})
	if err == nil || !strings.Contains(err.Error(), "publishing to projects/my-project/topics/somewhere, which does not exist: NotFound; to go on: ") {
		t.Fatal(err)
	}
	if got := s.status(); !strings.Contains(got, "(topic): stopped") || !strings.Contains(got, "topics/somewhere, which does not exist") {
		t.Errorf("status %s", got)
	}
}

func TestAPlanningThatWasGivenUpIsStoppedAndSaysWhy(t *testing.T) {
	s := newScanTable(t, 4)
	s.emulator.Inject(emulator.Fault{Method: "SampleRowKeys", Code: codes.PermissionDenied})
	if _, err := s.scan(t.Context(), scanner{to: "-", stdout: &bytes.Buffer{}}); err == nil {
		t.Fatal("it was planned")
	}
	if got := s.status(); !strings.Contains(got, "(ids): stopped, 0 of 0 splits done") || !strings.Contains(got, "PermissionDenied") || !strings.Contains(got, "to go on: btf scan -f ") {
		t.Errorf("status %s", got)
	}
}

// stoppedBeforeItOverwrites begins a scan that is to overwrite a file and cannot be
// planned, and returns the file, which is as it was, and the scan's id.
func (s *scanTable) stoppedBeforeItOverwrites() (out, id string) {
	s.t.Helper()
	out = filepath.Join(s.dir, "out.ndjson")
	if err := os.WriteFile(out, []byte("old\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	fault := s.emulator.Inject(emulator.Fault{Method: "SampleRowKeys", Code: codes.PermissionDenied})
	defer s.emulator.RemoveFault(fault)
	stderr, err := s.scan(s.t.Context(), scanner{to: out, overwrite: true})
	if err == nil || s.read(out) != "old\n" {
		s.t.Fatalf("%v, %q\n%s", err, s.read(out), stderr)
	}
	return out, strings.Fields(stderr)[1]
}

// The file is emptied once the scan is planned, also where another process plans it.
func TestAnOutputThatIsToBeOverwrittenIsSoAfterAStop(t *testing.T) {
	s := newScanTable(t, 40)
	out, id := s.stoppedBeforeItOverwrites()
	if stderr, err := s.scan(t.Context(), scanner{resume: id}); err != nil || !slices.Equal(lines(s.read(out)), ids(0, 40)) {
		t.Errorf("%v\n%s\n%s", err, stderr, s.read(out))
	}
}

func TestAFailedScanIsNotShownAsDone(t *testing.T) {
	s := newScanTable(t, 40)
	stderr, err := s.scan(t.Context(), scanner{name: "bad", to: "-", stdout: &bytes.Buffer{}})
	if err == nil || !strings.Contains(err.Error(), "4 of 4 splits failed") {
		t.Fatal(err)
	}
	if !strings.Contains(stderr, "[..............................]   0%  0 of 4 splits, 4 failed  0 rows") || strings.Contains(stderr, "100%") {
		t.Errorf("told %s", stderr)
	}
	if n := strings.Count(stderr, "\n"); n > 3 {
		t.Errorf("%d lines:\n%s", n, stderr)
	}
}

func TestKindsOfFailuresAreAddedUpOverSplitsAndBounded(t *testing.T) {
	q := newScanQueue(t.Context())
	defer q.stop()
	for i := range 3 {
		var failures []scanworker.Failure
		for kind := range 12 {
			failures = append(failures, scanworker.Failure{What: "record cannot be delivered", Error: fmt.Sprintf("kind %d\x1b", kind), Count: int64(kind + i)})
		}
		q.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeDone, Failures: failures})
	}
	var out bytes.Buffer
	q.tellFailures(&out)
	told := out.String()
	if strings.Count(told, "\n") != mostFailures+1 || !strings.HasPrefix(told, `36 times: record cannot be delivered: kind 11\x1b`) || !strings.HasSuffix(told, "and 2 kinds of failures more\n") {
		t.Errorf("told\n%s", told)
	}
}

func TestOnlyTheDefaultDirectoryOfALedgerIsMade(t *testing.T) {
	s := newScanTable(t, 4)
	dir := filepath.Join(s.dir, "nodir")
	s.env["LEDGER"] = "file:" + filepath.Join(dir, "x.db")
	out := filepath.Join(s.dir, "out.ndjson")
	if _, err := s.scan(t.Context(), scanner{to: out}); err == nil || !strings.Contains(err.Error(), "its directory "+dir+" does not exist") {
		t.Errorf("%v", err)
	}
	for _, path := range []string{dir, out} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want none", path, err)
		}
	}
	delete(s.env, "LEDGER")
	t.Chdir(s.dir)
	if stderr, err := s.scan(t.Context(), scanner{to: out}); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	if info, err := os.Stat(".btf"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf(".btf: %v, %v", info, err)
	}
}

func TestWhatIsRememberedOfARunIsTakenWhereNoFlagSaysOtherwise(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	s.ran(l, id, ledger.Run{To: out, IDs: true, Workers: 7})
	for _, c := range []struct{ given, want scanner }{
		{scanner{}, scanner{to: out, ids: true, workers: 7}},
		{scanner{workers: 2, ids: true}, scanner{to: out, ids: true, workers: 2}},
		{scanner{to: "-"}, scanner{to: "-", ids: true, workers: 7}},
		{scanner{to: "-", idsGiven: true}, scanner{to: "-", workers: 7}},
	} {
		got := c.given
		got.file, got.name, got.resume, got.env = s.file, "ids", id, s.environment()
		if _, err := got.check(t.Context()); err != nil {
			t.Error(err)
		}
		if got.to != c.want.to || got.ids != c.want.ids || got.workers != c.want.workers {
			t.Errorf("%+v became %s, %t, %d; want %+v", c.given, got.to, got.ids, got.workers, c.want)
		}
		if err := got.close(); err != nil {
			t.Error(err)
		}
	}
}

// Of a scan with a limit each split follows the one before: who dies between two takes
// the next one's task along.
func TestWhatAProcessThatDiedHasLeftIsReadByTheOneThatWaits(t *testing.T) {
	watching(t, nil, func(w *watched) {
		if w.pass(2 * time.Second); w.queue.idle() {
			t.Error("nothing to deliver, and two splits are not finished")
		}
		w.queue.mu.Lock()
		n := len(w.queue.tasks)
		w.queue.mu.Unlock()
		if n != 2 {
			t.Errorf("%d tasks, want 2, each once", n)
		}
	})
	watching(t, nil, func(w *watched) {
		for i := range 2 {
			if _, err := w.lease(i, "elsewhere/12").Finish(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: 3}}); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(2 * time.Second)
		done, err := w.queue.run(1, func(context.Context) {})
		if err != nil || done == nil || done.State != "done" || done.Rows != 6 || !w.queue.endedElsewhere() {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

func TestALedgerThatFallsSilentIsTold(t *testing.T) {
	watching(t, nil, func(w *watched) {
		w.ledger = ledger.New(downStore{}, "p", ledger.Options{})
		if told := w.pass(20 * time.Second); !strings.Contains(strings.Join(told, "\n"), "(the ledger does not answer: ") {
			t.Errorf("told %q", told)
		}
	})
}

// downStore never answers.
type downStore struct{ ledger.Store }

func (downStore) Get(ctx context.Context, _ ...ledger.Key) ([]ledger.Doc, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Whoever closes the pipe has what was committed and no more: only stdout is nobody's to
// go on with.
func TestAFIFOThatNobodyReadsAnyMoreIsNoSuccess(t *testing.T) {
	s := newScanTable(t, 400)
	fifo := filepath.Join(s.dir, "fifo")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Skip(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.scan(t.Context(), scanner{to: fifo, workers: 1})
		ended <- err
	}()
	reader, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	reader.Close()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "broken pipe; to go on: ") {
		t.Errorf("ended with %v, and rows are missing", err)
	}
}

func TestALedgerThatIsLockedIsToldOf(t *testing.T) {
	s := newScanTable(t, 4)
	out := filepath.Join(s.dir, "out.ndjson")
	id, _ := s.interrupted(out)
	db, err := bbolt.Open(filepath.Join(s.dir, "ledger.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	short := terminal.Patience{Silent: time.Millisecond, Most: 200 * time.Millisecond}
	var said output
	status := statusReport{file: s.file, env: s.environment(), now: time.Now, stderr: &said, patience: short}
	cancel := scanner{file: s.file, name: "ids", cancel: id, stderr: &said, env: s.environment(), patience: short}
	for name, run := range map[string]func() error{
		"status": func() error { return status.run(t.Context(), &bytes.Buffer{}) },
		"cancel": func() error { return cancel.runCancel(t.Context()) },
		"resume": func() error { _, err := s.scan(t.Context(), scanner{resume: id, patience: short}); return err },
		"scan":   func() error { _, err := s.scan(t.Context(), scanner{to: out + ".new", patience: short}); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), "ledger.db has not answered for 200ms; check what else has that file open") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if strings.Count(said.String(), "waiting for the ledger file:") != 2 {
		t.Errorf("said %q", said.String())
	}
}

// An empty value is a variable of a shell that is not set.
func TestAnEmptyFlagIsNoFlag(t *testing.T) {
	for _, flag := range []string{"--cancel", "--resume", "--to"} {
		cmd := scanCommand(assemble.Env{})
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs([]string{"-f", filepath.Join(t.TempDir(), "p.yaml"), "ids", flag, ""})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), flag+" is empty") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestACancelTakesNoFlagOfARun(t *testing.T) {
	for _, flags := range [][]string{{"--ids"}, {"--workers", "2"}, {"--to", "-"}, {"--resume", "id"}, {"--overwrite"}, {"--accept-changes"}} {
		if _, _, err := run(t, append([]string{"scan", "-f", "p.yaml", "all", "--cancel", "id"}, flags...)...); err == nil || !strings.Contains(err.Error(), "no other flag") {
			t.Errorf("%v: %v", flags, err)
		}
	}
}
