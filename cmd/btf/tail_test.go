package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

const tailFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {columns: {status: string}}, other: {}}}
changes:
  feed: {table: orders, appProfile: default, maxRecordBytes: 1KiB, to: {pubsub: {topic: out}}}
`

// tailTable is a table with a change stream, and a file that reads it.
type tailTable struct {
	t        *testing.T
	emulator *emulator.Emulator
	conn     *grpc.ClientConn
	file     string
}

const tailTableName = "projects/my-project/instances/my-instance/tables/orders"

func newTailTable(t *testing.T) *tailTable {
	t.Helper()
	s := &tailTable{t: t, file: filepath.Join(t.TempDir(), "p.yaml")}
	err := os.WriteFile(s.file, []byte(tailFile), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var addr string
	s.emulator, s.conn, addr = functest.BigtableOverTCP(t, emulator.Options{})
	t.Setenv("BIGTABLE_EMULATOR_HOST", addr)
	_, err = adminpb.NewBigtableTableAdminClient(s.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/my-project/instances/my-instance", TableId: "orders", Table: &adminpb.Table{
			ColumnFamilies:     map[string]*adminpb.ColumnFamily{"cf": {}, "other": {}},
			ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *tailTable) set(row, family, value string) {
	s.t.Helper()
	_, err := bigtablepb.NewBigtableClient(s.conn).MutateRow(s.t.Context(), &bigtablepb.MutateRowRequest{
		TableName: tailTableName, RowKey: []byte(row), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{
			SetCell: &bigtablepb.Mutation_SetCell{FamilyName: family, ColumnQualifier: []byte("status"), TimestampMicros: 1000, Value: []byte(value)},
		}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Changes up to a time are printed as the function publishes them, or for a reader, and the
// flags choose among them.
//
// covers: CS-01
func TestTailPrintsChangesUpToATime(t *testing.T) {
	s := newTailTable(t)
	from := time.Now().UTC().Format(time.RFC3339Nano)
	s.set("a#1", "cf", "PAID")
	s.set("b#1", "other", "x")
	s.set("a#\x1b[2J", "other", strings.Repeat("x", 2000)) // too large
	s.set("a#\x1b[2J", "cf", "\u202e")
	to := time.Now().UTC().Format(time.RFC3339Nano)
	s.set("a#1", "cf", "LATER")
	tail := func(flags ...string) (lines []string, stderr string) {
		t.Helper()
		stdout, stderr, err := run(t, append([]string{"tail", "-f", s.file, "--from", from, "--to", to}, flags...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		return strings.Split(strings.TrimSuffix(stdout, "\n"), "\n"), stderr
	}

	var rows []string
	lines, stderr := tail("--json")
	for _, line := range lines {
		var record struct {
			RowKey  string
			Entries []struct{ Value string }
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		rows = append(rows, record.RowKey+"="+record.Entries[0].Value)
	}
	if want := []string{"a#1=PAID", "b#1=", "a#\x1b[2J=\u202e"}; !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
	if want := `btf: a change of row a#\x1b[2J at `; !strings.Contains(stderr, want) || !strings.Contains(stderr, "maxRecordBytes") {
		t.Errorf("stderr %q", stderr)
	}

	lines, _ = tail("feed", "--family", "cf", "--key-prefix", "a")
	var shown []string
	for _, line := range lines {
		if first, rest, found := strings.Cut(line, "Z  "); found && !strings.HasPrefix(line, " ") {
			if _, err := time.Parse(time.RFC3339Nano, first+"Z"); err != nil {
				t.Errorf("%v", err)
			}
			line = rest
		}
		shown = append(shown, line)
	}
	want := []string{
		"a#1  by emulator-cluster", `  set cf:status = "PAID"  at 1970-01-01T00:00:00.001Z`,
		`a#\x1b[2J  by emulator-cluster`, `  set cf:status = "\u202e"  at 1970-01-01T00:00:00.001Z`,
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "emulator-cluster", emulator.Cluster)
	}
	if !slices.Equal(shown, want) {
		t.Errorf("%q, want %q", shown, want)
	}
	if lines, _ = tail("orders", "--key-prefix", "none"); !slices.Equal(lines, []string{""}) {
		t.Errorf("%q", lines)
	}
}

// A tail goes on through a split until it is interrupted, which is no error.
func TestTailFollowsATableUntilItIsInterrupted(t *testing.T) {
	s := newTailTable(t)
	s.set("before", "cf", "x")
	time.Sleep(time.Millisecond) // commit times are to the microsecond
	ctx, interrupt := context.WithCancel(t.Context())
	var stdout, stderr output
	cmd := root(&stdout, &stderr)
	cmd.SetArgs([]string{"tail", "-f", s.file, "--from", "0s"})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	waitUntil(t, &stderr, done, func(text string) bool { return strings.Contains(text, "showing the changes") })
	s.set("a", "cf", "1")
	if err := s.emulator.SplitTablet(tailTableName, []byte("m")); err != nil {
		t.Fatal(err)
	}
	s.set("z", "cf", "2")
	waitUntil(t, &stdout, done, func(text string) bool { return strings.Contains(text, `"1"`) && strings.Contains(text, `"2"`) })
	interrupt()
	if err := <-done; err != nil || strings.Contains(stdout.String(), "before") {
		t.Errorf("%v, %s", err, stdout.String())
	}
}

// A reader of the output that goes away ends the tail, which is no error either.
func TestTailEndsWhenNobodyReadsItsOutput(t *testing.T) {
	s := newTailTable(t)
	from := time.Now().UTC().Format(time.RFC3339Nano)
	s.set("a", "cf", "1")
	reader, writer := io.Pipe()
	reader.Close()
	cmd := root(writer, io.Discard)
	cmd.SetArgs([]string{"tail", "-f", s.file, "--from", from, "--json"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
}

// That is noticed also while there are no changes.
func TestTailEndsWhenNobodyWaitsForItsOutput(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("whether a pipe has a reader is not known there")
	}
	s := newTailTable(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	cmd := root(writer, io.Discard)
	cmd.SetArgs([]string{"tail", "-f", s.file})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(t.Context()) }()
	reader.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

func TestTailSaysWhatIsWrong(t *testing.T) {
	s := newTailTable(t)
	for args, want := range map[string]string{
		"--from yesterday":                    "--from yesterday: neither a duration back",
		"--to x":                              "--to x: neither",
		"--from -1m --to -2m":                 "lies before the start",
		"--family nope":                       "has no family nope",
		"nope":                                "there are feed, orders",
		"--from 2001-01-01T00:00:00Z --to 0s": "the start, 2001-01-01T00:00:00Z, is refused: it must lie within what the table keeps",
	} {
		if stdout, _, err := run(t, append([]string{"tail", "-f", s.file}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) || stdout != "" {
			t.Errorf("%s: %v, %q", args, err, stdout)
		}
	}
}
