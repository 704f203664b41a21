package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
	soon := terminal.Patience{Silent: time.Millisecond, Most: 200 * time.Millisecond}
	out := filepath.Join(s.dir, "out.ndjson")
	for name, c := range map[string]scanner{
		"a new scan": {to: out, patience: soon}, "a resumed one": {resume: "ids-1", patience: soon}, "a cancelled one": {cancel: "ids-1", patience: soon},
	} {
		stderr, err := s.scan(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "the ledger firestore:my-project/(default) has not answered for 200ms; check LEDGER, the network and FIRESTORE_EMULATOR_HOST") ||
			strings.Contains(err.Error(), "to go on") || !strings.Contains(stderr, "waiting for the ledger firestore:my-project/(default)\n") {
			t.Errorf("%s: %v\n%s", name, err, stderr)
		}
	}
	if left, err := filepath.Glob(out); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	var stdout, stderr bytes.Buffer
	r := statusReport{file: s.file, env: s.environment(), now: time.Now, stderr: &stderr, patience: soon}
	if err := r.run(t.Context(), &stdout); err == nil || !strings.Contains(err.Error(), "has not answered") || !strings.Contains(stderr.String(), "waiting for") {
		t.Errorf("status: %v\n%s", err, stderr.String())
	}
}
