package expr

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func source(text string) pipeline.Expr {
	return pipeline.Expr{Source: text, Place: "write.mappings[0].rowKey", Pos: pipeline.Pos{File: "p.yaml", Line: 7, Column: 15}, Exact: true}
}

func compile(t testing.TB, text string, want Want) *Program {
	t.Helper()
	env, err := NewRecordEnv(true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := env.Compile(source(text), want)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func sample() *Vars {
	return &Vars{
		Event: map[string]any{
			"type": "order", "n": int64(7), "big": uint64(1 << 63), "f": 1.5, "nothing": nil, "yes": true, "text": "abc", "num": "42",
			"at":    "2026-08-30T10:15:30.123Z",
			"fine":  "2026-08-30T10:15:30.123456Z",
			"items": []any{map[string]any{"sku": "x", "qty": int64(2)}, map[string]any{"sku": "y", "qty": int64(0)}},
			"o":     map[string]any{"deep": "down"},
		},
		Item:    map[string]any{"sku": "x"},
		Raw:     []byte("raw"),
		Message: &Message{ID: "m-1", PublishTime: time.Date(2026, 8, 30, 10, 15, 31, 0, time.UTC), Attributes: map[string]string{"kind": "a"}},
	}
}

func TestValues(t *testing.T) {
	at := time.Date(2026, 8, 30, 10, 15, 30, 123e6, time.UTC)
	for _, c := range []struct {
		source string
		want   any
	}{
		{`event.type`, "order"},
		{`event.o.deep`, "down"},
		{`event["o"].deep`, "down"},
		{`item.sku`, "x"},
		{`raw`, []byte("raw")},
		{`message.id`, "m-1"},
		{`message.attributes.kind`, "a"},
		{`message.attributes[?"none"].orValue("-")`, "-"},
		{`message.orderingKey`, ""},
		{`event.big`, uint64(1 << 63)},
		{`event.nothing`, nil},
		{`int(event.num)`, int64(42)},
		{`string(event.n)`, "7"},
		{`event.n + 1`, int64(8)},
		{`event.f > 1`, true},
		{`event.type in ["order", "view"]`, true},
		{`event.type == "view" || event.yes`, true},
		{`event.type == "order" && event.yes`, true},
		{`!event.yes`, false},
		{`event.?coupon.orValue("none")`, "none"},
		{`event.?nothing.orValue("none")`, "none"},
		{`event.?type.orValue("none")`, "order"},
		{`event.?nothing`, nil},
		{`event.?coupon`, Absent{}},
		{`event.?o.deep.orValue("none")`, "down"},
		{`has(event.nothing)`, true},
		{`has(event.coupon)`, false},
		{`timestamp(event.at)`, at},
		{`millis(timestamp(event.fine))`, at},
		{`bucket(timestamp(event.at), duration("1h"))`, at.Truncate(time.Hour)},
		{`utcDate(timestamp(event.at))`, "2026-08-30"},
		{`key("order", event.type, event.n)`, "order#order#7"},
		{`pad(event.n, 4)`, "0007"},
		{`salt(event.type, 100)`, "19"},
		{`hex(hash("abc"))`, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{`reverse(timestamp("1970-01-01T00:00:00Z"))`, "7fffffffffffffff"},
		{`event.items.filter(i, int(i.qty) > 0)`, []any{map[string]any{"sku": "x", "qty": int64(2)}}},
		{`{"a": event.n, "b": [null, 1.5]}`, map[string]any{"a": int64(7), "b": []any{nil, 1.5}}},
		{`"\xff"`, "ÿ"},
		{`b"\xff"`, []byte{0xff}},
	} {
		vars := sample()
		got, err := compile(t, c.source, Anything).Eval(vars)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s = %#v, %v; want %#v", c.source, got, err, c.want)
		}
	}
}

// covers: SQL-22
func TestMillisAndBucketRoundTowardThePastAlsoBefore1970(t *testing.T) {
	for source, want := range map[string]string{
		`millis(timestamp("1969-12-31T23:59:59.9999Z"))`:                 "1969-12-31T23:59:59.999Z",
		`bucket(timestamp("1969-12-31T23:30:00Z"), duration("1h"))`:      "1969-12-31T23:00:00Z",
		`bucket(timestamp("1970-01-01T00:00:00Z"), duration("1h"))`:      "1970-01-01T00:00:00Z",
		`bucket(timestamp("2026-08-30T10:15:30.5Z"), duration("500ms"))`: "2026-08-30T10:15:30.5Z",
	} {
		got, err := compile(t, source, Timestamp).Eval(sample())
		if err != nil || got.(time.Time).UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%s = %v, %v; want %s", source, got, err, want)
		}
	}
}

func TestALoadErrorNamesThePlaceAndWhatToWrite(t *testing.T) {
	for _, c := range []struct {
		source string
		want   Want
		says   string
	}{
		{`event.status == PAID`, Bool, `p.yaml:7:31: write.mappings[0].rowKey: PAID is neither a variable nor a function here: to mean the text, quote it: "PAID"`},
		{`"a" + 1`, Text, `+ does not take (string, int): convert the int with string(…)`},
		{`"1" > 2`, Bool, `> does not take (string, int): write 1 without quotes`},
		{`message.idd`, Text, `message has the fields id, publishTime`},
		{`key("a", 1.5)`, Text, `p.yaml:7:24: write.mappings[0].rowKey: part 2 of key() is of type double`},
		{`timestamp("2026-08-30T10:15:30Z")`, Text, `is of type timestamp, and this place takes text: convert with string(…)`},
		{`event.?a`, Text, `is optional, and this place needs a value: add .orValue(…)`},
		{`event.?a.orValue("x"`, Text, `syntax error`},
		{`"a".orValue("b")`, Text, `orValue stands after an optional value`},
		{`event.type = "x"`, Bool, `(equality is ==)`},
		{`event.a and event.b`, Bool, `(and is &&)`},
		{`$.status`, Text, `(a field of the record is event.name)`},
		{`1 + 1`, Bool, `is of type int, and this place takes a bool`},
		{`pad("7", 4)`, Text, `pad() does not take (string, int): it takes (int, int): write 7 without quotes`},
	} {
		env, err := NewRecordEnv(false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = env.Compile(source(c.source), c.want)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\n does not say %q", c.source, err, c.says)
		}
	}
}

func TestARunTimeErrorNamesTheFaultAndNoValue(t *testing.T) {
	for _, c := range []struct {
		source string
		want   Want
		says   string
	}{
		{`event.counter`, Text, "no such key: counter"},
		{`event.o.out`, Text, "no such key: out"},
		{`event[event.text]`, Anything, "no such key"},
		{`event.n`, Text, "is int, and this place takes text: convert with string(…)"},
		{`event.nothing`, Text, "is null, and this place takes text"},
		{`int(event.text)`, Anything, "int() cannot take this value"},
		{`timestamp(event.text)`, Timestamp, "timestamp() takes RFC 3339 text"},
		{`event.type + event.n`, Text, "+ does not take (string, int): convert the int with string(…)"},
		{`key(event.f)`, Text, "part 1 of key() is double"},
		{`key(event.text, "")`, Text, "part 2 of key() is empty"},
		{`key("a#b")`, Text, "part 1 of key() contains #"},
		{`pad(-1, 4)`, Text, "pad() of a negative number"},
		{`pad(event.text, 4)`, Text, "pad() does not take (string, int)"},
		{`event.items[9]`, Anything, "index out of bounds"},
		{`event.n / 0`, Anything, "division by zero"},
		{`9223372036854775807 + event.n`, Anything, "integer overflow"},
		{`event.type && true`, Bool, "does not take (string, bool)"},
		{`event.yes ? event.text : "x"`, Bool, "is string, and this place takes a bool"},
		{`event.text.sku`, Text, ""},
		{`event.items.map(a, event.items.map(b, event.items.map(c, "x".replace("", "yyyyyyyyyyyyyyyyyyyyyyy")))).size() > 0`, Anything, ""},
	} {
		got, err := compile(t, c.source, c.want).Eval(sample())
		if c.says == "" && err == nil {
			continue
		}
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s = %v, %v; want an *Error", c.source, got, err)
			continue
		}
		if !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %q does not say %q", c.source, e.Message, c.says)
		}
		if strings.Contains(e.Message, "abc") {
			t.Errorf("%s: %q quotes the record", c.source, e.Message)
		}
	}
}

