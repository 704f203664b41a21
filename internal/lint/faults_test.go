package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

// Files with faults of both kinds, in form and names (parse) and in expressions
// (compile). Each line with a fault ends in a comment that says its kind and part of
// its message.
const (
	faultyWrite = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  sound: {families: {cf: {columns: {total: int64, at: timestamp}}, sums: {aggregate: sum}}}
  typo:
    families: {cf: {columns: {total: int46}}} # parse: int46
  daily:
    idFrom: "[1]" # compile: text
    idMatches: ^day-\d+$
    families: {cf: {}}
write:
  skip: nonsense(event) # compile: nonsense
  onFailure: dropp # parse: dropp
  mappings:
    - name: a
      table: sond # parse: no table "sond"
      rowKey: event.id + # compile: syntax error
      mutations:
        - {set: {cf: {v: unknown.thing}}} # compile: unknown
    - name: b
      table: sound
      rowKey: event.id
      timestamp: 5 # compile: timestamp
      dedupe: windw # parse: windw
      mutations:
        - set:
            fc: # parse: no family "fc"
              v: event.a + * 2 # compile: syntax error
            sums: # parse: use add
              v: event.a
        - deleteColumns: {cf: [v]}
          from: nobody # compile: nobody
          versions: all # parse: stands beside from
    - name: c
      table: daily
      foreach: '[1, 2]' # parse: unknown field "foreach"
      rowKey: item
      mutations: [{set: {cf: {v: item.id}}}]
    - name: d
      table: daily
      forEach: [1, 2] # parse: takes an expression
      rowKey: item
      mutations: [{set: {cf: {v: item.id}}}]
    - name: e
      table: typo
      rowKey: event.a + "it # parse: starts a comment
      mutations: [{set: {cf: {total: 1 + "1"}}}] # compile: does not take (int, string)
    - name: f
      table: daily
      rowKey: event.id
      mutations: [{set: {cf: {a: key(event.a, event.b)}}}] # parse: a comma starts the next field
    - name: g
      table: daily
      rowKey: event.id
      mutations: [{when: has(event.a, event.b), set: {cf: {a: event.a}}}] # parse: unknown field
`
	faultyScans = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  sound: {families: {cf: {columns: {total: int64}}}}
  typo:
    families: {cf: {columns: {total: int46}}} # parse: int46
  odd:
    familes: {cf: {}} # parse: unknown field
    families: {dd: {}}
  twice: {families: {cf: {}}}
  twice: {families: {other: {}}} # parse: stands twice
scans:
  good:
    table: sound
    limit: 0 # parse: at least 1
    emit:
      id: rowKey
      count: row.fc.total # compile: no family fc
      bad: {base64: "/w=="} # parse: expression
      m: row.cf.total + "x" # compile: does not take
    to: {pubsub: {topic: out, orderBy: nothing}} # compile: nothing
  window:
    table: sound
    cells: {families: [fc]} # parse: no family "fc"
    emit: {count: row.cf.total + true} # compile: does not take
    to: {log: {}}
  Name:  # parse: no name
    table: sound
    emit: {count: row.cf.total + true} # compile: does not take
    to: {log: {}}
  of-a-typo: {table: typo, emit: {count: row.cf.total + 1}, to: {log: {}}}
  of-odd: {table: odd, emit: {count: row.cf.total}, to: {log: {}}}
  of-twice: {table: twice, emit: {count: row.other.total}, to: {log: {}}}
  of-none: {table: nope, emit: {count: row.cf.total}, to: {log: {}}} # parse: no table "nope"
  each:
    table: sound
    foreach: '[1, 2]' # parse: unknown field "foreach"
    emit: {count: item}
    to: {log: {}}
  text: {table: sound, cells: {filter: 'chain {'}, to: {log: {}}} # parse: bracket
`
	noProject = `version: 1
name: orders
tables:
  orders: {families: {cf: {columns: {total: int64}}}} # parse: no project
scans:
  all: {table: orders, emit: {count: row.cf.total + "x"}, to: {log: {}}} # compile: does not take
`
)

var marked = regexp.MustCompile(`# (parse|compile): (.+)$`)

