package pipeline

import (
	"fmt"
	"strings"
	"testing"
)

func TestAFileMayEndItsDocument(t *testing.T) {
	for _, end := range []string{"---\n", "---", "...\n", "--- # the end\n", "# the end\n", "---\n# the end\n", "...\n---\n", "---\n---\n", "\n\n---\n\n"} {
		if _, err := Parse([]byte(minimal+end), Options{}); err != nil {
			t.Errorf("%q: %v", end, err)
		}
	}
	for _, end := range []string{"---\na: 1\n", "---\n~\n", "---\n''\n", "---\n---\nversion: 1\n", "---\n- 1\n", "---\n&a\n", "---\n!!str\n"} {
		_, err := Parse([]byte(minimal+end), Options{})
		if err == nil || !strings.Contains(err.Error(), "second document") {
			t.Errorf("%q: %v", end, err)
		}
	}
}

// doubtful is a file with a place for a prefix and one for a qualifier.
const doubtful = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders:
    families: {cf: {columns: {%s: int64}}}
scans:
  all:
    table: orders
    rows:
      prefixes:
        - %s
    to: {gcs: {bucket: archive, prefix: p/}}
`

func TestNamesThatProbablyMeanOtherBytesAreDoubted(t *testing.T) {
	for _, c := range []struct{ qualifier, key, want string }{
		{"a", "order#", ""},
		{"a", `"\x41"`, ""},
		{"a", `"\\xff"`, ""},
		{"a", `'\xff'`, ""},
		{"a", `"\u00ff"`, ""},
		{"a", `"\xff"`, `prefixes[0]: \xff is a character`},
		{"a", `"\\\x80"`, `prefixes[0]: \x80 is a character`},
		{"a", `"a\tb\xFe"`, `prefixes[0]: \xFe is a character`},
		{`"\xff"`, "order#", `\xff is a character`},
		{"a", "|\n          order#", "prefixes[0]: ends with a newline"},
		{"a", ">\n          order#", "prefixes[0]: ends with a newline"},
		{"a", "|+\n          order#", "prefixes[0]: ends with a newline"},
		{"a", "|-\n          order#", ""},
	} {
		p := parseText(t, fmt.Sprintf(doubtful, c.qualifier, c.key))
		got := p.Doubts.Error()
		if c.want == "" && got != "" || c.want != "" && (!strings.Contains(got, c.want) || len(p.Doubts) != 1) {
			t.Errorf("%s, %s: %q, want %q", c.qualifier, c.key, got, c.want)
		}
	}
	raw := minimal + "tests:\n  - name: lines\n    message:\n      raw: |\n        {}\n    expect: {skipped: true}\n"
	if got := parseText(t, raw).Doubts; len(got) > 0 {
		t.Errorf("the lines of a message: %v", got)
	}
}
