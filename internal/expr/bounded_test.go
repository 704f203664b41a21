package expr

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

// cpu returns the processor time of this thread, which the load of others does not change.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Skip("this system does not count a thread's time: ", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// largeVars is a record of about Pub/Sub's largest message.
func largeVars() *Vars {
	text := strings.Repeat("ab", 4<<20)
	list := make([]any, 100_000)
	for i := range list {
		list[i] = "element"
	}
	return &Vars{
		Event: map[string]any{
			"text": text, "half": text[:4<<20], "long": strings.Repeat("a", 1<<20) + "b", "list": list, "digits": strings.Repeat("7", 8<<20),
			"pattern": "(a|b|ab){100}c", "counted": "(abcdefghijklmnopqrstuvwxyz){1000}", "longPattern": strings.Repeat("a", 2000), "n": int64(3),
			"at": "2026-08-30T10:15:30Z",
		},
		Raw:     []byte(text),
		Message: &Message{ID: "m-1", PublishTime: time.Date(2026, 8, 30, 10, 15, 31, 0, time.UTC)},
	}
}

// largeCalls are calls of every function of text, bytes and lists with large arguments, and
// the hostile ones among them.
var largeCalls = []string{
	`event.text.matches("(a|ab|b){1,1000}c{1,1000}$")`, `event.text.matches(event.pattern)`, `event.text.matches(event.counted)`,
	`event.text.matches(event.longPattern)`, `event.text.matches(event.text)`, `event.text.matches("^(a?){900}a{900}$")`,
	`matches(event.text, ".*a.*b.*c.*d.*e$")`, `event.list.all(x, event.half.matches("(e|l){1,300}z"))`,
	`event.text.indexOf(event.half)`, `event.text.indexOf(event.long)`, `event.text.lastIndexOf(event.half)`, `event.text.lastIndexOf("a", 3)`,
	`event.text.indexOf("z", 5)`, `event.list.map(x, event.text.indexOf("z"))`, `event.text.contains(event.long)`, `event.text.startsWith(event.half)`,
	`event.text.endsWith(event.half)`, `event.text.split("a")`, `event.text.split("")`, `event.text.split("b", 3)`, `event.text.replace("a", "bb")`,
	`event.text.replace("a", event.half)`, `event.text.substring(3)`, `event.text.substring(3, 4000000)`, `event.text.charAt(4000000)`,
	`event.text.lowerAscii()`, `event.text.upperAscii()`, `event.text.trim()`, `event.text.reverse()`, `strings.quote(event.text)`,
	`"%s%s%s%s".format([event.text, event.text, event.text, event.text])`, `"%s".format([event.list])`,
	`event.list.join(event.half)`, `event.list.join()`, `event.text + event.text + event.text + event.text + event.text + event.text`,
	`event.list + event.list`, `event.list.map(x, event.text + x)`, `size(event.text)`, `bytes(event.text)`, `string(raw)`, `raw + raw + raw + raw`,
	`base64.encode(raw)`, `base64.decode(event.half)`, `hash(event.text)`, `hex(raw)`, `key(event.text, event.text, event.text)`, `salt(event.text, 100)`,
	`int(event.digits)`, `double(event.digits)`, `uint(event.digits)`, `timestamp(event.digits)`, `duration(event.digits)`, `bool(event.text)`,
	`event.text == event.half + event.half`, `event.text < event.half`, `event.text in event.list`, `event.list == event.list`,
	`event.list.exists(x, x in event.list)`, `event.list.filter(x, event.list.exists(y, y == x + "z"))`, `{"a": event.text}`, `[event.text, event.half]`,
	`event.text.matches("a") && event.text.matches("b") && event.text.matches("(a|b)+") && event.text.matches("(a|b)*b$")`,
}

