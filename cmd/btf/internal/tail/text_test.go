package tail

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func TestARecordAsLines(t *testing.T) {
	long := strings.Repeat("eHh4", 40) // 120 bytes of text
	got, err := Lines([]byte(`{"rowKey":{"base64":"AP8="},"type":"USER","cluster":"c1","commitTime":"2026-08-30T10:15:31.5Z","entries":[
		{"index":0,"kind":"SET_CELL","family":"cf","qualifier":"total","timestamp":"T","valueType":"RAW_VALUE","valueBase64":"AAAAAAAAACo=","value":42},
		{"index":1,"kind":"SET_CELL","family":"cf","qualifier":"","timestamp":"T","valueBase64":"aGk="},
		{"index":2,"kind":"SET_CELL","family":"cf","qualifier":"q","timestamp":"T","valueBase64":"G1sxbQ=="},
		{"index":3,"kind":"SET_CELL","family":"cf","qualifier":"q","timestamp":"T","valueBase64":"` + long + `"},
		{"index":4,"kind":"SET_CELL","family":"cf","qualifier":"q","timestamp":"T","valueBase64":"` + strings.Repeat("AP8A", 40) + `"},
		{"index":5,"kind":"DELETE_CELLS","family":"cf","qualifier":"q","range":{"startBound":"CLOSED","startMicros":0,"endBound":"UNBOUNDED","endMicros":null}},
		{"index":6,"kind":"DELETE_CELLS","family":"cf","qualifier":"q","range":{"startMicros":5,"endMicros":9}},
		{"index":7,"kind":"DELETE_CELLS","family":"cf","qualifier":"q","range":{"startMicros":5,"endMicros":null}},
		{"index":8,"kind":"DELETE_FAMILY","family":"cf"},
		{"index":9,"kind":"ADD_TO_CELL","family":"sums","qualifier":"n","timestamp":"T","valueType":"INT64","value":-3},
		{"index":10,"kind":"MERGE_TO_CELL","family":"sums","qualifier":"n","timestamp":"T","valueBase64":""}]}`))
	want := []string{
		`2026-08-30T10:15:31.5Z  {"base64":"AP8="}  by c1`,
		"  set cf:total = 42  at T",
		`  set cf: = "hi"  at T`,
		"  set cf:q = 0x1b5b316d  at T",
		`  set cf:q = "` + strings.Repeat("xxx", 22)[:64] + `"... (120 bytes)  at T`,
		"  set cf:q = 0x" + strings.Repeat("00ff00", 22)[:128] + "... (120 bytes)  at T",
		"  delete cf:q",
		"  delete cf:q  from 5 µs to before 9 µs",
		"  delete cf:q  from 5 µs on",
		"  delete all of cf",
		"  add -3 to sums:n  at T",
		`  merge "" into sums:n  at T`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got, err = Lines([]byte(`{"rowKey":"k","type":"GARBAGE_COLLECTION","cluster":null,"commitTime":"T","entries":[]}`))
	if err != nil || !slices.Equal(got, []string{"T  k  by garbage collection"}) {
		t.Errorf("%v, %q", err, got)
	}
}

const choiceFile = `
version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders: {appProfile: plain, families: {cf: {}, other: {}, c.f: {}}}
  daily: {idFrom: event.day, idMatches: '^d[0-9]+$', families: {cf: {}}}
changes:
  feed: {table: orders, appProfile: one, filter: {families: {exclude: [other]}}, emit: {a: change.rowKey}, to: {log: {}}}
`

func choiceOf(t *testing.T, text, name string) (*pipeline.Change, error) {
	t.Helper()
	p, err := pipeline.Parse([]byte(text), pipeline.Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return Choose(p, name)
}

func TestAStreamOrATableIsChosenByItsName(t *testing.T) {
	for _, c := range []struct{ name, profile, want string }{
		{"feed", "one", ""}, {"", "one", ""}, {"orders", "plain", ""},
		{"daily", "", "neither a change stream"}, {"x", "", "there are feed, orders"},
	} {
		got, err := choiceOf(t, choiceFile, c.name)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v", c.name, err)
			}
			continue
		}
		if err != nil || got.AppProfile != c.profile || got.Served() != nil || got.MaxRecordBytes == 0 {
			t.Errorf("%q: %+v, %v", c.name, got, err)
		}
	}
	tables, _, _ := strings.Cut(choiceFile, "changes:")
	tables += "scans: {all: {table: orders, to: {log: {}}}}\n"
	if _, err := choiceOf(t, tables, ""); err == nil || !strings.Contains(err.Error(), "name one of these: orders") {
		t.Errorf("%v", err)
	}
	one := regexp.MustCompile("(?m)^  daily: .*\n").ReplaceAllString(tables, "")
	if got, err := choiceOf(t, one, ""); err != nil || got.Table.Name != "orders" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFamiliesAreThoseThatTheFileAndItsFilterHave(t *testing.T) {
	for _, c := range []struct {
		families []string
		want     string
	}{{[]string{"cf"}, ""}, {nil, ""}, {[]string{"cf", "other"}, "leaves family other out"}, {[]string{"c"}, "has no family c"}} {
		feed, err := choiceOf(t, choiceFile, "feed")
		if err != nil {
			t.Fatal(err)
		}
		if err := Only(feed, c.families); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.families, err)
		}
	}
	feed, err := choiceOf(t, choiceFile, "feed")
	if err != nil {
		t.Fatal(err)
	}
	if err := Only(feed, []string{"c.f"}); err != nil || feed.Filter.Families.Match("cxf") || !feed.Filter.Families.Match("c.f") || !feed.Filter.DropEmpty {
		t.Errorf("%v, %+v", err, feed.Filter)
	}
}

func TestATimeIsADurationBackOrATime(t *testing.T) {
	now := time.Date(2026, 8, 30, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"-1h": -time.Hour, "90m": -90 * time.Minute, "0s": 0, "2026-08-30T09:59:00Z": -time.Minute, "2026-08-30T12:00:00.5+02:00": time.Second / 2,
	} {
		if got, err := ParseTime(text, now); err != nil || got.Sub(now) != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "--1h", "1", "yesterday", "2026-08-30", "2026-08-30 10:00:00"} {
		if got, err := ParseTime(text, now); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
