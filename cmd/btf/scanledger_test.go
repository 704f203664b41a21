package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
)

// silent listens, takes connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	var conns []net.Conn
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String()
}

func TestALedgerThatCannotBeReachedEndsTheCommandAndOffersNothing(t *testing.T) {
	s := newScanTable(t, 4)
	t.Setenv("FIRESTORE_EMULATOR_HOST", silent(t))
	s.env["LEDGER"] = "firestore:my-project/(default)"
	s.patience = terminal.Patience{Silent: time.Millisecond, Most: 200 * time.Millisecond}
	out := filepath.Join(s.dir, "out.ndjson")
	for name, run := range map[string]func() (string, error){
		"a new scan":      func() (string, error) { return s.scan(t.Context(), scanrun.Request{To: out}) },
		"a resumed one":   func() (string, error) { return s.scan(t.Context(), scanrun.Request{Resume: "ids-1"}) },
		"a cancelled one": func() (string, error) { return s.cancel("ids-1") },
	} {
		stderr, err := run()
		if err == nil || !strings.Contains(err.Error(), "the ledger firestore:my-project/(default) has not answered for 200ms; check LEDGER, the network and FIRESTORE_EMULATOR_HOST") ||
			strings.Contains(err.Error(), "to go on") || !strings.Contains(stderr, "waiting for the ledger firestore:my-project/(default)\n") {
			t.Errorf("%s: %v\n%s", name, err, stderr)
		}
	}
	if left, err := filepath.Glob(out); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	var stdout, stderr bytes.Buffer
	if err := s.tellStatus(&stdout, &stderr, time.Now); err == nil || !strings.Contains(err.Error(), "has not answered") || !strings.Contains(stderr.String(), "waiting for") {
		t.Errorf("status: %v\n%s", err, stderr.String())
	}
}
