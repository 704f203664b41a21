package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// After a file was put back from a copy, the command has each partition go on at its place in
// the copy, and a reader from before the restore cannot move it. It makes no ledger.
func TestRestoredGoesOnFromTheBackup(t *testing.T) {
	place := filepath.Join(t.TempDir(), "ledger.db")
	t.Setenv("LEDGER", "file:"+place)
	in(t, map[string]string{"p.yaml": tailFile})
	refused := func(want string, args ...string) {
		t.Helper()
		if out, _, err := run(t, append([]string{"restored", "-f", "p.yaml"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v, want %q", out, err, want)
		}
	}
	refused("there is no ledger file:" + place)
	if _, err := os.Stat(place); err == nil {
		t.Error("it has made a ledger")
	}
	l, closer, err := assemble.OpenLedger(t.Context(), ledger.Location{Path: place}, "orders", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closer()
	refused("has no change stream")
	refused("has no change stream nothing", "nothing")
	id := ledger.StreamID{Name: "feed", Table: tailTableName}
	if err := beginStream(t, l, id, "c"); err != nil {
		t.Fatal(err)
	}
	backup, err := os.ReadFile(place)
	if err != nil {
		t.Fatal(err)
	}
	was, err := l.Topology(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.AcquirePartition(t.Context(), was.Partitions[0], "host/1")
	if err != nil {
		t.Fatal(err)
	}
	at := &changestream.Position{Token: "y", LowWatermark: was.Stream.Start}
	if err := lease.Commit(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(place, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, err := run(t, "restored", "-f", "p.yaml", "feed")
	if err != nil || !strings.HasPrefix(out, "change stream feed goes on: 2 partitions, the oldest position is from ") {
		t.Fatalf("%q %v\n%s", out, err, stderr)
	}
	if err := lease.Commit(t.Context(), at); err == nil {
		t.Error("a reader from before the restore commits")
	}
	now, err := l.Topology(t.Context(), id)
	if err != nil || len(now.Partitions) != 2 {
		t.Fatalf("%v, %v", now, err)
	}
	for _, p := range now.Partitions {
		if len(p.Tokens) > 0 || !p.Start.Equal(was.Stream.Start) {
			t.Errorf("%v is at %v", p.Range, p.Opening)
		}
	}
}
