package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func (s *scanTable) cancel(id string) (stderr string, err error) {
	var out output
	err = scanrun.Cancel(s.t.Context(), s.console(io.Discard, &out), s.file, "ids", id)
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
	s.refused(l, out, scanrun.Request{Resume: id}, `"`+id+`" has failed: cancelled`)
	if _, err := s.cancel("ids-gone"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	stderr, err := s.scan(t.Context(), scanrun.Request{To: "-"})
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
	if err := scanrun.Run(t.Context(), scanrun.Console{Env: s.environment(), Stderr: stderr}, scanrun.Request{File: s.file, Name: "ids", Resume: id, Workers: 2}); err == nil || err.Error() != "scan "+id+" has failed: cancelled" {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}

func TestAScanNeedsNothingThatOnlyOtherScansNeed(t *testing.T) {
	s := newScanTable(t, 4)
	s.edit("named: {table: orders,", "named: {table: orders, onFailure: dead-letter,")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(s.dir, "none.json"))
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	if stderr, err := s.scan(t.Context(), scanrun.Request{To: "-"}); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	if _, err := s.scan(t.Context(), scanrun.Request{Name: "named", To: "-"}); err == nil || !strings.Contains(err.Error(), "connecting to Pub/Sub") {
		t.Errorf("the one that keeps dead letters: %v", err)
	}
}

// Somebody may make the topic, so what is done stays.
func TestATopicThatIsMissingEndsTheScanAndIsNamedInFull(t *testing.T) {
	s := newScanTable(t, 4)
	server := pstest.NewServer()
	defer server.Close()
	t.Setenv("PUBSUB_EMULATOR_HOST", server.Addr)
	_, err := s.scan(t.Context(), scanrun.Request{Name: "topic"})
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
	if _, err := s.scan(t.Context(), scanrun.Request{To: "-"}); err == nil {
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
	stderr, err := s.scan(s.t.Context(), scanrun.Request{To: out, Overwrite: true})
	if err == nil || s.read(out) != "old\n" {
		s.t.Fatalf("%v, %q\n%s", err, s.read(out), stderr)
	}
	return out, strings.Fields(stderr)[1]
}

// The file is emptied once the scan is planned, also where another process plans it.
func TestAnOutputThatIsToBeOverwrittenIsSoAfterAStop(t *testing.T) {
	s := newScanTable(t, 40)
	out, id := s.stoppedBeforeItOverwrites()
	if stderr, err := s.scan(t.Context(), scanrun.Request{Resume: id}); err != nil || !slices.Equal(lines(s.read(out)), ids(0, 40)) {
		t.Errorf("%v\n%s\n%s", err, stderr, s.read(out))
	}
}

func TestAFailedScanIsNotShownAsDone(t *testing.T) {
	s := newScanTable(t, 40)
	stderr, err := s.scan(t.Context(), scanrun.Request{Name: "bad", To: "-"})
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

func TestOnlyTheDefaultDirectoryOfALedgerIsMade(t *testing.T) {
	s := newScanTable(t, 4)
	dir := filepath.Join(s.dir, "nodir")
	s.env["LEDGER"] = "file:" + filepath.Join(dir, "x.db")
	out := filepath.Join(s.dir, "out.ndjson")
	if _, err := s.scan(t.Context(), scanrun.Request{To: out}); err == nil || !strings.Contains(err.Error(), "its directory "+dir+" does not exist") {
		t.Errorf("%v", err)
	}
	for _, path := range []string{dir, out} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want none", path, err)
		}
	}
	delete(s.env, "LEDGER")
	t.Chdir(s.dir)
	if stderr, err := s.scan(t.Context(), scanrun.Request{To: out}); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	if info, err := os.Stat(".btf"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf(".btf: %v, %v", info, err)
	}
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
		_, err := s.scan(t.Context(), scanrun.Request{To: fifo, Workers: 1})
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
	s.patience = terminal.Patience{Silent: time.Millisecond, Most: 200 * time.Millisecond}
	var said output
	for name, run := range map[string]func() error{
		"status": func() error { return s.tellStatus(io.Discard, &said, time.Now) },
		"cancel": func() error { return scanrun.Cancel(t.Context(), s.console(io.Discard, &said), s.file, "ids", id) },
		"resume": func() error { _, err := s.scan(t.Context(), scanrun.Request{Resume: id}); return err },
		"scan":   func() error { _, err := s.scan(t.Context(), scanrun.Request{To: out + ".new"}); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), "ledger.db has not answered for 200ms; check what else has that file open") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if strings.Count(said.String(), "waiting for the ledger file:") != 2 {
		t.Errorf("said %q", said.String())
	}
}

// Through planner, worker and ledger: a split of 300 rows of which a third is read is a
// third read, whatever its keys look like.
func TestStatusShowsHowMuchOfASplitIsRead(t *testing.T) {
	s := newScanTable(t, 1200) // in four tablets
	s.emulator.Inject(emulator.Fault{Method: "ReadRows", Cut: true, CutAfter: 100, Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &countWriter{lines: 400, stop: cancel}
	if _, err := s.scanTo(ctx, out, scanrun.Request{To: "-", Workers: 4}); err == nil || !strings.Contains(err.Error(), "to go on") {
		t.Fatalf("ended with %v", err)
	}
	read := regexp.MustCompile(`(?m)^ +\d+ +open +(\d+)% +100 `).FindAllStringSubmatch(s.status(), -1)
	if len(read) != 4 {
		t.Fatalf("status:\n%s", s.status())
	}
	for _, m := range read {
		if share, err := strconv.Atoi(m[1]); err != nil || share < 25 || share > 42 {
			t.Errorf("a split of which a third is read: %s%%", m[1])
		}
	}
}

// countWriter calls stop when it has that many lines.
type countWriter struct {
	mu    sync.Mutex
	lines int
	stop  func()
}

func (w *countWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lines -= bytes.Count(b, []byte("\n")); w.lines == 0 {
		w.stop()
	}
	return len(b), nil
}
