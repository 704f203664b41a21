package pipeline

import (
	"strings"
	"testing"
)

func TestExpressionsThatBreakTheYAMLAreToldToBeQuoted(t *testing.T) {
	for _, expression := range []string{
		`event.a ? "x" : "y"`, `"a" + event.id`, `'a' + event.id`, `[event.a] + event.b`, `{"a": 1}["a"]`, `@event`, "`x`", `%x`,
		`event.a == "b": c`, `event["a: b"] == "c: d"`, `"a" == event.x`, `> event.x`, `| event.x`, `!event.x`, `!(event.x)`,
	} {
		for _, text := range []string{
			strings.Replace(minimal, "rowKey: event.id", "rowKey: "+expression, 1),
			strings.Replace(minimal, "rowKey: event.id", "rowKey: event.id\n      when: "+expression, 1),
		} {
			_, err := Parse([]byte(text), Options{})
			if err == nil {
				t.Errorf("%s is taken", expression)
				continue
			}
			if !strings.Contains(err.Error(), "quote") {
				t.Errorf("%s: %v", expression, err)
			}
		}
	}
}

func TestHintsNameTheNearestWord(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{"rowkey", `; did you mean "rowKey"?`}, {"wehn", `; did you mean "when"?`}, {"tabel", `; did you mean "table"?`},
		{"colour", "; use one of when, rowKey, table"}, {strings.Repeat("x", 1<<16), "; use one of when, rowKey, table"},
	} {
		if hint := didYouMean(c.got, []string{"when", "rowKey", "table"}); hint != c.want {
			t.Errorf("%.20s: %q, want %q", c.got, hint, c.want)
		}
	}
	if hint := didYouMean("x", nil); hint != "" {
		t.Errorf("got %q", hint)
	}
}

func TestPlacesNameOddKeysInBrackets(t *testing.T) {
	text := strings.Replace(minimal, "{cf: {status: event.status}}", `{cf: {"a.b": ""}}`, 1)
	if got := faultsOf(t, text); len(got) != 1 || !strings.Contains(got[0], `: write.mappings[0].mutations[0].set.cf["a.b"]: an empty expression`) {
		t.Errorf("got %v", got)
	}
}

func TestCoreTagsThatSayWhatTheTextSaysAreTaken(t *testing.T) {
	text := strings.NewReplacer("version: 1", "version: !!int 1", "rowKey: event.id", "rowKey: !!str 5", "name: orders\nb", "name: !!str orders\nb").Replace(minimal)
	if p := parseText(t, text); p.Write.Mappings[0].RowKey.Source != "5" {
		t.Errorf("got %+v", p.Write.Mappings[0].RowKey)
	}
	for _, tagged := range []string{`!!int "1"`, "!!float 1", "!local 1", "!!binary MQ==", "! 1"} {
		if _, err := Parse([]byte(strings.Replace(minimal, "version: 1", "version: "+tagged, 1)), Options{}); err == nil {
			t.Errorf("%s is taken", tagged)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	deep := func(n int) string {
		return minimal + "tests:\n  - name: t\n    message: {data: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "}\n    expect: {rows: []}\n"
	}
	parseText(t, deep(90))
	for _, n := range []int{101, 5000} {
		if got := faultsOf(t, deep(n)); len(got) != 1 || !strings.Contains(got[0], "nested deeper than 100") {
			t.Errorf("%.200s", got)
		}
	}
}

func TestOneFaultHidesWhatFollowsFromIt(t *testing.T) {
	for _, text := range []string{
		strings.Replace(minimal, "tables:\n  orders:", "tables: !x\n  orders:", 1),
		strings.Replace(minimal, "write:\n", "write: &x\n", 1),
		strings.Replace(minimal, "mappings:\n", "mappings: !x\n", 1),
		strings.Replace(minimal, "families: {cf: {}, totals: {aggregate: sum}}", "families: cf", 1),
		strings.Replace(minimal, "{cf: {status: event.status}}", "!x {cf: {status: event.status}}", 1),
		strings.Replace(minimal, "mutations: [", "mutations: !x [", 1),
		strings.Replace(minimal, "aggregate: sum", "aggregate: summ", 1),
	} {
		if got := faultsOf(t, text); len(got) != 1 {
			t.Errorf("%s\ngave %s", text, strings.Join(got, "\n"))
		}
	}
}

// A reader that is still inside braces gives up on a line that is right.
func TestABracketThatNothingClosesIsTold(t *testing.T) {
	for _, c := range []struct{ line, wrong, says string }{
		{"      cf: {}", "      cf: {", `line 7 opens a { that nothing closes: end it with }`},
		{"      cf: {}", "      cf: {columns: {a: string}", `line 7 opens a { that nothing closes: end it with }`},
		{"      cf: {}", "      cf: {columns: {a: string}, gc: {maxAge: 720h}\n      # a comment, and {braces} in it", `line 7 opens a { that nothing closes`},
		{"      cf: {}", "      cf: {columns: {\n        a: string\n      }", `line 7 opens a { that nothing closes`},
		{"bigtable: {project: p, instance: i}", "bigtable: {project: p, instance: i", `line 3 opens a { that nothing closes`},
		{"          when: event.b", "        - deleteColumns: {cf: [a, b}\n        - deleteRow: true", `line 18 opens a [ that nothing closes: end it with ]`},
		{"          when: event.b", "        - deleteFamilies: [cf\n    - name: n", `line 18 opens a [ that nothing closes`},
		{"          when: event.b", "        - set: {cf: {y: 'event.b + \"}}\"'}\n        - set: {cf: {z: event.b}}", `line 18 opens a { that nothing closes`},
	} {
		broken := strings.Replace("\n"+indentFile, "\n"+c.line, "\n"+c.wrong, 1)[1:]
		if _, err := Parse([]byte(broken), Options{File: "p.yaml"}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v\ndoes not say %q", c.wrong, err, c.says)
		}
	}
}

func TestABracketInsideAValueIsNotOneThatIsOpen(t *testing.T) {
	for _, key := range []string{`event.a["x" + 1: 2`, `"{" + event.a`, `event.a{ b: c`, `'{': x`, `{a: "}"} : b: c`} {
		text := strings.Replace(indentFile, "rowKey: event.id", "rowKey: "+key, 1)
		if _, err := Parse([]byte(text), Options{File: "p.yaml"}); err != nil && strings.Contains(err.Error(), "nothing closes") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestAColonWithoutASpaceIsTold(t *testing.T) {
	for _, c := range []struct{ line, wrong, says string }{
		{"      table: a", "      table:a", "line 12 has no space after its colon: write table: a"},
		{"    - name: m", "    - name:m", "line 11 has no space after its colon: write name: m"},
		{"  format: json", "  format:json", "line 9 has no space after its colon: write format: json"},
	} {
		broken := strings.Replace("\n"+indentFile, "\n"+c.line, "\n"+c.wrong, 1)[1:]
		if _, err := Parse([]byte(broken), Options{File: "p.yaml"}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v\ndoes not say %q", c.wrong, err, c.says)
		}
	}
	data := minimal + "tests:\n  - name: t\n    message: {data: {customer:acme, id: a}}\n    expect: {rows: []}\n"
	if got := faultsOf(t, data); len(got) != 1 || !strings.Contains(got[0], `an empty value: write null, or "" for an empty text; a value needs a space before it: write customer: acme`) {
		t.Errorf("got %v", got)
	}
}
