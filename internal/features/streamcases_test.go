package main

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// caseComments are how the comment of a test names rows of the table of change-stream cases: those
// of a consumer, and those of the emulator.
var caseComments = map[string]*regexp.Regexp{
	"C": regexp.MustCompile(`(?m)^// (?:.* )?stream-case: ([0-9, ]+)$`),
	"E": regexp.MustCompile(`(?m)^// Change-stream cases: ([0-9, ]+)\.`),
}

// Each case of change streams that docs/protocol.md demands of a consumer or of the emulator is
// named by a test of it, but for what is not served.
func TestEveryChangeStreamCaseHasATest(t *testing.T) {
	const notServed = " 40 41 " // bounded streams are not what the function is for
	repo := os.DirFS(repository)
	doc, err := fs.ReadFile(repo, "docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(doc), "\n## Change-stream cases\n")
	cases := regexp.MustCompile(`(?m)^\|([0-9]+)\|([CE/]+)\|`).FindAllStringSubmatch(table, -1)
	if !found || len(cases) != 53 {
		t.Fatalf("docs/protocol.md has %d cases", len(cases))
	}
	named := map[string]string{"C": notServed, "E": " "}
	err = fs.WalkDir(repo, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := fs.ReadFile(repo, path)
		for who, comment := range caseComments {
			for _, m := range comment.FindAllStringSubmatch(string(text), -1) {
				named[who] += strings.ReplaceAll(m[1], ",", "") + " "
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for who := range strings.SplitSeq(c[2], "/") {
			if !strings.Contains(named[who], " "+c[1]+" ") {
				t.Errorf("case %s has no test of %s", c[1], map[string]string{"C": "a consumer", "E": "the emulator"}[who])
			}
		}
	}
}
