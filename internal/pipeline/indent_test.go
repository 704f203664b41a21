package pipeline

import (
	"strings"
	"testing"
)

const indentFile = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  a:
    families:
      cf: {}
write:
  format: json
  mappings:
    - name: m
      table: a
      rowKey: event.id
      mutations:
        - set:
            cf:
              x: event.a
          when: event.b
`

// Each hint, if it is followed, leads back to the file as it was.
func TestAWrongIndentationIsToldAndWhatToWrite(t *testing.T) {
	if _, err := Parse([]byte(indentFile), Options{File: "p.yaml"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, wrong, says string }{
		{"bigtable:", "  bigtable:", "line 3 is indented by 2, and line 2 above it, which has a value already, by 0: indent it by 0 too"},
		{"  mappings:", "    mappings:", "line 10 is indented by 4, and line 9 above it, which has a value already, by 2: indent it by 2 too"},
		{"      rowKey:", "        rowKey:", "line 13 is indented by 8, and line 12 above it, which has a value already, by 6: indent it by 6 too"},
		{"      mutations:", "        mutations:", "indent it by 6 too"},
		{"      table:", "     table:", "line 12 is indented by 5, and the fields above it by 4 or 6: indent it like the fields beside it"},
		{"      table:", "       table:", "indent it by 6 too"},
		{"          when:", "            when:", "when is a field of write.mappings[0].mutations[0]: indent it by 10 spaces and not by 12"},
		{"version:", "  version:", "line 1 is indented by 2: begin it in the first column"},
		{"  format: json\n  mappings:", "      format: json\n  mappings:", "line 10 is indented by 2, and the fields above it by 0 or 6: indent it like the fields beside it"},
		{"write:", "    scans: {}\nwrite:", "scans is a field of the whole file: indent it by 0 spaces and not by 4"},
	} {
		broken := strings.Replace("\n"+indentFile, "\n"+c.line, "\n"+c.wrong, 1)[1:]
		if _, err := Parse([]byte(broken), Options{File: "p.yaml"}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v\ndoes not say %q", c.wrong, err, c.says)
		}
	}
}
