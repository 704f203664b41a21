package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/demo"
)

// output collects what a command prints while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// covers: SC-01
func TestDemoWritesScansAndFollowsEveryFlight(t *testing.T) {
	var stdout, stderr output
	cmd := root(&stdout, &stderr)
	cmd.SetArgs([]string{"demo", "--json"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var got demo.Result
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatalf("stdout is no JSON object: %q: %v", stdout.String(), err)
	}
	want := demo.Result{
		Published: 2000, Acked: 2000, Applied: 2000, Rows: 2000, Seconds: got.Seconds,
		Scanned: 2000, Splits: 12, Workers: 3, ScanSeconds: got.ScanSeconds,
		Changes: 2000, ChangesRepeated: got.ChangesRepeated, ReadersKilled: 1, Closed: 3, ChangeSeconds: got.ChangeSeconds,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// covers: EMU-12
func TestCbtReadsTheRowsOfAHeldDemo(t *testing.T) {
	if _, err := exec.LookPath("cbt"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("cbt is not installed, and CI must have it: ", err)
		}
		t.Skip("cbt is not installed: ", err)
	}
	var stdout, stderr output
	cmd := root(&stdout, &stderr)
	cmd.SetArgs([]string{"demo", "--hold"})
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	host := waitForText(t, &stderr, regexp.MustCompile(`BIGTABLE_EMULATOR_HOST=(\S+)`), done)

	cbt := exec.CommandContext(ctx, "cbt", "-project", "demo", "-instance", "demo", "count", "flights")
	cbt.Env = append(os.Environ(), "BIGTABLE_EMULATOR_HOST="+host)
	if out, err := cbt.CombinedOutput(); err != nil || !strings.Contains(string(out), "2000") {
		t.Errorf("cbt count: %v\n%s", err, out)
	}
	cbt = exec.CommandContext(ctx, "cbt", "-project", "demo", "-instance", "demo", "lookup", "flights", "LAX#BNA#2001/01/01 06:55")
	cbt.Env = append(os.Environ(), "BIGTABLE_EMULATOR_HOST="+host)
	if out, err := cbt.CombinedOutput(); err != nil || !strings.Contains(string(out), "flight:destination") || !strings.Contains(string(out), `"BNA"`) {
		t.Errorf("cbt lookup: %v\n%s", err, out)
	}
	interrupt()
	if err := <-done; err != nil {
		t.Errorf("an interrupt ends the demo with %v", err)
	}
}

// waitForText returns the first group of what a running command prints.
func waitForText(t *testing.T, out *output, re *regexp.Regexp, done <-chan error) string {
	t.Helper()
	var m []string
	waitUntil(t, out, done, func(text string) bool {
		m = re.FindStringSubmatch(text)
		return m != nil
	})
	return m[1]
}

// waitUntil waits until what a running command prints is as wanted.
func waitUntil(t *testing.T, out *output, done <-chan error, wanted func(text string) bool) {
	t.Helper()
	for range 1200 {
		if wanted(out.String()) {
			return
		}
		select {
		case err := <-done:
			t.Fatalf("it ended: %v\n%s", err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("it does not say what it should:\n%s", out)
}