func TestAnExpressionThatIteratesTooMuchIsStopped(t *testing.T) {
	list := make([]any, 1000)
	for i := range list {
		list[i] = int64(i)
	}
	vars := &Vars{Event: list, Message: &Message{}}
	_, err := compile(t, `event.map(a, event.map(b, event.map(c, a + b + c))).size() > 0`, Bool).Eval(vars)
	if err == nil || !strings.Contains(err.Error(), "exceeds the cost limit of 2000000 units") {
		t.Fatalf("%v, want the cost limit", err)
	}
}

func TestACallThatWouldMakeTooMuchTextIsRefused(t *testing.T) {
	big := strings.Repeat("ab", 1<<19)
	list := make([]any, 1000)
	for i := range list {
		list[i] = "x"
	}
	vars := &Vars{Event: map[string]any{"a": big, "l": list}, Message: &Message{}}
	for source, says := range map[string]string{
		`event.a.replace("a", event.a)`:                                        "replace() would make more than",
		`event.a.replace("", event.a)`:                                         "replace() would make more than",
		`event.a.replace("a", event.a, 1000)`:                                  "replace() would make more than",
		`event.l.join(event.a)`:                                                "join() would make more than",
		`event.l.map(x, [event.l, event.l])`:                                   "a value of more than",
		`event.l.map(x, hex(bytes(event.a)))`:                                  "exceeds the cost limit",
		`event.l.map(x, key(event.a))`:                                         "exceeds the cost limit",
		`event.a.replace("a", "c", 1).startsWith("cb")`:                        "",
		`["x", "y"].join("-") + ["x"].join() + event.l.join().substring(0, 1)`: "",
	} {
		_, err := compile(t, source, Anything).Eval(vars)
		if (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", source, err, says)
		}
	}
}

