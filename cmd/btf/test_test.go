package main

import (
	"os"
	"strings"
	"testing"
)

const tested = `version: 1
name: tested
bigtable: {project: my-project, instance: my-instance}
tables: {orders: {families: {cf: {columns: {status: string}}}}}
write:
  onFailure: dead-letter
  mappings:
    - name: order
      when: event.type == "order"
      table: orders
      rowKey: key("order", event.id)
      timestamp: timestamp(event.at)
      mutations:
        - set: {cf: {status: event.status}}
tests:
  - name: "an order\e is a row"
    message: {data: {type: order, id: a, at: "2026-08-30T10:15:30Z", status: "\e[31mPAID"}}
    expect:
      rows:
        - {table: orders, rowKey: order#a, timestamp: "2026-08-30T10:15:30Z", mutations: [{set: {cf: {status: "\e[31mPAID"}}}]}
`

func TestBtfTestTellsOfEachTestAndFailsWhereOneDoes(t *testing.T) {
	in(t, map[string]string{
		"good.yaml":   tested,
		"bad.yaml":    strings.Replace(tested, `mutations: [{set: {cf: {status: "\e[31mPAID"`, `mutations: [{set: {cf: {status: "\e[31mOPEN"`, 1),
		"none.yaml":   strings.Split(tested, "tests:")[0],
		"broken.yaml": strings.Replace(tested, "event.id", "event.", 1),
	})
	stdout, _, err := run(t, "test", "good.yaml")
	if err != nil || stdout != "ok    good.yaml: an order\\x1b is a row\n" {
		t.Errorf("%v %q", err, stdout)
	}
	stdout, _, err = run(t, "test", "good.yaml", "bad.yaml", "none.yaml")
	const want = `ok    good.yaml: an order\x1b is a row
FAIL  bad.yaml:16:5: an order\x1b is a row
      bad.yaml:20:11: the row differs
          orders "order#a"
        -   set cf:status = "\x1b[31mOPEN" @ 2026-08-30T10:15:30.000Z
        +   set cf:status = "\x1b[31mPAID" @ 2026-08-30T10:15:30.000Z
      none.yaml has no tests
`
	if err == nil || err.Error() != "1 of 2 tests failed" || stdout != want {
		t.Errorf("%v, got\n%swant\n%s", err, stdout, want)
	}
	for _, file := range []string{"broken.yaml", "missing.yaml"} {
		if stdout, _, err := run(t, "test", file, "good.yaml"); err == nil || !strings.Contains(err.Error(), file) || !strings.HasPrefix(stdout, "ok    good.yaml") {
			t.Errorf("%s: %v, %q", file, err, stdout)
		}
	}
}

func TestBtfTestWatchesItsFiles(t *testing.T) {
	in(t, map[string]string{"a.yaml": tested})
	cmd := btfProcess(t, "test", "--watch", "a.yaml")
	lines := start(t, cmd)
	expectLine(t, lines, "a.yaml: 1 test, 0 failed; waiting for a change")
	for _, step := range []struct{ text, want string }{
		{strings.Replace(tested, "rowKey: order#a", "rowKey: order#b", 1), "a.yaml: 1 test, 1 failed; waiting for a change"},
		{strings.Replace(tested, "version: 1", "version: 2", 1), "a.yaml:1:10: "},
		{tested, "a.yaml: 1 test, 0 failed; waiting for a change"},
	} {
		if err := os.WriteFile("a.yaml", []byte(step.text), 0o644); err != nil {
			t.Fatal(err)
		}
		expectLine(t, lines, step.want)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for range lines { // until the pipe closes
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}
