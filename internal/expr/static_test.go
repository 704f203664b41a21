package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func compileStatic(t *testing.T, source string) *Program {
	t.Helper()
	env, err := NewRecordEnv(true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := env.Compile(pipeline.Expr{Source: source, Pos: pipeline.Pos{Line: 1, Column: 1}, Exact: true}, Anything)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLeadsAreWhatAValueBeginsWith(t *testing.T) {
	for source, want := range map[string]string{
		`event.a.b`:                           "1:event.a.b()dyn",
		`event["a"].b`:                        "1:event.a.b()dyn",
		`event[?"a"]`:                         "1:event.a()dyn",
		`event.a[0]`:                          "1:()dyn",
		`item`:                                "1:item()dyn",
		`raw`:                                 "1:raw()bytes",
		`message.attributes["k"]`:             "1:message.attributes.k()string",
		`key("x", event.a)`:                   "10:event.a()dyn",
		`"x" + "y" + event.a + event.b`:       "13:event.a()dyn",
		`event.a + 1`:                         "1:(_+_)int",
		`int(event.a) + 1`:                    "1:(_+_)int",
		`event.c ? event.a : "x" + event.b`:   "11:event.a()dyn 27:event.b()dyn",
		`(event.c ? "x" : event.a) + event.b`: "18:event.a()dyn 29:event.b()dyn",
		`event.a.substring(2)`:                "1:(substring)string",
		`utcDate(message.publishTime)`:        "1:(utcDate)string",
		`string(message.publishTime)`:         "8:message.publishTime()timestamp",
		`timestamp(event.a).getHours()`:       "1:(getHours)int",
		`"x"`:                                 "",
		`key("x", salt("y", 2))`:              "",
		"\n  event.a":                         "3:event.a()dyn",
	} {
		var got []string
		for _, l := range compileStatic(t, source).Leads() {
			function := l.Function
			got = append(got, fmt.Sprintf("%d:%s(%s)%s", l.Pos.Column, l.Path, function, l.Type))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

func TestAnExpressionIsConstantOnlyWithoutVariables(t *testing.T) {
	for source, want := range map[string]bool{
		`"a" + "b"`: true, `timestamp("2026-01-01T00:00:00Z")`: true, `1 < 2 ? "a" : "b"`: true,
		`event.a`: false, `"a" + message.id`: false, `key("a", item)`: false,
	} {
		if got := compileStatic(t, source).IsConstant(); got != want {
			t.Errorf("%s: constant is %t", source, got)
		}
	}
}

func TestUsesFindsVariablesWhereverTheyStand(t *testing.T) {
	for source, want := range map[string]bool{
		`message.id`: true, `key("a", message.id)`: true, `event.l.filter(x, x == message.id)`: true,
		`event.message.id`: false, `"message.id"`: false, `message.orderingKey`: false,
	} {
		if got := compileStatic(t, source).Uses("message.id"); got != want {
			t.Errorf("%s: uses message.id is %t", source, got)
		}
	}
}
