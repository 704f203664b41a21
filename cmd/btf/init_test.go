package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/firstfile"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/pipetest"
)

func TestInitWritesAFileThatLintHasNothingAgainst(t *testing.T) {
	in(t, nil)
	stdout, _, err := run(t, "init", "orders")
	if err != nil || !strings.Contains(stdout, "wrote orders.yaml") {
		t.Fatalf("%v: %q", err, stdout)
	}
	stdout, _, err = run(t, "lint", "orders.yaml")
	if want := "orders.yaml:18:7: mapping order: no-op-but-ties: a second delivery changes nothing, unless another message has written the same cell at the same millisecond: then the one applied last stays\n"; err != nil || stdout != want {
		t.Errorf("%v: %q, want %q", err, stdout, want)
	}
}

func TestInitWritesTestsThatPass(t *testing.T) {
	text, err := firstfile.Text("orders")
	if err != nil {
		t.Fatal(err)
	}
	loaded, findings := lint.Load([]byte(text), pipeline.Options{File: "orders.yaml"})
	if loaded == nil {
		t.Fatal(findings.Err())
	}
	suite, err := pipetest.New(loaded.Pipeline, loaded.Write)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.Pipeline.Tests) != 4 {
		t.Errorf("%d tests", len(loaded.Pipeline.Tests))
	}
	for _, test := range loaded.Pipeline.Tests {
		for _, problem := range suite.Run(test) {
			t.Errorf("%s: %s: %s\n%s", problem.Pos, test.Name, problem.Text, strings.Join(problem.Lines, "\n"))
		}
	}
}

// What the file's comment says to run is what runs.
func TestTheScanOfAFirstFileRuns(t *testing.T) {
	s := newScanTable(t, 4)
	text, err := firstfile.Text("orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	stderr, err := s.scanTo(t.Context(), &out, scanrun.Request{Name: "paid", To: "-"})
	if err != nil || strings.Count(out.String(), `{"order":"k000`) != 4 {
		t.Errorf("%v\n%s%s", err, stderr, out.String())
	}
}

func TestInitOverwritesNothing(t *testing.T) {
	in(t, map[string]string{"orders.yaml": "mine"})
	if _, _, err := run(t, "init", "orders"); err == nil || !strings.Contains(err.Error(), "orders.yaml exists") {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile("orders.yaml"); err != nil || string(text) != "mine" {
		t.Errorf("the file now holds %q, %v", text, err)
	}
}

func TestInitRefusesNamesThatNoPipelineHas(t *testing.T) {
	in(t, nil)
	for name, want := range map[string]string{
		"Orders":               `"Orders" is no pipeline name`,
		"../up":                `"../up" is no pipeline name`,
		"google":               "starts with goog",
		"x: y":                 "is no pipeline name",
		"a\nb":                 "is no pipeline name",
		"no":                   "quote it",
		"{}":                   "takes text",
		"a-name-that-is-long-": "is no pipeline name",
		"\x1b[31m":             `\x1b[31m`,
	} {
		if _, _, err := run(t, "init", name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: error %v, want %q", name, err, want)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
