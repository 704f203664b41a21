package expr

import (
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Each fault is told with what to write, and what is told to write is written.
func TestAHintOfALoadErrorWorks(t *testing.T) {
	env, err := NewRecordEnv(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		source string
		says   string
		works  []string
	}{
		{`event.user-id`, `p.yaml:7:21: write.mappings[0].rowKey: user-id cannot stand behind a dot: write event["user-id"]`, []string{`event["user-id"]`}},
		{`"u" + event.a.user-id`, `write event.a["user-id"]`, []string{`"u" + event.a["user-id"]`}},
		{`event.items[0].x-y`, `write event.items[0]["x-y"]`, []string{`event.items[0]["x-y"]`}},
		{`event.?user-id.orValue("x")`, `write event[?"user-id"]`, []string{`event[?"user-id"].orValue("x")`}},
		{`message.attributes.content-type`, `write message.attributes["content-type"]`, []string{`message.attributes["content-type"]`}},
		{`event.in`, `in cannot stand behind a dot: write event["in"]`, []string{`event["in"]`}},
		{`event.true + "x"`, `write event["true"]`, []string{`event["true"] + "x"`}},
		{`event.?null.orValue("")`, `write event[?"null"]`, []string{`event[?"null"].orValue("")`}},
		{`event.@type`, `write event["@type"]`, []string{`event["@type"]`}},
		{`event.$ref`, `write event["$ref"]`, []string{`event["$ref"]`}},
		{`event.1a`, `write event["1a"]`, []string{`event["1a"]`}},
		{`event.items.0`, `an element of a list is event.items[0], a field of that name event.items["0"]`, []string{`event.items[0]`, `event.items["0"]`}},
		{`has(event.user-id) ? "a" : "b"`, `write "user-id" in event`, []string{`"user-id" in event ? "a" : "b"`}},
		{`has(event["a"]) ? "a" : "b"`, `write "a" in event`, []string{`"a" in event ? "a" : "b"`}},
		{`let`, `let is neither a variable nor a function here: to mean the text, quote it twice, since YAML takes the outer quotes away: '"let"'; a field of the record is event.let`, []string{`"let"`, `event.let`}},
		{`push`, `quote it twice, since YAML takes the outer quotes away: '"push"'`, []string{`"push"`}},
		{`"x.in" + foo`, `foo is neither a variable`, []string{`"x.in" + "foo"`}},
		{`"a" + raw`, `+ does not take (string, bytes): convert the text with bytes(…)`, []string{`bytes("a") + raw`}},
		{`raw + string(event.a)`, `convert the text with bytes(…)`, []string{`raw + bytes(string(event.a))`}},
		{`"\xff" + raw`, `as in b"\xff"`, []string{`b"\xff" + raw`}},
		{`substr(event.a, 1)`, `substr is no function here; did you mean ….substring(…)?`, []string{`event.a.substring(1)`}},
		{`event.a.toUpper()`, `did you mean ….upperAscii(…)?`, []string{`event.a.upperAscii()`}},
		{`lower(event.a)`, `did you mean ….lowerAscii(…)?`, []string{`event.a.lowerAscii()`}},
		{`string(timestmap(event.a))`, `did you mean timestamp(…)?`, []string{`string(timestamp(event.a))`}},
		{`string(event.a.len())`, `did you mean size(…)?`, []string{`string(size(event.a))`}},
		{`event.?a.coalesce("x")`, `did you mean ….orValue(…)?`, []string{`event.?a.orValue("x")`}},
		{`string(now())`, `the time of the message is message.publishTime`, []string{`string(message.publishTime)`}},
		{`event.?a.orElse("x")`, `did you mean ….orValue(…)?`, []string{`event.?a.orValue("x")`}},
		{`ifnull(event.?a, "x")`, `did you mean ….orValue(…)?`, nil},
		{`trim(event.a)`, `trim() stands behind its value: write ….trim()`, []string{`event.a.trim()`}},
		{`startsWith(event.a, "x") ? "a" : "b"`, `startsWith() stands behind its value: write ….startsWith(…)`, []string{`event.a.startsWith("x") ? "a" : "b"`}},
		{`format("%s-%s", event.a, event.b)`, `format() stands behind its value: write ….format(…)`, []string{`"%s-%s".format([event.a, event.b])`}},
		{`hex(event.a.hash())`, `hash() takes its value in the parentheses: write hash(…)`, []string{`hex(hash(event.a))`}},
		{`if(event.a, "x", "y")`, `there is no if: write CONDITION ? A : B`, []string{`event.a ? "x" : "y"`}},
		{`reverse("2026-01-01")`, `reverse() does not take (string): it takes (timestamp): write timestamp("2026-01-01T00:00:00Z")`, []string{`reverse(timestamp("2026-01-01T00:00:00Z"))`}},
		{`reverse(5)`, `reverse() does not take (int): it takes (timestamp): convert seconds since 1970 with timestamp(), and milliseconds with timestamp(0) + duration(string(event.at) + "ms")`,
			[]string{`reverse(timestamp(5))`, `reverse(timestamp(0) + duration(string(event.at) + "ms"))`}},
		{`string(bucket(timestamp(event.a), "1h"))`, `bucket() does not take (timestamp, string): it takes (timestamp, duration): write duration("1h")`, []string{`string(bucket(timestamp(event.a), duration("1h")))`}},
		{`string(bucket(event.a, "hour"))`, `it takes (timestamp, duration): convert the text with duration(…), as in duration("1h30m")`, []string{`string(bucket(timestamp(event.a), duration("1h30m")))`}},
		{`pad(5)`, `pad() does not take (int): it takes (int, int)`, []string{`pad(5, 8)`}},
		{`pad("5", 8)`, `it takes (int, int): write 5 without quotes`, []string{`pad(5, 8)`}},
		{`hex(event.a + "x")`, `hex() does not take (string): it takes (bytes): convert the text with bytes(…)`, []string{`hex(bytes(event.a + "x"))`}},
		{`hex(hash(5))`, `hash() does not take (int): it takes (string) or (bytes)`, []string{`hex(hash("5"))`}},
		{`event.type <> "x" ? "a" : "b"`, `(inequality is !=)`, []string{`event.type != "x" ? "a" : "b"`}},
		{`not event.a ? "a" : "b"`, `(not is !)`, []string{`!event.a ? "a" : "b"`}},
		{`event.type in ("a", "b") ? "a" : "b"`, `(a list is in brackets, as in [a, b])`, []string{`event.type in ["a", "b"] ? "a" : "b"`}},
		{`event.type =~ "x.*" ? "a" : "b"`, `(a pattern is ….matches(…))`, []string{`event.type.matches("x.*") ? "a" : "b"`}},
		{`event.type like "x%" ? "a" : "b"`, `(a pattern is ….matches(…))`, []string{`event.type.matches("x.*") ? "a" : "b"`}},
		{`event?.note`, `(an optional field is event.?name)`, []string{`event.?note.orValue("")`}},
		{`event.?note ?? "x"`, `(a default is event.?name.orValue(…))`, []string{`event.?note.orValue("x")`}},
		{`hello world`, `(text stands in quotes)`, []string{`"hello world"`}},
		{`frobnicate(event.a)`, `frobnicate is no function here`, nil},
		{`event.?a + "x"`, `give the optional value a default with .orValue(…), or compute with it where it is present, in .optMap(x, …)`,
			[]string{`event.?a.orValue("") + "x"`, `event.?a.optMap(x, x + "x").orValue("")`}},
		{`event.?a == "x" ? "a" : "b"`, `with .orValue(…)`, []string{`event.?a.orValue("") == "x" ? "a" : "b"`}},
		{`string(int(event.?a))`, `with .orValue(…)`, []string{`string(int(event.?a.orValue(0)))`}},
		{`key("a", event.?a)`, `part 2 of key() is of type optional(dyn): a part is text or an integer; give it a default with .orValue(…)`, []string{`key("a", event.?a.orValue("x"))`}},
	} {
		if _, err := env.Compile(source(c.source), Key); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\ndoes not say %s", c.source, err, c.says)
		}
		for _, works := range c.works {
			if _, err := env.Compile(source(works), Key); err != nil {
				t.Errorf("%s, as the hint says: %v", works, err)
			}
		}
	}
}