// A separator stands between any two parts, also beside empty ones: ["", "a"] and ["a"] are
// two texts, and two keys.
func TestJoinSeparatesEmptyParts(t *testing.T) {
	for source, want := range map[string]string{
		`["", "a"].join(",")`:               ",a",
		`["", ""].join("#")`:                "#",
		`["", "", "a", ""].join(",")`:       ",,a,",
		`[event.e, "x", event.e].join("-")`: "-x-",
		`[""].join(",")`:                    "",
		`["a", "", "b"].join()`:             "ab",
	} {
		vars := &Vars{Event: map[string]any{"e": ""}, Message: &Message{}}
		if got, err := compile(t, source, Text).Eval(vars); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", source, got, err, want)
		}
	}
}

// The fast path may only ever answer what the interpreter answers.
func TestFastPathAgreesWithTheInterpreter(t *testing.T) {
	values := []any{"2026-08-30T1:15:30Z", "2026-08-30T10:15:30,5Z", "2026-08-30T10:15:30.5Z", "2026-08-30T10:15:30.Z", "2026-08-30T10:15:30+24:00", "2026-08-30T10:15:30+00:60",
		"2026-08-30T10:15:30+02:00", "2026-08-30T10:15:60Z", "2026-02-30T10:15:30Z", "0000-01-01T00:00:00Z", "2026-08-30T10:15:30.1234567891Z", "2026-08-30t10:15:30z",
		nil, true, int64(-3), uint64(9), 2.5, "x", "", "12", "a#b", "2026-08-30T10:15:30Z", []any{"x"}, map[string]any{"a": "x"}}
	sources := []string{
		`event.a`, `event.a.b`, `int(event.a)`, `string(event.a)`, `timestamp(event.a)`, `event.a == "x"`, `event.a != event.b`,
		`event.a && event.b`, `event.a || event.b`, `!event.a`, `event.a in ["x", "y"]`, `event.a + event.b`, `key(event.a, event.b)`,
		`event.?a.orValue(event.b)`, `event.?c.orValue("d")`, `pad(event.a, 3)`, `hex(hash(event.a))`, `millis(timestamp(event.a))`, `utcDate(timestamp(event.a))`,
		`event.a.replace(event.b, "-")`, `event.a.replace("", event.b)`, `event.a.startsWith(event.b)`, `event.a.endsWith("Z")`, `event.a.contains(event.b)`,
		`salt(event.a, 7)`, `reverse(timestamp(event.a))`, `event.a`, `item`, `"const"`,
	}
	for _, s := range sources {
		p := compile(t, s, Anything)
		if p.fast == nil {
			t.Errorf("%s has no fast form", s)
			continue
		}
		slow := *p
		slow.fast = nil
		for _, a := range values {
			for _, b := range values {
				vars := &Vars{Event: map[string]any{"a": a, "b": b}, Item: a, Message: &Message{}}
				x, errX := p.Eval(vars)
				y, errY := slow.Eval(vars)
				if (errX == nil) != (errY == nil) || errX == nil && !reflect.DeepEqual(x, y) {
					t.Fatalf("%s with a=%#v, b=%#v: fast %#v, %v; interpreter %#v, %v", s, a, b, x, errX, y, errY)
				}
			}
		}
	}
}

func BenchmarkEval(b *testing.B) {
	for _, s := range []string{`event.type`, `key("order", event.type, event.n)`, `int(event.num)`, `timestamp(event.at)`, `event.type in ["view", "order"]`, `event.?coupon.orValue("none")`, `timestamp(event.at.replace("Z", "") + "Z")`} {
		p := compile(b, s, Anything)
		slow := *p
		slow.fast = nil
		vars := sample()
		for name, p := range map[string]*Program{"fast": p, "interpreter": &slow} {
			b.Run(s+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.Eval(vars); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
