package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func row(source string) pipeline.Expr {
	return pipeline.Expr{Source: source, Place: "scans.all.when", Exact: true, Pos: pipeline.Pos{File: "p.yaml", Line: 1, Column: 1}}
}

func TestAHintIsSomethingThatWorks(t *testing.T) {
	env := rowEnv(t, false)
	for _, c := range []struct{ source, want, works string }{
		{`row.cf.price > 1000`, "> does not take (string, int): a decimal is text, every digit of it: convert it with double(row.cf.price)", `double(row.cf.price) > 1000`},
		{`2.5 <= row.cf.price`, "convert it with double(row.cf.price)", `2.5 <= double(row.cf.price)`},
		{`row.cf.price + 1`, "convert it with double(row.cf.price)", `double(row.cf.price) + 1.0 > 0.0`},
		{`row.cf.day > "2026-01-01"`, `> does not take (timestamp, string): write timestamp("2026-01-01T00:00:00Z")`, `row.cf.day > timestamp("2026-01-01T00:00:00Z")`},
		{`row.cf.at > "2026-01-01T02:00:00+01:00"`, `write timestamp("2026-01-01T02:00:00+01:00")`, `row.cf.at > timestamp("2026-01-01T02:00:00+01:00")`},
		{`row.cf.at > "2026-01-01 02:00:00"`, `write timestamp("2026-01-01T02:00:00Z")`, `row.cf.at > timestamp("2026-01-01T02:00:00Z")`},
		{`row.cf.at > "yesterday"`, `convert the text with timestamp(…), as in timestamp("2026-08-30T00:00:00Z")`, `row.cf.at > timestamp("2026-08-30T00:00:00Z")`},
		{`row.cf.at > row.cf.status`, `convert the text with timestamp(…), as in timestamp("2026-08-30T00:00:00Z")`, `row.cf.at > timestamp(row.cf.status)`},
		{`row.cf.clock > "01:02:03"`, `write duration("1h2m3s")`, `row.cf.clock > duration("1h2m3s")`},
		{`row.cf.clock > "90m"`, `write duration("90m")`, `row.cf.clock > duration("90m")`},
		{`row.cf.clock > "noon"`, `convert the text with duration(…), as in duration("1h30m")`, `row.cf.clock > duration("1h30m")`},
		{`row.cf.total > "1000"`, "> does not take (int, string): write 1000 without quotes", `row.cf.total > 1000`},
		{`row.cf.total > row.cf.status`, "convert the text with int(…)", `row.cf.total > int(row.cf.status)`},
		{`timestamp("2026-01-01") < row.cf.at`, `p.yaml:1:10: scans.all.when: timestamp("2026-01-01") can never be converted: write timestamp("2026-01-01T00:00:00Z")`, `timestamp("2026-01-01T00:00:00Z") < row.cf.at`},
		{`timestamp("today") < row.cf.at`, `can never be converted: write it as in timestamp("2026-08-30T00:00:00Z")`, `timestamp("2026-08-30T00:00:00Z") < row.cf.at`},
		{`duration("1:30") < row.cf.clock`, `duration("1:30") can never be converted: write duration("1h30m0s")`, `duration("1h30m0s") < row.cf.clock`},
		{`int("12.5") < row.cf.total`, `int("12.5") can never be converted`, `int("12") < row.cf.total`},
		{`bool("yes")`, `bool("yes") can never be converted`, `bool("true")`},
	} {
		if _, err := env.Compile(row(c.source), Bool); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.source, err, c.want)
		}
		if _, err := env.Compile(row(c.works), Bool); err != nil {
			t.Errorf("%s, as the hint says: %v", c.works, err)
		}
	}
}

func TestAHintAtRunTimeNamesTheDecimalToo(t *testing.T) {
	env := rowEnv(t, false)
	p, err := env.Compile(row(`row.cf.?price.orValue("0") > 1000`), Bool)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Holds(&Vars{Row: &Row{Table: env.table, Family: func(string, func(Cell)) {}}})
	if err == nil || !strings.Contains(err.Error(), "convert it with double(row.cf.price)") {
		t.Error(err)
	}
}

func TestAnOrderOfDecimalsAsTextIsFound(t *testing.T) {
	env := rowEnv(t, false)
	for source, want := range map[string]string{
		`row.cf.price > "1000"`:                      "double(row.cf.price)@1",
		`"9" <= row.cf.?price.orValue("0")`:          "double(row.cf.price)@8",
		`double(row.cf.price) > 1000`:                "",
		`row.cf.price == "10.00"`:                    "",
		`row.cf.status > "A"`:                        "",
		`row.cf.total > 1 && row.cf["price"] < "10"`: "double(row.cf.price)@21",
	} {
		p, err := env.Compile(row(source), Bool)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		at, number := p.DecimalOrders()
		got := ""
		for i := range at {
			got += fmt.Sprintf("%s@%d", number[i], at[i].Column)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// Most values are known at run time only: what a function takes is told then too.
func TestAHintAtRunTimeNamesWhatAFunctionTakes(t *testing.T) {
	env, err := NewRecordEnv(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		source string
		at     any
		want   string
	}{
		{`"a" + reverse(event.at)`, "2026-01-01T00:00:00Z", `reverse() does not take (string): it takes (timestamp): convert the text with timestamp(…), as in timestamp("2026-08-30T00:00:00Z")`},
		{`reverse(event.at)`, int64(1764556800123), `it takes (timestamp): convert seconds since 1970 with timestamp(), and milliseconds with timestamp(0) + duration(string(event.at) + "ms")`},
		{`utcDate(event.at)`, true, `utcDate() does not take (bool): it takes (timestamp)`},
		{`pad(event.at, 8)`, "7", `pad() does not take (string, int): it takes (int, int): convert the text with int(…)`},
		{`hex(hash(event.at))`, int64(7), `hash() does not take (int): it takes (string) or (bytes)`},
	} {
		p, err := env.Compile(source(c.source), Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Eval(&Vars{Event: map[string]any{"at": c.at}}); err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s: %v\nwant %s", c.source, err, c.want)
		}
	}
}