// What a hint quotes must not end the quotes that YAML takes away.
func TestAHintFitsTheQuotesAroundTheExpression(t *testing.T) {
	for _, c := range []struct{ value, says, works string }{
		{`push`, `'"push"'`, `'"push"'`},
		{`"push"`, `'"push"'`, `'"push"'`},
		{`"event.type + push"`, `quote it: 'push'`, `"event.type + 'push'"`},
		{`'event.type + push'`, `quote it: "push"`, `'event.type + "push"'`},
		{`event.type + push`, `quote it: "push"`, `event.type + "push"`},
		{`"event.user-id"`, `write event['user-id']`, `"event['user-id']"`},
		{`'event.user-id'`, `write event["user-id"]`, `'event["user-id"]'`},
		{`event.user-id`, `write event["user-id"]`, `event["user-id"]`},
	} {
		if err := compileKey(t, c.value); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\ndoes not say %s", c.value, err, c.says)
		}
		if err := compileKey(t, c.works); err != nil {
			t.Errorf("%s, as the hint says: %v", c.works, err)
		}
	}
}

// compileKey compiles a row key as it stands in a file.
func compileKey(t *testing.T, value string) error {
	t.Helper()
	p, err := pipeline.Parse([]byte("version: 1\nname: orders\nbigtable: {project: p, instance: i}\ntables: {a: {families: {cf: {}}}}\n"+
		"write:\n  mappings:\n    - name: m\n      table: a\n      rowKey: "+value+"\n      mutations: [{deleteRow: true}]\n"), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	env, err := NewRecordEnv(false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = env.Compile(p.Write.Mappings[0].RowKey, Text)
	return err
}
