package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

const rowsFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64, price: 'decimal(10,2)', day: date, at: timestamp, clock: time, doc: json, 'a.b': string}}
      raw: {}
      odd-name: {}
write:
  format: json
  mappings: [{name: m, table: orders, rowKey: event.id, mutations: [{set: {cf: {status: event.s}}}]}]
`

func rowEnv(t *testing.T, withItem bool) *Env {
	t.Helper()
	p, err := pipeline.Parse([]byte(rowsFile), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	env, err := NewRowEnv(p.Tables[0], withItem)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func TestWhatAnExpressionReadsOfARowIsKnown(t *testing.T) {
	env := rowEnv(t, true)
	for source, want := range map[string]string{
		"rowKey":                                 "",
		"item.cf.status":                         "",
		`"row.cf.status"`:                        "",
		"row.cf.status":                          "cf:status@0",
		"row.cf.?status":                         "cf:status@0",
		"row.?cf.?status":                        "cf:status@0",
		`row["cf"]["status"]`:                    "cf:status@0",
		`row.cf[?"a.b"]`:                         "cf:a.b@0",
		`row["odd-name"].x`:                      "odd-name:x@0",
		"has(row.cf.extra)":                      "cf:extra@4",
		"has(row.raw)":                           "raw@4",
		`"extra" in row.cf`:                      "cf:extra@11",
		`"raw" in row`:                           "raw@9",
		"row.cf.doc.a.b":                         "cf:doc@0",
		"row.cf.doc.a[0]":                        "cf:doc@0",
		"row.cf":                                 "cf@0",
		"row":                                    "@0",
		"row.cf[item]":                           "cf@0",
		"row.cf[row.raw.name]":                   "cf@0 raw:name@7",
		"row.cf.filter(k, k != '')":              "cf@0",
		"[1, 2].map(n, row.cf.total + n)":        "cf:total@14",
		`{"a": row.cf.total, ?"b": row.raw.?x}`:  "cf:total@6 raw:x@26",
		`row.raw.?x.orValue(b"") == b"" ? 1 : 2`: "raw:x@0",
		"row.cf.total > 1 && row.cf.status == rowKey":   "cf:total@0 cf:status@20",
		"row.cf.status.startsWith(string(row.raw.p))":   "cf:status@0 raw:p@32",
		"[row.cf.total].exists(total, total == 1)":      "cf:total@1",
		"key(row.cf.status, string(row.cf.total)) > ''": "cf:status@4 cf:total@26",
	} {
		p, err := env.Compile(pipeline.Expr{Source: source, Exact: true, Pos: pipeline.Pos{Line: 1}}, Anything)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		var got []string
		for _, r := range p.Reads() {
			text := r.Family
			if r.Column {
				text += ":" + r.Qualifier
			}
			got = append(got, fmt.Sprintf("%s@%d", text, r.Pos.Column))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s reads %q, want %q", source, got, want)
		}
	}
}
