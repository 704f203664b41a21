package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

func TestInitWritesAFileThatLintHasNothingAgainst(t *testing.T) {
	in(t, nil)
	stdout, _, err := run(t, "init", "orders")
	if err != nil || !strings.Contains(stdout, "wrote orders.yaml") {
		t.Fatalf("%v: %q", err, stdout)
	}
	stdout, _, err = run(t, "lint", "orders.yaml")
	if want := "orders.yaml:17:7: mapping order: no-op: a second delivery changes nothing\n"; err != nil || stdout != want {
		t.Errorf("%v: %q, want %q", err, stdout, want)
	}
}

// The tests of the first file hold: what they expect is what its mapping makes.
func TestInitWritesTestsThatPass(t *testing.T) {
	text, err := firstPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	loaded, findings := loadPipeline("orders.yaml", []byte(text))
	if loaded == nil {
		t.Fatal(findings.Err())
	}
	results := make([]*mapping.Result, len(loaded.Pipeline.Tests))
	for i, test := range loaded.Pipeline.Tests {
		decoder := &record.Decoder{}
		results[i] = loaded.Write.Map(&expr.Message{ID: "m", PublishTime: time.Unix(0, 0)}, decoder.JSON(test.Message.Data), time.Unix(0, 0))
	}
	row := results[0].Rows[0]
	got := mapping.Key(row.Schema, row.Entry.RowKey) + "\n" + strings.Join(mapping.Lines(row.Schema, row.Entry), "\n")
	want := "\"order#acme#a-1\"\nset cf:status = \"PAID\" @ 2026-08-30T10:15:30.123Z\nset cf:total = 1250 @ 2026-08-30T10:15:30.123Z"
	if got != want || len(results[0].Rejected) > 0 {
		t.Errorf("got %q, want %q", got, want)
	}
	if r := results[1]; len(r.Rows) != 0 || len(r.Rejected) != 1 || r.Rejected[0].Error() != "mapping order: rowKey: no such key: customer" {
		t.Errorf("rows %v, rejected %v", r.Rows, r.Rejected)
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
