package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// start starts a process and returns its lines of stdout as they come.
func start(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// expectLine reads lines until one begins with want.
func expectLine(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	var seen []string
	for line := range lines {
		if strings.HasPrefix(line, want) {
			return
		}
		seen = append(seen, line)
	}
	t.Fatalf("no line begins with %q:\n%s", want, strings.Join(seen, "\n"))
}

func TestExplainReadsAPushBodyAndABarePayload(t *testing.T) {
	in(t, map[string]string{
		"f.yaml":        tested,
		"bare":          `{"type":"order","id":"a","at":"2026-08-30T10:15:30Z","status":"\u001b[31mPAID\u202e"}`,
		"push.json":     `{"message":{"data":"eyJ0eXBlIjoib3RoZXIifQ==","messageId":"m-1","publishTime":"2026-08-30T10:15:31.5Z"},"subscription":"s"}`,
		"timeless.json": `{"message":{"data":"eyJ0eXBlIjoib3RoZXIifQ==","messageId":"m-1"},"subscription":"s"}`,
		"bad.json":      `{"message":{"data":"e30"},"subscription":"s"}`,
		"lines":         "x\ny\n",
	})
	for _, c := range []struct{ from, want string }{
		{"bare", `a bare payload: message "test", published 2026-01-01T00:00:00Z
record 0, 85 bytes
  order: takes it, 1 row
row orders "order#a"
  set cf:status = "\x1b[31mPAID\u202e" @ 2026-08-30T10:15:30.000Z
`},
		{"push.json", `a push body: message "m-1", published 2026-08-30T10:15:31.5Z
record 0, 16 bytes: no mapping takes it, and onUnmatched is fail
  order: no, because f.yaml:9:13: event.type == "order" does not hold
`},
		{"timeless.json", `a push body: message "m-1", published at an unknown time
record 0, 16 bytes: no mapping takes it, and onUnmatched is fail
  order: no, because f.yaml:9:13: event.type == "order" does not hold
`},
		{"lines", `a bare payload: message "test", published 2026-01-01T00:00:00Z
record 0, 4 bytes: rejected: invalid JSON at offset 0; onFailure is dead-letter
`},
	} {
		if got, _, err := run(t, "explain", "f.yaml", c.from); err != nil || got != c.want {
			t.Errorf("%s: %v, got\n%swant\n%s", c.from, err, got, c.want)
		}
	}
	for _, args := range [][]string{{"f.yaml", "bad.json"}, {"f.yaml", "missing"}, {"missing.yaml", "bare"}} {
		if got, _, err := run(t, "explain", args[0], args[1]); err == nil || got != "" {
			t.Errorf("%s: %v, %q", args, err, got)
		}
	}
}

func TestExplainSaysWhatItsArgumentsAre(t *testing.T) {
	in(t, map[string]string{"f.yaml": tested, "scans.yaml": scansOnly})
	for _, c := range []struct{ file, message, want string }{
		{"f.yaml", `{"type":"order"}`, "MESSAGE is a file, or - for stdin, and not the message itself"},
		{"f.yaml", ` [{"type":"order"}]`, "MESSAGE is a file, or - for stdin"},
		{"f.yaml", "missing.json", "reading the message: open missing.json"},
		{"scans.yaml", "f.yaml", "no write section, so that no message comes to it; to see what scan ids makes of a row, write an entry of tests with row, and run btf test"},
	} {
		if _, _, err := run(t, "explain", c.file, c.message); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.file, c.message, err, c.want)
		}
	}
}

func TestExplainWritesATestThatPasses(t *testing.T) {
	in(t, map[string]string{"f.yaml": tested})
	for i, message := range []string{
		`{"type":"order","id":"a","at":"2026-08-30T10:15:30Z","status":"\u001b[31mPAID"}`,
		`{"type":"order","id":"#","at":"2026-08-30T10:15:30Z","status":"x"}`,
		`{"type":"other"}`,
		"\xff\x00",
	} {
		var stdout, stderr output
		cmd := root(&stdout, &stderr)
		cmd.SetIn(strings.NewReader(message))
		cmd.SetArgs([]string{"explain", "--as-test", "f.yaml", "-"})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		file := fmt.Sprintf("%d.yaml", i)
		if err := os.WriteFile(file, []byte(tested+stdout.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, _, err := run(t, "test", file); err != nil || strings.Count(got, "ok ") != 2 {
			t.Errorf("%q: %v\n%s%s", message, err, got, stdout.String())
		}
	}
}

func TestAClosedPipeEndsTestAndExplainQuietly(t *testing.T) {
	in(t, map[string]string{"f.yaml": tested, "m": `{"type":"order","id":"a","at":"2026-08-30T10:15:30Z","status":"x"}`})
	for _, args := range [][]string{{"test", "f.yaml"}, {"explain", "f.yaml", "m"}, {"explain", "--as-test", "f.yaml", "m"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var stderr output
		cmd := btfProcess(t, args...)
		cmd.Stdout, cmd.Stderr = w, &stderr
		err = cmd.Run()
		w.Close()
		if err == nil || stderr.String() != "" {
			t.Errorf("btf %s: %v, says %q", args, err, stderr.String())
		}
	}
}

func TestExplainSaysWhatAnotherNameOfAMappingDoes(t *testing.T) {
	in(t, map[string]string{"f.yaml": countedTwice, "m": `{"id":"a","e":"1","at":"2026-08-30T10:15:30Z"}`})
	got, _, err := run(t, "explain", "f.yaml", "m")
	if want := "note: the tokens of mapping views hold its name"; err != nil || strings.Count(got, "note:") != 1 || !strings.Contains(got, want) {
		t.Errorf("%v, got\n%swant %s", err, got, want)
	}
}

// countedTwice has a mapping under dedupe and one without.
const countedTwice = `version: 1
name: counters
bigtable: {project: p, instance: i}
tables: {counters: {families: {sums: {aggregate: sum}, cf: {}}}}
write:
  mappings:
    - name: views
      table: counters
      rowKey: event.id
      timestamp: timestamp(event.at)
      dedupe: window
      dedupeId: event.e
      mutations: [{add: {sums: {views: '1'}}}]
    - name: last
      table: counters
      rowKey: event.id
      mutations: [{set: {cf: {at: event.at}}}]
`