// No evaluation takes more than a second of processor time or 64 MiB, whatever the record
// and the pattern.
func TestNoEvaluationIsLong(t *testing.T) {
	slower := 1
	if race.Enabled {
		slower = 20
	}
	vars := largeVars()
	for _, source := range largeCalls {
		p := compile(t, source, Anything)
		runtime.LockOSThread()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := cpu(t)
		_, err := p.Eval(vars)
		took := cpu(t) - began
		runtime.ReadMemStats(&after)
		runtime.UnlockOSThread()
		if took > time.Second*time.Duration(slower) {
			t.Errorf("%s: %v of processor time (%v)", source, took, err)
		}
		// What is made in all; what is held at once is less.
		if made := after.TotalAlloc - before.TotalAlloc; made > uint64(64<<20*slower) {
			t.Errorf("%s: %d MiB (%v)", source, made>>20, err)
		}
		var failed *Error
		if err != nil && (!errors.As(err, &failed) || strings.Contains(err.Error(), "abab")) {
			t.Errorf("%s: %.200v", source, err)
		}
	}
}

func TestWhatIsTooLongNamesTheLimitAndThePlace(t *testing.T) {
	vars := largeVars()
	for source, want := range map[string]string{
		`event.text.matches("(a|b){10}c")`:                                 "write.mappings[0].rowKey: exceeds the cost limit of 2000000 units",
		`event.text.indexOf(event.half) > 0`:                               "exceeds the cost limit",
		`event.text.split("a").size() > 0`:                                 "exceeds the cost limit",
		`event.text.matches(event.counted)`:                                "a pattern of matches() repeats to more than 10000 steps",
		`event.text.matches(event.longPattern)`:                            "a pattern of matches() has more than 1000 bytes",
		`event.half.matches("a(")`:                                         "takes a regular expression (RE2), which its pattern is not",
		`event.text.substring(0, 1000).matches("b")`:                       "", // as the message advises
		`event.at.matches("^\\d{4}-\\d{2}")`:                               "",
		`event.at.indexOf("T") == 10`:                                      "",
		`event.at.split("-").size() == 3`:                                  "",
		`"%d.%s".format([1, "a"]) == "1.a"`:                                "",
		`"%.2f".format([1.5]) == "1.50"`:                                   "",
		`event.list.size() == 100000`:                                      "",
		`event.at.matches("(?i)2026.*z")`:                                  "",
		`"ABC".lowerAscii() + "x".upperAscii()+"c".reverse() == "abcXc"`:   "",
		`"äöü".charAt(1) == "ö" && "äöü".substring(1, 2) == "ö"`:           "",
		`"a-b-a".lastIndexOf("a") == 4 && "a-b-a".indexOf("a", 1) == 4`:    "",
		`strings.quote(" a ".trim()) == "\"a\""`:                           "",
		`"a,b,c".split(",", 2) == ["a", "b,c"] && matches("abc", "^a.c$")`: "",
	} {
		v, err := compile(t, source, Bool).Eval(vars)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
		if want == "" && v != true {
			t.Errorf("%s: %v", source, v)
		}
	}
}

func TestPatternsAreKeptAFewAtATime(t *testing.T) {
	p := &patterns{}
	for i := range 10 * maxPatterns {
		if c := p.compile(strings.Repeat("x", i+1)); c.err != nil {
			t.Fatal(c.err)
		}
		if len(p.known) > maxPatterns {
			t.Fatalf("%d patterns are kept", len(p.known))
		}
	}
}

