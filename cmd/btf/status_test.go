package main

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/status"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Status shows which keys of a change stream are read, who reads them, which wait and which
// are in no partition; as JSON, too.
func TestStatusShowsChangeStreams(t *testing.T) {
	place := filepath.Join(t.TempDir(), "ledger.db")
	t.Setenv("LEDGER", "file:"+place)
	in(t, map[string]string{"p.yaml": tailFile})
	shown := func(flags ...string) string {
		t.Helper()
		out, stderr, err := run(t, append([]string{"status", "-f", "p.yaml"}, flags...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		return out
	}
	if got := shown("--json"); got != `{"pipeline":"orders","ledgers":[{"ledger":"file:`+place+`","exists":false,"scans":[],"changes":[]}]}`+"\n" {
		t.Errorf("without a ledger: %s", got)
	}
	l, closer, err := assemble.OpenLedger(t.Context(), ledger.Location{Path: place}, "orders", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closer()
	id := ledger.StreamID{Name: "feed", Table: tailTableName}
	if err := beginStream(t, l, ledger.StreamID{Name: "other", Table: tailTableName}); err != nil {
		t.Fatal(err)
	}
	if got, want := shown(), "change stream feed of "+tailTableName+": no tick has begun it yet\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := beginStream(t, l, id, "c", "f", "\x1b"); err != nil {
		t.Fatal(err)
	}
	topology, err := l.Topology(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range topology.Partitions {
		lease, err := l.AcquirePartition(t.Context(), p, "host/1")
		if err != nil {
			t.Fatal(err)
		}
		if p.Range.Start != "c" { // "c" stays held; "f" closes and waits for its other parent
			continue
		}
		token := changestream.Token{Range: p.Range, Value: "x"}
		at := &changestream.Position{Token: "y", LowWatermark: time.Now()}
		if _, err := lease.Close(t.Context(), []changestream.Successor{{Target: rowrange.Range{Start: "c"}, Token: token}}, at); err != nil {
			t.Fatal(err)
		}
	}

	got := shown()
	for _, want := range []string{
		"change stream feed of " + tailTableName + ": 3 partitions, the oldest position is from ", " ago\n",
		"  keys [##############################???????????????###############]  # read, ? waiting\n",
		"  [c, *) waits for other parents, has the tokens of [c, f), the last came 0s ago\n",
		"  KEYS ", "POSITION ", `(*, \x1b)`, `[\x1b, c)`, "[f, *) ", "host/1 (for 1m", "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	var all status.Report
	if err := json.Unmarshal([]byte(shown("--json")), &all); err != nil {
		t.Fatal(err)
	}
	if s := all.Ledgers[0].Changes[0]; !all.Ledgers[0].Exists || s.Coverage != "##?#" || len(s.Partitions) != 3 || s.Partitions[0].Holder != "host/1" ||
		s.Partitions[0].LeaseSeconds < 60 || len(s.Pending) != 1 {
		t.Errorf("%+v", all)
	}
}

// printStatus prints what btf status prints without --json.
func printStatus(ctx context.Context, cfg status.Config, stdout io.Writer) error {
	report, err := status.Read(ctx, cfg)
	if err != nil {
		return err
	}
	return report.Print(stdout)
}

// beginStream begins a stream whose partitions are cut at keys.
func beginStream(t *testing.T, l *ledger.Ledger, id ledger.StreamID, cuts ...string) error {
	ctx := t.Context()
	if _, err := l.BeginStream(ctx, id, func(now time.Time) (time.Time, error) { return now, nil }); err != nil {
		return err
	}
	lease, err := l.AcquireStream(ctx, id, "test")
	if err != nil {
		return err
	}
	topology, err := l.Topology(ctx, id)
	if err != nil {
		return err
	}
	r := changestream.Reconcile(topology.Compare(rowrange.Cut(rowrange.Range{}, cuts)), changestream.DefaultGraces(), topology.ReadAt)
	if _, err := lease.Reconcile(ctx, topology, r); err != nil {
		return err
	}
	return lease.Release(ctx, nil)
}

// A scan has the same numbers in JSON as for a reader.
func TestStatusAsJSONHasTheScans(t *testing.T) {
	s := newScanTable(t, 40)
	for name, value := range s.env {
		t.Setenv(name, value)
	}
	if _, stderr, err := run(t, "scan", "-f", s.file, "ids", "--to", "-"); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	out, stderr, err := run(t, "status", "-f", s.file, "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var got status.Report
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	scan := got.Ledgers[0].Scans[0]
	scan.ID, scan.CreatedAt, scan.Splits, scan.Done = "", time.Time{}, scan.Splits-scan.Done, 0
	if !reflect.DeepEqual(scan, status.Scan{Name: "ids", State: "done", Rows: 40, Records: 40}) || len(got.Ledgers[0].Changes) != 0 {
		t.Errorf("%s", out)
	}
}
