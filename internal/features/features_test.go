package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

const repository = "../.."

func TestFeaturesPageIsCurrent(t *testing.T) {
	want, err := generate(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	got, err := fs.ReadFile(os.DirFS(repository), outputFile)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the tests and %s say (%v): run\n\n\tgo run ./internal/features\n", outputFile, catalogueFile, err)
	}
}

// The list of the reference, id and title a line, is compared in full: no id is missing,
// stands twice or has another title.
func TestEveryRowOfTheReferenceIsHere(t *testing.T) {
	c, err := loadCatalogue(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("testdata/reference.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := c.rows()
	wanted := 0
	for line := range strings.Lines(string(list)) {
		id, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		wanted++
		if r, there := rows[id]; !there || r.Title != title {
			t.Errorf("%s has %q for %s, the reference %q", catalogueFile, r.Title, id, title)
		}
	}
	listed := 0
	for _, s := range c.Sections {
		listed += len(s.Rows)
	}
	if wanted != 279 || listed != wanted {
		t.Errorf("%s lists %d rows, the reference has %d, which are 279", catalogueFile, listed, wanted)
	}
	if n := len(c.Issues); n != 39 {
		t.Errorf("%s has %d public issues, want 39", issuesFile, n)
	}
}

// In each line of the page the kinds of answers add up to the rows, and the lines to
// their sum.
func TestTheCountsAddUp(t *testing.T) {
	page, err := generate(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	_, counts, _ := strings.Cut(string(page), "|---|---|---|---|---|---|---|\n")
	counts, _, _ = strings.Cut(counts, "\n\n")
	var sum [6]int
	sections := 0
	for line := range strings.Lines(counts) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		var n [6]int
		for i := range n {
			if _, err := fmt.Sscan(cells[i+1], &n[i]); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		if n[0] != n[1]+n[2]+n[3]+n[4]+n[5] {
			t.Errorf("%s: %d rows are %v", cells[0], n[0], n[1:])
		}
		switch cells[0] {
		case "**the reference**":
			if n != sum || n[0] != 279 {
				t.Errorf("the sum says %v, the sections %v", n, sum)
			}
		case "Public issues":
		default:
			sections++
			for i := range n {
				sum[i] += n[i]
			}
		}
	}
	if sections != 13 {
		t.Errorf("%d sections", sections)
	}
}

// repo is a repository of two rows, two issues and a test that answers one of each.
func repo() fstest.MapFS {
	return fstest.MapFS{
		catalogueFile: file(`
sections:
  - title: Sink
    rows:
      - {id: SNK-01, title: "a | b", exact: "5 | 6"}
      - {id: SNK-02, title: Skip, reason: "next: skipping"}
issues:
  - {row: 2, reason: "not applicable: nobody asks"}
`),
		issuesFile: file(`# Facts

| 9 | not | this | table |

## Public issues

| # | ref | symptom / cause | test |
|---|---|---|---|
| 1 | go#611 | retried forever | one refused |
| 2 | go#612 | slow | fast |

## Other

| 3 | not | this | either |
`),
		"internal/w/w_test.go": file(`package w

// TestOne is one.
// covers: SNK-01
func TestOne(t *testing.T) {
	// issue-row: 1
	_ = 0
}
`),
		"internal/w/testdata/broken_test.go": file("not Go"),
	}
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestPageShowsTestsReasonsAndWhatIsOpen(t *testing.T) {
	r := repo()
	r["emulator/conformance/cbt.sh"] = file("#!/bin/sh\n# covers: SNK-01\n")
	page, err := generate(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`| SNK-01 | a \| b | 5 \| 6 | [cbt.sh](../emulator/conformance/cbt.sh)<br>[w.TestOne](../internal/w/w_test.go) |`,
		"| SNK-02 | Skip |  | next: skipping |",
		"| 1 | go#611 | retried forever | [w.TestOne](../internal/w/w_test.go) |",
		"| 2 | go#612 | slow | not applicable: nobody asks |",
		"| Sink | 2 | 1 | 0 | 0 | 1 | 0 |",
		"| **the reference** | 2 | 1 | 0 | 0 | 1 | 0 |",
		"| Public issues | 2 | 1 | 0 | 1 | 0 | 0 |",
	} {
		if !strings.Contains(string(page), want+"\n") {
			t.Errorf("the page lacks the line\n%s\nin\n%s", want, page)
		}
	}
}

func TestARowWithoutTestAndReasonIsOpen(t *testing.T) {
	r := repo()
	delete(r, "internal/w/w_test.go")
	page, err := generate(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`| SNK-01 | a \| b | 5 \| 6 | *open* |`, "| Sink | 2 | 0 | 0 | 0 | 1 | 1 |"} {
		if !strings.Contains(string(page), want+"\n") {
			t.Errorf("the page lacks the line\n%s\nin\n%s", want, page)
		}
	}
}

func TestWrongLinesAreReportedWithTheirPlace(t *testing.T) {
	test := func(comment string) string { return "package w\n\n" + comment + "\nfunc TestOne() {}\n" }
	tests := []struct {
		name, path, content string
		want                string
	}{
		{"no such row", "w/w_test.go", test("// covers: SNK-99"), "w/w_test.go:3: there is no row SNK-99"},
		{"no such issue", "w/w_test.go", test("// issue-row: 3"), "w/w_test.go:3: there is no issue row 3"},
		{"an issue far out", "w/w_test.go", test("// issue-row: 99999999999999999999"), "there is no issue row 99999999999999999999"},
		{"a range", "w/w_test.go", test("// covers: SNK-01…02"), `w/w_test.go:3: covers: "SNK-01…02" is no row`},
		{"a pattern", "w/w_test.go", test("// covers: SNK-*"), `w/w_test.go:3: covers: "SNK-*" is no row`},
		{"an empty item", "w/w_test.go", test("// covers: SNK-01,"), `w/w_test.go:3: covers: "" is no row`},
		{"above nothing", "w/w_test.go", "package w\n\n// covers: SNK-01\n\nfunc TestOne() {}\n", "w/w_test.go:3:1: a covers line that is neither above a test nor inside one"},
		{"above a helper", "w/w_test.go", "package w\n\n// covers: SNK-01\nfunc testOne() {}\n", "w/w_test.go:3:1: a covers line that is neither above a test nor inside one"},
		{"a reason beside a test", "w/w_test.go", test("// covers: SNK-02"), "row SNK-02 has a reason for having no test, but w/w_test.go:3 is one: remove the reason"},
		{"an issue's reason beside a test", "w/w_test.go", test("// issue-row: 2"), "issue row 2 has a reason for having no test, but w/w_test.go:3 is one: remove the reason"},
		{"in a script", "emulator/conformance/a.js", "\n  // covers: EMU-1\n", `emulator/conformance/a.js:2: covers: "EMU-1" is no row`},
		{"broken Go", "w/w_test.go", "package", "w/w_test.go:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := repo()
			r[tt.path] = file(tt.content)
			_, err := generate(r)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that contains %q", err, tt.want)
			}
		})
	}
}

func TestAWrongCatalogueIsReported(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"twice", `sections: [{title: S, rows: [{id: SNK-01, title: a, exact: e}, {id: SNK-01, title: b, exact: e}]}]`, "SNK-01 stands twice"},
		{"no title", `sections: [{title: S, rows: [{id: SNK-01}]}]`, "SNK-01 has no title"},
		{"bad id", `sections: [{title: S, rows: [{id: snk-1, title: a}]}]`, `id "snk-1" is not of the form ABC-12`},
		{"neither exact nor a reason", `sections: [{title: S, rows: [{id: SNK-01, title: a}]}]`, "SNK-01: want either exact"},
		{"an empty exact", `sections: [{title: S, rows: [{id: SNK-01, title: a, exact: ""}]}]`, "SNK-01: want either exact"},
		{"both", `sections: [{title: S, rows: [{id: SNK-01, title: a, exact: e, reason: "next: x"}]}]`, "SNK-01: want either exact"},
		{"a reason of no kind", `sections: [{title: S, rows: [{id: SNK-01, title: a, reason: because}]}]`, "SNK-01: a reason begins with"},
		{"a kind alone", `sections: [{title: S, rows: [{id: SNK-01, title: a, reason: "next: "}]}]`, "SNK-01: a reason begins with"},
		{"misspelt key", `sections: [{title: S, rows: [{id: SNK-01, title: a, reson: b}]}]`, "reson"},
		{"unknown issue", `issues: [{row: 7, reason: x}]`, "issue row 7 is not in " + issuesFile},
		{"issue without a reason", `issues: [{row: 1}]`, "issue row 1: want one reason"},
		{"issue with a reason of no kind", `issues: [{row: 1, reason: x}]`, "issue row 1: a reason begins with"},
		{"issue twice", `issues: [{row: 1, reason: "next: x"}, {row: 1, reason: "next: y"}]`, "issue row 1: want one reason"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := repo()
			r[catalogueFile] = file(tt.yaml)
			_, err := loadCatalogue(r)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that contains %q", err, tt.want)
			}
		})
	}
}

func TestAMissingIssueTableIsReported(t *testing.T) {
	r := repo()
	r[issuesFile] = file("# Facts\n")
	if _, err := loadCatalogue(r); err == nil || !strings.Contains(err.Error(), issuesHeading) {
		t.Errorf("error %v, want one that names the heading", err)
	}
}
