package mapping

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// covers: SC-15, SQL-10, SQL-12, LKP-05
func TestAScanIsCompiledToOneFilter(t *testing.T) {
	for scan, want := range map[string]string{
		"":                                  "",
		"cells: {families: [cf]}":           `family_name_regex_filter: "cf"`,
		"cells: {families: [cf, odd-name]}": `interleave { filters { family_name_regex_filter: "cf" } filters { family_name_regex_filter: "odd\\-name" } }`,
		"cells: {columns: {cf: [status]}, versions: 2, since: '2026-08-01T00:00:00Z', until: '2026-08-01T00:00:00.001Z'}": `chain {
			filters { chain { filters { family_name_regex_filter: "cf" } filters { column_qualifier_regex_filter: "status" } } }
			filters { timestamp_range_filter { start_timestamp_micros: 1785542400000000 end_timestamp_micros: 1785542400001000 } }
			filters { cells_per_column_limit_filter: 2 } }`,
		"cells: {columns: {cf: [status, a.b], odd-name: ['']}}": `interleave {
			filters { chain { filters { family_name_regex_filter: "cf" } filters { column_qualifier_regex_filter: "status|a\\.b" } } }
			filters { chain { filters { family_name_regex_filter: "odd\\-name" } filters { column_qualifier_regex_filter: "" } } } }`,
		"cells: {keysOnly: true}":                    `chain { filters { cells_per_row_limit_filter: 1 } filters { strip_value_transformer: true } }`,
		"emit: {x: rowKey}":                          `cells_per_column_limit_filter: 1`,
		"when: row.cf.total > 0":                     "", // the whole row, all versions of it
		`cells: {filter: 'value_regex_filter: "a"'}`: `value_regex_filter: "a"`,
	} {
		got, err := ReadFilter(scanOf(t, "string", scan))
		if err != nil {
			t.Errorf("%s: %v", scan, err)
			continue
		}
		if want == "" {
			if got != nil {
				t.Errorf("%s: %v, want no filter", scan, got)
			}
			continue
		}
		var expected bigtablepb.RowFilter
		if err := prototext.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, &expected) {
			t.Errorf("%s:\ngot  %v\nwant %v", scan, got, &expected)
		}
	}
}

// issue-row: 10
func TestAFilterOverTheServicesLimitIsRefused(t *testing.T) {
	columns := func(n int) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("c%09d", i))
		}
		return "cells: {columns: {cf: [" + strings.Join(names, ", ") + "]}}"
	}
	if _, err := ReadFilter(scanOf(t, "string", columns(1800))); err != nil {
		t.Errorf("under the limit: %v", err)
	}
	if _, err := ReadFilter(scanOf(t, "string", columns(1900))); err == nil || !strings.Contains(err.Error(), "20480") {
		t.Errorf("over the limit: %v", err)
	}
}

func TestATextThatIsNoFilterIsRefusedWithItsPlace(t *testing.T) {
	_, err := ReadFilter(scanOf(t, "string", `cells: {filter: 'value_regex: "a"'}`))
	if err == nil || !strings.Contains(err.Error(), "p.yaml:16:21: cells.filter is no RowFilter") {
		t.Error(err)
	}
}

func TestAWindowIsOfWholeMilliseconds(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var none time.Time
	for _, c := range []struct {
		since, until time.Time
		want         string
	}{
		{at("2026-08-01T00:00:00.001Z"), none, ""},
		{at("2026-08-01T00:00:00.0001Z"), none, "since is finer than a millisecond"},
		{none, at("2026-08-01T00:00:00.0001Z"), "until is finer than a millisecond"},
		{at("1969-12-31T23:59:59Z"), none, "before 1970"},
		{at("2026-08-01T00:00:00Z"), at("2026-08-01T00:00:00Z"), "no time lies between"},
		{none, at("1970-01-01T00:00:00Z"), "no cell's time is before it"},
	} {
		s := scanOf(t, "string", "")
		s.Cells.Since, s.Cells.Until = c.since, c.until
		_, err := ReadFilter(s)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("[%s, %s): %v, want %q", c.since, c.until, err, c.want)
		}
	}
}

// A pattern of quoted names matches those names alone, byte for byte, in RE2 over
// Latin-1, which is how the service reads patterns of bytes.
func TestQuotedNamesMatchThemselvesAlone(t *testing.T) {
	latin1 := func(b []byte) string {
		var s strings.Builder
		for _, c := range b {
			s.WriteRune(rune(c))
		}
		return s.String()
	}
	name := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte(".|[](){}*+?^$\\\x00\n-_a"))), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(name, 1, 4).Draw(t, "names")
		other := name.Draw(t, "other")
		re, err := regexp.Compile("^(?:" + latin1(anyOf(names)) + ")$")
		if err != nil {
			t.Fatal(err)
		}
		among := false
		for _, n := range names {
			among = among || string(n) == string(other)
			if !re.MatchString(latin1(n)) {
				t.Errorf("%q does not match itself", n)
			}
		}
		if re.MatchString(latin1(other)) != among {
			t.Errorf("%q matches a pattern of %q: %t", other, names, !among)
		}
	})
}