func TestFaultsOfBothKindsAreSaidTogether(t *testing.T) {
	for name, text := range map[string]string{"write": faultyWrite, "scans": faultyScans, "no project": noProject} {
		l, findings := Load([]byte(text), pipeline.Options{File: "f"})
		if l != nil {
			t.Errorf("%s: it is loaded", name)
		}
		if !slices.IsSortedFunc(findings, func(a, b *Finding) int { return a.Pos.Line - b.Pos.Line }) {
			t.Errorf("%s: not in the file's order: %v", name, findings)
		}
		byLine := map[int]Findings{}
		for _, f := range findings {
			byLine[f.Pos.Line] = append(byLine[f.Pos.Line], f)
		}
		for i, line := range strings.Split(text, "\n") {
			m := marked.FindStringSubmatch(line)
			got := byLine[i+1]
			switch {
			case m == nil && len(got) > 0:
				t.Errorf("%s: what follows from another fault, or is none: %v", name, got)
			case m != nil && (len(got) != 1 || string(got[0].Rule) != m[1] || !strings.Contains(got[0].Message, m[2])):
				t.Errorf("%s: line %d: %v, want of %s: … %s …", name, i+1, got, m[1], m[2])
			}
		}
	}
}

// fields are those that a table, mapping, scan or sink of the file may have.
var field = regexp.MustCompile(`\b(project|instance|tables|id|idFrom|idMatches|families|columns|aggregate|gc|write|format|skip|mappings|name|when|forEach|` +
	`rowKey|timestamp|dedupe|mutations|set|add|merge|replace|deleteColumns|deleteFamilies|scans|table|appProfile|rows|cells|emit|to|pubsub|topic|orderBy|attributes|filter|keysOnly|since|` +
	`schedule|limit|fetch|onFailure|onLargeRow): ?`)

// Whatever field of a good file is mistyped, or has a value that cannot be read, no
// expression is at fault.
func TestNoExpressionIsBlamedForAFaultElsewhere(t *testing.T) {
	breaks := map[string]func(name string) string{
		"mistyped":   func(name string) string { return name + "x: " },
		"unreadable": func(name string) string { return name + ": !bad " },
	}
	for _, file := range []string{"orders.yaml", "every.yaml"} {
		data, err := os.ReadFile(filepath.Join("../pipeline/testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		faults, step := 0, 1
		if race.Enabled {
			step = 4
		}
		for i, at := range field.FindAllSubmatchIndex(data, -1) {
			if i%step != 0 {
				continue
			}
			for how, change := range breaks {
				broken := slices.Concat(data[:at[0]], []byte(change(string(data[at[2]:at[3]]))), data[at[1]:])
				l, findings := Load(broken, pipeline.Options{File: file})
				if l != nil || findings[0].Rule == RuleCompile && !slices.ContainsFunc(findings, func(f *Finding) bool { return f.Rule == RuleParse }) {
					continue // it is no field here, but the user's own name
				}
				faults++
				for _, f := range findings {
					if f.Rule == RuleCompile {
						t.Errorf("%s: %s %s at byte %d: %v", file, data[at[2]:at[3]], how, at[0], f)
					}
				}
			}
		}
		if faults < 50/step {
			t.Errorf("%s: %d faults are too few to show anything", file, faults)
		}
	}
}

func TestAFileWithOneFaultHasOneFinding(t *testing.T) {
	paths, err := filepath.Glob("../pipeline/testdata/broken/*.yaml")
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, findings := Load(data, pipeline.Options{File: filepath.Base(path)}); len(findings) != 1 || findings[0].Rule != RuleParse {
			t.Errorf("%s: %v", path, findings)
		}
	}
}

// FuzzLoad: whatever a file holds, it is loaded or has a fault, and a fault has a place.
func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("../pipeline/testdata/broken/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(paths, "../pipeline/testdata/orders.yaml", "../pipeline/testdata/every.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(faultyWrite))
	f.Add([]byte(faultyScans))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, findings := Load(data, pipeline.Options{File: "f", Project: "p", Instance: "i"})
		if l == nil && findings.Err() == nil {
			t.Error("it is not loaded, and nothing says why")
		}
		for _, f := range findings {
			if f.Message == "" || (f.Rule == RuleParse || f.Rule == RuleCompile) && f.Pos.Line == 0 {
				t.Errorf("a fault that nobody finds: %+v", f)
			}
		}
	})
}