// One instant and one number have one text, whatever the record's spelling.
func TestOneValueHasOneText(t *testing.T) {
	vars := &Vars{Event: map[string]any{
		"utc": "2026-08-30T10:00:00Z", "zone": "2026-08-30T12:00:00+02:00", "lower": "2026-08-30t10:00:00z", "zeros": "2026-08-30T10:00:00.000Z",
		"int": int64(100), "double": 100.0, "large": 1e15, "largeInt": int64(1e15), "zero": 0.0, "minus": negativeZero(), "third": 0.1,
		"list": []any{map[string]any{"n": 100.0}},
	}, Message: &Message{}}
	for _, texts := range [][]string{
		{`string(timestamp(event.utc))`, `string(timestamp(event.zone))`, `string(timestamp(event.lower))`, `string(timestamp(event.zeros))`,
			`"" + string(timestamp(event.?zone.orValue("")))`, `string(timestamp("2026-08-30T05:00:00-05:00"))`},
		{`string(event.int)`, `string(event.double)`, `event.list.map(x, string(x.n))[0]`},
		{`string(event.large)`, `string(event.largeInt)`},
		{`string(event.zero)`, `string(event.minus)`, `string(0)`},
		{`string(event.third)`, `"0.1"`},
	} {
		first := ""
		for i, source := range texts {
			v, err := compile(t, source, Text).Eval(vars)
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			if i == 0 {
				first = v.(string)
			}
			if v != first {
				t.Errorf("%s is %q, and %s is %q", source, v, texts[0], first)
			}
		}
	}
}

func negativeZero() float64 {
	zero := 0.0
	return -zero
}

// A number that a double does not hold is refused where its digits would show, and is a
// double elsewhere.
func TestNoDigitsAreInvented(t *testing.T) {
	n := cell.Inexact{Double: 0.12345678901234568, Text: "0.123456789012345678901"}
	vars := &Vars{Event: map[string]any{"n": n, "list": []any{n}}, Message: &Message{}}
	for source, fails := range map[string]bool{
		`string(event.n)`: true, `"x" + string(event.n)`: true, `string(event.n) + event.?a.orValue("")`: true, `event.n`: true,
		`event.n < 1.0 ? "a" : "b"`: false, `1.0 > event.n ? "a" : "b"`: false, `event.n + 1.0 > 1.0 ? "a" : "b"`: false, `event.list.exists(x, x < 1.0) ? "a" : "b"`: false,
	} {
		v, err := compile(t, source, Text).Eval(vars)
		if (err != nil) != fails || err != nil && !strings.Contains(err.Error(), "more digits than a double holds") || err == nil && v != "a" {
			t.Errorf("%s: %v %v", source, v, err)
		}
	}
	v, err := compile(t, `event`, Anything).Eval(vars)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := (cell.Encoding{Kind: cell.JSON}).Append(nil, v, ""); err != nil || !strings.Contains(string(b), n.Text) {
		t.Errorf("a JSON column: %s %v", b, err)
	}
}

func FuzzCallsWithLargeTexts(f *testing.F) {
	for _, seed := range []string{"a", "ab", "(a|b)*", "a{1,1000}", "", "\xff", "%s%.9f"} {
		f.Add(seed, uint16(1000))
	}
	env, err := NewRecordEnv(false)
	if err != nil {
		f.Fatal(err)
	}
	var programs []*Program
	for _, text := range []string{
		`event.a.matches(event.b)`, `event.a.indexOf(event.b)`, `event.a.lastIndexOf(event.b)`, `event.a.split(event.b)`, `event.a.replace(event.b, event.a)`,
		`event.b.format([event.a, event.a])`, `[event.a, event.a].join(event.b)`, `event.a + event.b`, `timestamp(event.b)`, `event.a.contains(event.b)`,
	} {
		p, err := env.Compile(source(text), Anything)
		if err != nil {
			f.Fatal(err)
		}
		programs = append(programs, p)
	}
	f.Fuzz(func(t *testing.T, b string, times uint16) {
		if len(b) > 2000 {
			return
		}
		vars := &Vars{Event: map[string]any{"a": strings.Repeat(b, int(times)), "b": b}, Message: &Message{}}
		for _, p := range programs {
			began := time.Now()
			_, _ = p.Eval(vars)
			if took := time.Since(began); took > 20*time.Second { // far above a second, for a loaded machine
				t.Fatalf("%s: %v", p.Source().Source, took)
			}
		}
	})
}
