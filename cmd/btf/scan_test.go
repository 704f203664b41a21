package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const scanFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}}}
scans:
  ids: {table: orders, fetch: {maxRows: 10}, emit: {id: rowKey}, to: {log: {}}}
  bad: {table: orders, emit: {id: row.cf.absent}, to: {log: {}}}
`

// scanTable is a table orders of four tablets, and a file that scans it.
type scanTable struct {
	t        *testing.T
	emulator *emulator.Emulator
	file     string
	env      map[string]string
	dir      string
}

func newScanTable(t *testing.T, rows int) *scanTable {
	t.Helper()
	s := &scanTable{t: t, dir: t.TempDir()}
	s.file = filepath.Join(s.dir, "p.yaml")
	err := os.WriteFile(s.file, []byte(scanFile), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if s.emulator, err = emulator.New(emulator.Options{}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.emulator.Serve(l) })
	t.Cleanup(func() { s.emulator.Close(); serving.Wait() })
	s.env = map[string]string{"BIGTABLE_EMULATOR_HOST": l.Addr().String(), "LEDGER": "file:" + filepath.Join(s.dir, "ledger.db")}
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

// scan runs the command and returns what it says.
func (s *scanTable) scan(ctx context.Context, c scanner) (stderr string, err error) {
	var out bytes.Buffer
	c.file, c.stderr, c.get = s.file, &out, func(name string) string { return s.env[name] }
	if c.name == "" {
		c.name = "ids"
	}
	if c.workers == 0 {
		c.workers = 4
	}
	err = c.run(ctx)
	return out.String(), err
}

func (s *scanTable) status() string {
	s.t.Helper()
	var out bytes.Buffer
	r := statusReport{file: s.file, get: func(name string) string { return s.env[name] }, now: time.Now}
	if err := r.run(s.t.Context(), &out); err != nil {
		s.t.Fatal(err)
	}
	return out.String()
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
	stderr, err := s.scan(t.Context(), scanner{to: out})
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
	if _, err := s.scan(t.Context(), scanner{to: "-", stdout: &stdout}); err != nil || !slices.Equal(lines(stdout.String()), ids(0, 100)) {
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
	_, err := s.scan(ctx, scanner{to: "-", stdout: first, workers: 1})
	resume := regexp.MustCompile(`stopped; to go on: btf scan -f \S+ ids --to - --resume (ids-\w+)$`)
	if err == nil || !resume.MatchString(err.Error()) {
		t.Fatalf("stopped with %v", err)
	}
	n := len(lines(first.String()))
	if n == 0 || n == 400 {
		t.Fatalf("%d lines before the stop", n)
	}
	if got := s.status(); !strings.Contains(got, "(ids): running") || !strings.Contains(got, fmt.Sprintf(" %d rows", n)) || !strings.Contains(got, "SPLIT") {
		t.Errorf("status %s", got)
	}
	calls := s.emulator.Inject(emulator.Fault{Method: "SampleRowKeys", Code: codes.PermissionDenied}) // a resumed scan has no use for it
	defer s.emulator.RemoveFault(calls)
	var rest bytes.Buffer
	if stderr, err := s.scan(t.Context(), scanner{to: "-", stdout: &rest, resume: resume.FindStringSubmatch(err.Error())[1]}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if all := strings.Fields(first.String() + rest.String()); len(all) != 400 || !slices.Equal(lines(first.String()+rest.String()), ids(0, 400)) {
		t.Errorf("%d lines in all, want each of 400 once: what was read was committed", len(all))
	}
}

func TestResumingAFinishedScanSaysSo(t *testing.T) {
	s := newScanTable(t, 10)
	var out, again bytes.Buffer
	stderr, err := s.scan(t.Context(), scanner{to: "-", stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`scan (ids-\w+)`).FindStringSubmatch(stderr)[1]
	if stderr, err = s.scan(t.Context(), scanner{to: "-", stdout: &again, resume: id}); err != nil || !strings.Contains(stderr, "is done already") || again.Len() > 0 {
		t.Errorf("%v, %q, %q", err, stderr, again.String())
	}
}

func TestAScanThatFailsSaysWhy(t *testing.T) {
	s := newScanTable(t, 10)
	if _, err := s.scan(t.Context(), scanner{name: "bad", to: "-", stdout: &bytes.Buffer{}}); err == nil || !strings.Contains(err.Error(), "scans.bad.emit.id: no such key: absent") {
		t.Errorf("a record that cannot be made: %v", err)
	}
	if _, err := s.scan(t.Context(), scanner{name: "nope", to: "-", stdout: &bytes.Buffer{}}); err == nil || !strings.Contains(err.Error(), "it has: ids, bad") {
		t.Errorf("an unknown scan: %v", err)
	}
	if _, err := s.scan(t.Context(), scanner{resume: "gone"}); !errors.Is(err, ledger.ErrNotFound) {
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
	if _, err := s.scan(t.Context(), scanner{to: "-", stdout: w}); err != nil {
		t.Errorf("ended with %v", err)
	}
	if got := s.status(); !strings.Contains(got, "running, 0 of 4 splits done, 0 rows") || strings.Contains(got, fmt.Sprint(os.Getpid())) {
		t.Errorf("leases were not given back: %s", got)
	}
}

func TestTheShareOfARangeGrowsWithTheKey(t *testing.T) {
	key := rapid.SliceOfN(rapid.Byte(), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		r := rowrange.Range{Start: string(key.Draw(t, "start")), End: string(key.Draw(t, "end")), StartOpen: rapid.Bool().Draw(t, "open")}
		a, b := string(key.Draw(t, "a")), string(key.Draw(t, "b"))
		if r.IsEmpty() || a > b {
			t.Skip()
		}
		x, y := rangeShare(r, a), rangeShare(r, b)
		if x < 0 || y > 1 || x > y || math.IsNaN(x) || math.IsNaN(y) {
			t.Fatalf("%s: up to %q %f, up to %q %f", r, a, x, b, y)
		}
	})
	half := rangeShare(rowrange.Range{Start: "order#0", End: "order#2"}, "order#1")
	if math.Abs(half-0.5) > 0.01 {
		t.Errorf("half way is %f", half)
	}
}
