package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

const scanRig = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64, day: date, price: 'decimal(10,2)'}}
      raw: {}
scans:
  all:
    table: orders
%s`

// scanFindings lints a scan and returns its errors and warnings, one a line.
func scanFindings(t *testing.T, scan string) string {
	t.Helper()
	text := ""
	for line := range strings.Lines(strings.TrimSpace(scan) + "\n") {
		text += "    " + line
	}
	if !strings.Contains(scan, "to:") {
		text += "    to: {log: {}}\n"
	}
	_, findings := Load(fmt.Appendf(nil, scanRig, text), pipeline.Options{File: "p.yaml"})
	var out []string
	for _, f := range findings {
		if f.Severity != Note {
			out = append(out, f.String()+" ["+string(f.Rule)+"]")
		}
	}
	return strings.Join(out, "\n")
}

func TestAnExpressionThatReadsWhatCellsLeavesOutIsAnError(t *testing.T) {
	for scan, want := range map[string]string{
		"cells: {families: [raw]}\nwhen: row.cf.status == \"PAID\"":                                                     `p.yaml:13:11: error: scans.all.when: reads family "cf", which cells leaves out, so that it is never there: add it to cells.families [left-out]`,
		"cells: {families: [raw]}\nemit: {x: row.cf.?status}":                                                           `p.yaml:13:15: error: scans.all.emit.x: reads family "cf"`,
		"cells: {families: [raw]}\nemit: {x: rowKey, z: row.cf}":                                                        `scans.all.emit.z: reads family "cf"`,
		"cells: {families: [raw]}\nforEach: row.cf.?doc.orValue([])\nemit: {x: item}":                                   `scans.all.forEach: reads family "cf"`,
		"cells: {families: [raw]}\nto: {pubsub: {topic: out, orderBy: row.cf.status, attributes: {k: hex(row.raw.k)}}}": `scans.all.to.pubsub.orderBy: reads family "cf"`,
		"cells: {columns: {cf: [status]}}\nemit: {x: row.cf.?total}":                                                    `scans.all.emit.x: reads column "total" of family "cf", which cells leaves out`,
		"cells: {columns: {cf: [status]}}\nemit: {x: row.?raw}":                                                         `scans.all.emit.x: reads family "raw", which cells leaves out`,
		"cells: {keysOnly: true}\nemit: {x: rowKey, z: has(row.cf.status)}":                                             `scans.all.emit.z: reads cells, and cells.keysOnly leaves all of them out`,
	} {
		if got := scanFindings(t, scan); !strings.Contains(got, want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s\ngot  %s\nwant %s", scan, got, want)
		}
	}
	for _, scan := range []string{
		"emit: {x: row.cf.status, z: row.raw.k, all: row}",
		"cells: {families: [cf, raw]}\nemit: {x: row.cf.status, z: row.raw.k, all: row}",
		"cells: {columns: {cf: [status]}}\nemit: {x: row.cf.status, z: row.cf, all: row}",
		"cells: {keysOnly: true}\nemit: {x: rowKey}",
		"cells: {keysOnly: true}",
		"cells: {filter: 'family_name_regex_filter: \"raw\"'}\nemit: {x: row.cf.status}", // nobody knows
	} {
		if got := scanFindings(t, scan); got != "" {
			t.Errorf("%s\n%s", scan, got)
		}
	}
}

func TestAColumnThatItsFamilyDoesNotDeclareIsAWarning(t *testing.T) {
	for scan, want := range map[string]string{
		"emit: {x: row.cf.statsu}":                                    `p.yaml:12:15: warning: scans.all.emit.x: family "cf" declares no column "statsu", which then reads as bytes: declare it, as bytes if it is, or write undeclaredColumns: allow in the family; did you mean "status"? [undeclared-column]`,
		"emit: {x: 'has(row.cf.unheard) ? 1 : 2'}":                    `family "cf" declares no column "unheard", which then reads as bytes: declare it, as bytes if it is, or write undeclaredColumns: allow in the family [undeclared-column]`,
		"cells: {columns: {cf: [statsu]}}\nemit: {x: row.cf.?statsu}": "scans.all.cells.columns.cf: family \"cf\" declares no column \"statsu\"",
		"cells: {columns: {cf: [statsu]}}\nto: {log: {}}":             "p.yaml:12:28: warning: scans.all.cells.columns.cf: ",
		"when: 'row.cf.?totl.hasValue()'":                             `did you mean "total"?`,
	} {
		if got := scanFindings(t, scan); !strings.Contains(got, want) || strings.Contains(got, "error") {
			t.Errorf("%s\ngot  %s\nwant %s", scan, got, want)
		}
	}
	for _, scan := range []string{"emit: {x: row.raw.anything}", "cells: {columns: {raw: [anything]}}", "emit: {x: row.cf}", ""} {
		if got := scanFindings(t, scan); got != "" {
			t.Errorf("%q\n%s", scan, got)
		}
	}
}

func TestAFamilyThatIsMisspeltIsTold(t *testing.T) {
	if got := scanFindings(t, "emit: {x: row.cd.status}"); !strings.Contains(got, `declares no family cd; did you mean "cf"?`) {
		t.Error(got)
	}
}

func TestAnOrderOfDecimalsIsAWarning(t *testing.T) {
	want := `p.yaml:12:11: warning: scans.all.when: orders a decimal as text, under which 9.50 comes after 10.00: write double(row.cf.price), and a number to compare it with [decimal-as-text]`
	if got := scanFindings(t, `when: row.cf.price > "1000"`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := scanFindings(t, `when: double(row.cf.price) > 1000`); got != "" {
		t.Error(got)
	}
}
