package main

import (
	"bytes"
	"cmp"
	"context"
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

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/status"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const scanFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
  gone: {families: {cf: {}}}
scans:
  ids: {table: orders, fetch: {maxRows: 10}, emit: {id: rowKey}, to: {log: {}}}
  bad: {table: orders, emit: {id: row.cf.absent}, to: {log: {}}}
  named: {table: orders, emit: {recordId: rowKey}, to: {log: {}}}
  missing: {table: gone, to: {log: {}}}
  archive: {table: orders, to: {gcs: {bucket: my-archive, format: ndjson}}}
  topic: {table: orders, to: {pubsub: {topic: somewhere}}}
`

// scanTable is a table orders of four tablets, and a file that scans it.
type scanTable struct {
	t        *testing.T
	emulator *emulator.Emulator
	file     string
	env      map[string]string
	dir      string
	patience terminal.Patience
}

func newScanTable(t *testing.T, rows int) *scanTable {
	t.Helper()
	s := &scanTable{t: t, dir: t.TempDir()}
	s.file = filepath.Join(s.dir, "p.yaml")
	err := os.WriteFile(s.file, []byte(scanFile), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var addr string
	s.emulator, _, addr = functest.BigtableOverTCP(t, emulator.Options{})
	s.env = map[string]string{"BIGTABLE_EMULATOR_HOST": addr, "LEDGER": "file:" + filepath.Join(s.dir, "ledger.db")}
	s.fill(rows)
	return s
}

func (s *scanTable) fill(rows int) {
	conn, err := s.emulator.Dial(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	create := &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders",
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"cf": {}}},
	}
	for i := 1; i < 4; i++ {
		create.InitialSplits = append(create.InitialSplits, &adminpb.CreateTableRequest_Split{Key: fmt.Appendf(nil, "k%04d", i*rows/4)})
	}
	if _, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(s.t.Context(), create); err != nil {
		s.t.Fatal(err)
	}
	for i := range rows {
		_, err := bigtablepb.NewBigtableClient(conn).MutateRow(s.t.Context(), &bigtablepb.MutateRowRequest{
			TableName: create.Parent + "/tables/orders", RowKey: fmt.Appendf(nil, "k%04d", i),
			Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
				FamilyName: "cf", ColumnQualifier: []byte("status"), TimestampMicros: 1000, Value: []byte("PAID"),
			}}}},
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// environment is what a shell with the table's variables gives to a command.
func (s *scanTable) environment() assemble.Env {
	s.t.Helper()
	env, err := assemble.ReadEnv(func(name string) string { return s.env[name] })
	if err != nil {
		s.t.Fatal(err)
	}
	return env
}

func (s *scanTable) console(stdout, stderr io.Writer) scanrun.Console {
	return scanrun.Console{Env: s.environment(), Stdout: stdout, Stderr: stderr, Patience: s.patience}
}

// scan runs a scan and returns what it says.
func (s *scanTable) scan(ctx context.Context, r scanrun.Request) (stderr string, err error) {
	return s.scanTo(ctx, io.Discard, r)
}

func (s *scanTable) scanTo(ctx context.Context, stdout io.Writer, r scanrun.Request) (stderr string, err error) {
	var out output
	err = scanrun.Run(ctx, s.console(stdout, &out), s.request(r))
	return out.String(), err
}

// request is r for the table's scan ids, if it names no other.
func (s *scanTable) request(r scanrun.Request) scanrun.Request {
	r.File, r.Name, r.Workers = cmp.Or(r.File, s.file), cmp.Or(r.Name, "ids"), cmp.Or(r.Workers, 4)
	return r
}

func (s *scanTable) status() string {
	s.t.Helper()
	var out bytes.Buffer
	if err := s.tellStatus(&out, io.Discard, time.Now); err != nil {
		s.t.Fatal(err)
	}
	return out.String()
}

func (s *scanTable) tellStatus(stdout, stderr io.Writer, now func() time.Time) error {
	return printStatus(s.t.Context(), status.Config{File: s.file, Env: s.environment(), Now: now, Notices: stderr, Patience: s.patience}, stdout)
}

func ids(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf(`{"id":"k%04d"}`, i))
	}
	return out
}

// lines returns the lines of a text, in order and each once.
func lines(text string) []string {
	return slices.Compact(slices.Sorted(slices.Values(strings.Fields(text))))
}

func TestScanWritesEveryRowOnce(t *testing.T) {
	s := newScanTable(t, 100)
	out := filepath.Join(s.dir, "out.ndjson")
	stderr, err := s.scan(t.Context(), scanrun.Request{To: out})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	got, err := os.ReadFile(out)
	if err != nil || len(strings.Fields(string(got))) != 100 || !slices.Equal(lines(string(got)), ids(0, 100)) {
		t.Errorf("%d lines, %v", len(strings.Fields(string(got))), err)
	}
	if !strings.Contains(stderr, "100 rows, 100 records, 0 dropped") {
		t.Errorf("said %s", stderr)
	}
	if got := s.status(); !strings.Contains(got, "(ids): done, 4 of 4 splits done, 100 rows") {
		t.Errorf("status %s", got)
	}
	var stdout bytes.Buffer
	if _, err := s.scanTo(t.Context(), &stdout, scanrun.Request{To: "-"}); err != nil || !slices.Equal(lines(stdout.String()), ids(0, 100)) {
		t.Errorf("%d lines on stdout, %v", len(lines(stdout.String())), err)
	}
}

// stopWriter is an output that is told to stop when the first line comes.
type stopWriter struct {
	bytes.Buffer
	stop func()
}

func (w *stopWriter) Write(b []byte) (int, error) { w.stop(); return w.Buffer.Write(b) }

// covers: SC-05, SC-07
func TestCtrlCCommitsAndResumeGoesOn(t *testing.T) {
	s := newScanTable(t, 400)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := &stopWriter{stop: cancel}
	_, err := s.scanTo(ctx, first, scanrun.Request{To: "-", Workers: 1})
	resume := regexp.MustCompile(`^stopped; to go on: btf scan -f \S+ ids --resume (ids-\w+)$`)
	if err == nil || !resume.MatchString(err.Error()) {
		t.Fatalf("stopped with %v", err)
	}
	n := len(lines(first.String()))
	if n == 0 || n == 400 {
		t.Fatalf("%d lines before the stop", n)
	}
	if got := s.status(); !strings.Contains(got, "(ids): stopped") || !strings.Contains(got, fmt.Sprintf(" %d rows", n)) || !strings.Contains(got, "SPLIT") {
		t.Errorf("status %s", got)
	}
	calls := s.emulator.Inject(emulator.Fault{Method: "SampleRowKeys", Code: codes.PermissionDenied}) // a resumed scan has no use for it
	defer s.emulator.RemoveFault(calls)
	var rest bytes.Buffer
	if stderr, err := s.scanTo(t.Context(), &rest, scanrun.Request{To: "-", Resume: resume.FindStringSubmatch(err.Error())[1]}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if all := strings.Fields(first.String() + rest.String()); len(all) != 400 || !slices.Equal(lines(first.String()+rest.String()), ids(0, 400)) {
		t.Errorf("%d lines in all, want each of 400 once: what was read was committed", len(all))
	}
}

func TestResumingIntoANewFileSaysWhatIsNotInIt(t *testing.T) {
	s := newScanTable(t, 400)
	old := filepath.Join(s.dir, "old.ndjson")
	id, _ := s.interrupted(old)
	before, err := os.ReadFile(old)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(s.dir, "new.ndjson")
	stderr, err := s.scan(t.Context(), scanrun.Request{To: out, Resume: id})
	want := fmt.Sprintf("new.ndjson is new: %d rows that the scan has delivered before are not in it\n", len(lines(string(before))))
	if err != nil || !strings.Contains(stderr, want) {
		t.Errorf("%v\n%s, want %q", err, stderr, want)
	}
}

func TestResumingAFinishedScanSaysSo(t *testing.T) {
	s := newScanTable(t, 10)
	var out, again bytes.Buffer
	stderr, err := s.scanTo(t.Context(), &out, scanrun.Request{To: "-"})
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`scan (ids-\w+)`).FindStringSubmatch(stderr)[1]
	if stderr, err = s.scanTo(t.Context(), &again, scanrun.Request{To: "-", Resume: id}); err != nil || !strings.Contains(stderr, "is done already") || again.Len() > 0 {
		t.Errorf("%v, %q, %q", err, stderr, again.String())
	}
}

func TestAScanThatFailsSaysWhy(t *testing.T) {
	s := newScanTable(t, 10)
	if _, err := s.scan(t.Context(), scanrun.Request{Name: "bad", To: "-"}); err == nil || !strings.Contains(err.Error(), "scans.bad.emit.id: no such key: absent") {
		t.Errorf("a record that cannot be made: %v", err)
	}
	if _, err := s.scan(t.Context(), scanrun.Request{Resume: "gone"}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an unknown id: %v", err)
	}
	if got := s.status(); !strings.Contains(got, "no such key: absent") {
		t.Errorf("status %s", got)
	}
}

func TestAClosedPipeEndsQuietly(t *testing.T) {
	s := newScanTable(t, 400)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	for _, to := range []string{"-", ""} { // the scan's own sink is stdout, too
		stderr, err := s.scanTo(t.Context(), w, scanrun.Request{To: to})
		if err != nil || strings.Count(stderr, "\n") != 1 {
			t.Errorf("--to %q ended with %v and %q, want no more than the scan's id", to, err, stderr)
		}
		id := strings.Fields(stderr)[1]
		if got := s.status(); !strings.Contains(got, id+" (ids): stopped, 0 of 4 splits done, 0 rows") || strings.Contains(got, fmt.Sprint(os.Getpid())) {
			t.Errorf("leases were not given back: %s", got)
		}
	}
}

func TestWhatAPolicyDropsIsToldWithItsReason(t *testing.T) {
	s := newScanTable(t, 4)
	text := strings.Replace(scanFile, "bad: {table: orders,", "bad: {table: orders, onFailure: drop,", 1)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stderr, err := s.scan(t.Context(), scanrun.Request{Name: "bad", To: "-"})
	if err != nil || !strings.Contains(stderr, "4 rows, 0 records, 4 dropped") || strings.Count(stderr, "no such key") != 1 ||
		!strings.Contains(stderr, "\n4 times: record cannot be delivered: scans.bad.emit.id: no such key: absent\n") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

func TestAScanThatCannotBePlannedNowSaysWhyAtOnce(t *testing.T) {
	s := newScanTable(t, 4)
	out := filepath.Join(s.dir, "out.ndjson")
	fault := s.emulator.Inject(emulator.Fault{Method: "SampleRowKeys", Code: codes.PermissionDenied})
	stderr, err := s.scan(t.Context(), scanrun.Request{To: out})
	if err == nil || !strings.Contains(err.Error(), "the scan could not be planned: sampling the keys of table orders") ||
		!strings.Contains(err.Error(), "PermissionDenied") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%v\n%s", err, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an output of nothing: %v", err)
	}
	s.emulator.RemoveFault(fault)
	resume := regexp.MustCompile(`--resume (ids-\w+)$`).FindStringSubmatch(fmt.Sprint(err))
	if resume == nil {
		t.Fatalf("%v does not say how to go on", err)
	}
	if stderr, err := s.scan(t.Context(), scanrun.Request{To: out, Resume: resume[1]}); err != nil || !strings.Contains(stderr, "4 rows") {
		t.Errorf("going on: %v\n%s", err, stderr)
	}
}

func TestAMistakeIsToldBeforeAnythingIsWritten(t *testing.T) {
	s := newScanTable(t, 4)
	s.env["LEDGER"] = "file:" + filepath.Join(s.dir, "new", "ledger.db")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte(strings.Replace(scanFile, "emit: {id: rowKey}", "emit: {id: rowkey}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(s.dir, "out.ndjson")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(s.dir, "none.json"))
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	for name, c := range map[string]struct {
		scanrun.Request
		noEmulator bool
		want       string
	}{
		"a misspelt scan":             {scanrun.Request{Name: "idz", To: out}, false, `scan "idz": pipeline orders has no scan of this name; it has: ids, bad, named, missing, archive, topic`},
		"a sink that is not served":   {scanrun.Request{Name: "archive"}, false, "not to gcs; --to FILE writes them to a file"},
		"a directory":                 {scanrun.Request{To: s.dir}, false, "is a directory"},
		"a directory that is missing": {scanrun.Request{To: filepath.Join(s.dir, "no", "out")}, false, "no such file or directory"},
		"an unknown id":               {scanrun.Request{To: out, Resume: "ids-gone"}, false, `resuming: "ids-gone": nothing has run yet here`},
		"no workers":                  {scanrun.Request{To: out, Workers: -1}, false, "--workers must be at least 1"},
		"ids for a sink":              {scanrun.Request{IDs: true}, false, "--ids is for --to"},
		"ids beside a field":          {scanrun.Request{Name: "named", To: out, IDs: true}, false, "a field recordId of their own"},
		"nothing to overwrite":        {scanrun.Request{To: "-", Overwrite: true}, false, "--overwrite is for a file"},
		"overwriting while resuming":  {scanrun.Request{To: out, Overwrite: true, Resume: "ids-gone"}, false, "would lose what the scan has written before"},
		"an expression":               {scanrun.Request{File: broken, To: out}, false, "broken.yaml:9:57: error: scans.ids.emit.id"},
		"no credentials":              {scanrun.Request{To: out}, true, "BIGTABLE_EMULATOR_HOST=HOST:PORT names an emulator"},
		"no credentials for Pub/Sub":  {scanrun.Request{Name: "topic"}, false, "PUBSUB_EMULATOR_HOST=HOST:PORT names an emulator"},
	} {
		host := s.env["BIGTABLE_EMULATOR_HOST"]
		if c.noEmulator {
			delete(s.env, "BIGTABLE_EMULATOR_HOST")
		}
		stderr, err := s.scan(t.Context(), c.Request)
		s.env["BIGTABLE_EMULATOR_HOST"] = host
		if err == nil || !strings.Contains(err.Error(), c.want) || stderr != "" {
			t.Errorf("%s: %v\n%s\nwant %q", name, err, stderr, c.want)
		}
		if left, err := filepath.Glob(filepath.Join(s.dir, "*")); err != nil || !slices.Equal(left, []string{s.file}) {
			t.Fatalf("%s: left %q, %v", name, left, err)
		}
	}
}

func TestAFileThatHoldsDataIsOverwrittenOnlyWhereThatIsAskedFor(t *testing.T) {
	s := newScanTable(t, 10)
	out := filepath.Join(s.dir, "out.ndjson")
	if err := os.WriteFile(out, []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := func(want ...string) {
		t.Helper()
		got, err := os.ReadFile(out)
		if err != nil || !slices.Equal(lines(string(got)), want) {
			t.Fatalf("the file holds %q, %v", got, err)
		}
	}
	if _, err := s.scan(t.Context(), scanrun.Request{To: out}); err == nil || !strings.Contains(err.Error(), "holds data: --overwrite empties it") {
		t.Errorf("without --overwrite: %v", err)
	}
	want("precious")
	if _, err := s.scan(t.Context(), scanrun.Request{Name: "missing", To: out, Overwrite: true}); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("a scan that cannot be planned: %v", err)
	}
	want("precious")
	if stderr, err := s.scan(t.Context(), scanrun.Request{To: out, Overwrite: true}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	want(ids(0, 10)...)
}

func TestLinesCarryRecordIDsWhereThatIsAskedFor(t *testing.T) {
	s := newScanTable(t, 8)
	var out bytes.Buffer
	if stderr, err := s.scanTo(t.Context(), &out, scanrun.Request{To: "-", IDs: true}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	line := regexp.MustCompile(`^\{"recordId":"([0-9a-f]{32})","id":"k\d{4}"\}$`)
	seen := map[string]bool{}
	for _, l := range strings.Fields(out.String()) {
		m := line.FindStringSubmatch(l)
		if m == nil || seen[m[1]] {
			t.Fatalf("line %s, whose id was seen: %t", l, m != nil)
		}
		seen[m[1]] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d ids of 8 rows", len(seen))
	}
	if got, want := scanrun.Resumption("my file", "ids", "ids-1"), "btf scan -f 'my file' ids --resume ids-1"; got != want {
		t.Errorf("resumed by %s, want %s", got, want)
	}
}

// interrupted stops a scan of 400 rows on its way, as if it had written to a file, and
// returns its id and the ledger.
func (s *scanTable) interrupted(out string) (string, *ledger.Ledger) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	first := &stopWriter{stop: cancel}
	_, err := s.scanTo(ctx, first, scanrun.Request{To: "-", Workers: 1})
	m := regexp.MustCompile(`--resume (ids-\w+)$`).FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		s.t.Fatalf("stopped with %v", err)
	}
	if err := os.WriteFile(out, first.Bytes(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	l, _, err := setup.OpenLedger(s.t.Context(), s.environment(), &pipeline.Pipeline{Name: "orders"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.ran(l, m[1], ran{To: out, Workers: 1}, "")
	return m[1], l
}

// lease lets somebody hold a split that is not finished.
func (s *scanTable) lease(l *ledger.Ledger, id string, holder ledger.Holder) *ledger.Lease {
	s.t.Helper()
	scan, err := l.Scan(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	tasks, err := l.Unfinished(s.t.Context(), scan)
	if err != nil || len(tasks) == 0 {
		s.t.Fatalf("tasks %v, %v", tasks, err)
	}
	lease, err := l.Acquire(s.t.Context(), tasks[0], holder)
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// killed returns the name in leases of a process that was killed just now.
func killed(t *testing.T) ledger.Holder {
	t.Helper()
	if !process.IsCertain() {
		t.Skip("this system does not tell for certain whether a process has died")
	}
	return functest.Killed(t, process.Of)
}

func TestResumingDoesNotWaitForTheDead(t *testing.T) {
	name := killed(t)
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	dead := s.lease(l, id, name)
	if got := s.status(); !strings.Contains(got, name.String()+" (has died)") {
		t.Errorf("status %s", got)
	}
	began := time.Now()
	stderr, err := s.scan(t.Context(), scanrun.Request{To: out, Resume: id})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if took := time.Since(began); took > ledger.LeaseTime/2 {
		t.Errorf("took %s: the lease of a dead process was waited for", took)
	}
	got, err := os.ReadFile(out)
	if err != nil || len(strings.Fields(string(got))) != 400 || !slices.Equal(lines(string(got)), ids(0, 400)) {
		t.Errorf("%d lines, %v", len(strings.Fields(string(got))), err)
	}
	if err := dead.Commit(t.Context(), ledger.Progress{}); !errors.Is(err, ledger.ErrFinished) && !errors.Is(err, ledger.ErrLost) {
		t.Errorf("the dead one commits: %v", err)
	}
}

// untilWriter is told to stop once what was written to it holds a text.
type untilWriter struct {
	bytes.Buffer
	text string
	stop func()
}

func (w *untilWriter) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if strings.Contains(w.String(), w.text) {
		w.stop()
	}
	return n, err
}

func TestWhoHoldsASplitIsToldWhileItIsWaitedFor(t *testing.T) {
	s := newScanTable(t, 400)
	out := filepath.Join(s.dir, "out.ndjson")
	id, l := s.interrupted(out)
	lease := s.lease(l, id, "elsewhere/12")
	if got := s.status(); !regexp.MustCompile(`elsewhere/12 \(for 1m(29|30)s\)`).MatchString(got) {
		t.Errorf("status %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &untilWriter{text: "is leased by elsewhere/12, for 1m", stop: cancel}
	if err := scanrun.Run(ctx, scanrun.Console{Env: s.environment(), Stderr: stderr}, scanrun.Request{File: s.file, Name: "ids", To: out, Resume: id, Workers: 2}); err == nil || !strings.Contains(err.Error(), "stopped; to go on") {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if err := lease.Commit(t.Context(), ledger.Progress{}); err != nil {
		t.Errorf("the holder, of which nothing is known, was overtaken: %v", err)
	}
}

func TestStatusMakesNoLedger(t *testing.T) {
	s := newScanTable(t, 4)
	dir := filepath.Join(s.dir, "new")
	s.env["LEDGER"] = "file:" + filepath.Join(dir, "ledger.db")
	if got := s.status(); !strings.Contains(got, "nothing of pipeline orders has run yet: there is no ledger file:") {
		t.Errorf("status %s", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the ledger's directory: %v, want none", err)
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
