package lint

import (
	"fmt"
	"strings"
	"testing"
)

// only returns the findings of a rule, one a line.
func only(findings Findings, rule Rule) string {
	var lines []string
	for _, f := range findings {
		if f.Rule == rule {
			lines = append(lines, fmt.Sprintf("%s %s: %s", f.Severity, f.Place, f.Message))
		}
	}
	return strings.Join(lines, "\n")
}

// expect holds the findings of a rule against part of what they should say; "" is none.
func expect(t *testing.T, findings Findings, rule Rule, want string) {
	t.Helper()
	got := only(findings, rule)
	if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "\n") && !strings.Contains(want, "\n") {
		t.Errorf("of rule %s: got  %q\nwant %q", rule, got, want)
	}
}

// writtenFile has a place for the family cf, for what stands in write, and for mutations.
const writtenFile = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders:
    key: %s
    families:
      cf: {%s}
      seen: {gc: %s}
write:
  %s
  mappings:
    - name: m
      table: orders
      rowKey: event.id
      mutations: %s
`

func writtenCase(t *testing.T, key, family, gc, write, mutations string) Findings {
	t.Helper()
	_, findings := load(t, fmt.Sprintf(writtenFile, key, family, gc, write, mutations))
	return findings
}

const (
	declares = "columns: {status: string, total: int64}"
	forty    = "{maxAge: 960h}"
	chosen   = "onFailure: dead-letter"
)

func TestColumnsThatAreWrittenAndNotDeclaredAreTold(t *testing.T) {
	for _, c := range []struct{ family, mutations, want string }{
		{declares, "[{set: {cf: {status: event.a}}}]", ""},
		{declares, "[{set: {cf: {statsu: event.a}}}]", `warning write.mappings[0].mutations[0].set.cf.statsu: family "cf" declares no column "statsu", which is then written as bytes: declare it, as bytes if it is, or write undeclaredColumns: allow in the family; did you mean "status"?`},
		{declares, "[{set: {cf: {unheard: event.a}}}]", `or write undeclaredColumns: allow in the family`},
		{declares, "[{deleteColumns: {cf: [totl]}}]", `so that there may be nothing to delete: declare it, as bytes if it is, or write undeclaredColumns: allow in the family; did you mean "total"?`},
		{declares + ", undeclaredColumns: allow", "[{set: {cf: {statsu: event.a}}}, {deleteColumns: {cf: [totl]}}]", ""},
		{declares + ", undeclaredColumns: warn", "[{set: {cf: {statsu: event.a}}}]", `did you mean "status"?`},
		{"", "[{set: {cf: {statsu: event.a}}}]", ""},
	} {
		expect(t, writtenCase(t, "string", c.family, forty, chosen, c.mutations), RuleUndeclared, c.want)
	}
}

func TestANullThatIsWrittenAsDataIsTold(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"status: 'null'", "warning write.mappings[0].mutations[0].set.cf.status: is always null, which writes the text of nullString"},
		{"total: 'null'", "is always null, which writes an empty cell"},
		{"total: 'event.a ? null : null'", "is always null"},
		{"total: event.a", ""},
		{"total: event.?a", ""},
		{"total: optional.none()", ""},
	} {
		expect(t, writtenCase(t, "string", declares, forty, chosen, "[{set: {cf: {"+c.value+"}}}]"), RuleNull, c.want)
	}
}

func TestKeysThatDoNotSortAsNumbersAreTold(t *testing.T) {
	for key, want := range map[string]string{
		"int64": "warning tables.orders.key: keys of type int64 sort as bytes, negative numbers after all others", "int8": "negative numbers",
		"decimal(4,2)": "do not sort as numbers", "string": "", "timestamp": "", "bytes": "",
	} {
		expect(t, writtenCase(t, "'"+key+"'", declares, forty, chosen, "[{set: {cf: {total: int(event.a)}}}]"), RuleNegative, want)
	}
}

func TestPoliciesThatNobodyChoseAreTold(t *testing.T) {
	const failure = "warning write.onFailure: is left at fail: a message with a record that can never be written is delivered 100 times, all of it, and then held in orders-undelivered"
	mutations := "[{set: {cf: {total: int(event.a)}}}]"
	expect(t, writtenCase(t, "string", declares, forty, "format: json", mutations), RulePolicy, failure)
	expect(t, writtenCase(t, "string", declares, forty, "onFailure: fail", mutations), RulePolicy, "")
	expect(t, writtenCase(t, "string", declares, forty, "onFailure: drop", mutations), RulePolicy, "")
	when := "[{set: {cf: {total: int(event.a)}}}]\n      when: event.b == 1"
	expect(t, writtenCase(t, "string", declares, forty, chosen, when), RulePolicy, "warning write.onUnmatched: is left at fail: a message with a record that no mapping takes")
	expect(t, writtenCase(t, "string", declares, forty, chosen+"\n  onUnmatched: fail", when), RulePolicy, "")
}

func TestMarkersThatAreNeverCollectedAreTold(t *testing.T) {
	marked := "[{set: {cf: {total: int(event.a)}}}]\n      dedupe: marker\n      dedupeId: event.e\n      markerFamily: seen"
	for gc, never := range map[string]bool{
		forty: false, "{maxVersions: 1}": true,
		"{union: [{maxVersions: 1}, {maxAge: 960h}]}":                                         false,
		"{intersection: [{maxVersions: 1}, {maxAge: 960h}]}":                                  true,
		"{intersection: [{maxAge: 1000h}, {maxAge: 960h}]}":                                   false,
		"{union: [{intersection: [{maxVersions: 1}, {maxAge: 960h}]}, {maxVersions: 2}]}":     true,
		"{intersection: [{union: [{maxVersions: 1}, {maxAge: 960h}]}, {maxAge: 1000h}]}":      false,
		"{union: [{intersection: [{maxAge: 1000h}, {maxAge: 960h}]}, {maxVersions: 100000}]}": false,
	} {
		got := strings.Contains(only(writtenCase(t, "string", declares, gc, chosen, marked), RuleMarker), "no marker is ever collected")
		if got != never {
			t.Errorf("%s: told %t", gc, got)
		}
	}
}

func TestTimesMadeOfAPartOfATimeAreNoNoOp(t *testing.T) {
	for timestamp, rounded := range map[string]bool{
		`timestamp(event.at)`:                                                            false,
		`timestamp(event.at) - duration("1h")`:                                           false,
		`millis(timestamp(event.at))`:                                                    false,
		`event.kind % 2 == 0 ? timestamp(event.a) : timestamp(event.b)`:                  false,
		`timestamp(event.date.replace("/", "-") + ":00Z")`:                               false,
		`timestamp(event["a/b"])`:                                                        false,
		`timestamp(int(event.at) / 3600 * 3600)`:                                         true,
		`timestamp(int(event.at) - int(event.at) % 60)`:                                  true,
		`timestamp(utcDate(timestamp(event.at)) + "T00:00:00Z")`:                         true,
		`timestamp(event.day + "T00:00:00Z")`:                                            true,
		`timestamp(event.at.substring(0, 13) + ":00:00Z")`:                               true,
		`bucket(timestamp(event.at), duration("1h")) + duration("1h")`:                   true,
		`timestamp(event.at) - duration(string(timestamp(event.at).getMinutes()) + "m")`: true,
		`timestamp(event.ok ? event.at : event.day + "T00:00:00Z")`:                      true,
	} {
		l, findings := load(t, fmt.Sprintf(rig, chosen, "timestamp: '"+timestamp+"'", "- set: {cf: {status: event.status}}"))
		got := l.Report.Replays[0].Verdict == RemoveNewer
		if got != rounded || rounded != strings.Contains(only(findings, RuleNewer), "of which the last delivery wins") {
			t.Errorf("%s: %v, %v", timestamp, l.Report.Replays[0], findings)
		}
	}
}

const streamed = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables:
  orders: {families: {cf: {columns: {status: string}}, %s}}
changes:
  feed:
    table: orders
    appProfile: one
    filter: {%s}
    to: {log: {}}
`

func TestPatternsThatMatchNoNameAreTold(t *testing.T) {
	for _, c := range []struct{ family, filter, want string }{
		{"b: {columns: {a: bytes}}", "families: {include: [cf]}", ""},
		{"b: {columns: {a: bytes}}", "families: {include: [c]}", `warning changes.feed.filter.families: pattern c matches no family that table "orders" declares`},
		{"b: {columns: {a: bytes}}", "families: {exclude: ['audit_.*']}", ""},
		{"b: {columns: {a: bytes}}", "qualifiers: {include: ['cf:.*']}", ""},
		{"b: {columns: {a: bytes}}", "qualifiers: {include: ['cf:c3RhdHVz']}", ""},
		{"b: {columns: {a: bytes}}", "qualifiers: {include: ['cf:status']}", "column cf:status is cf:c3RhdHVz there"},
		{"b: {columns: {a: bytes}}", "qualifiers: {exclude: ['cf:status']}", "column cf:status is cf:c3RhdHVz there"},
		{"b: {columns: {a: bytes}}", "qualifiers: {include: [other]}", "pattern other matches no column"},
		{"b: {columns: {a: bytes}}", "qualifiers: {exclude: [other]}", ""},
		{"b: {}", "qualifiers: {include: ['b:YWJj']}", ""},
	} {
		_, findings := load(t, fmt.Sprintf(streamed, c.family, c.filter))
		expect(t, findings, RuleName, c.want)
	}
}

func TestDoubtsOfTheFileAreWarnings(t *testing.T) {
	_, findings := load(t, strings.Replace(fmt.Sprintf(streamed, "b: {}", "dropEmpty: true"), "{status: string}", `{"\xff": string}`, 1))
	expect(t, findings, RuleName, `\xff is a character in YAML, which UTF-8 writes as two bytes`)
}

func TestTheTokensOfDedupeAreExplained(t *testing.T) {
	const renamed = "note write.mappings[0].name: the tokens of mapping m hold its name and those of pipeline and table"
	for _, dedupe := range []string{window, marker} {
		_, findings := load(t, fmt.Sprintf(rig, chosen, at+dedupe, add))
		if got := only(findings, RuleToken); !strings.Contains(got, renamed) || !strings.Contains(got, "note write.mappings[0].dedupeId: two records of one row under one dedupeId are one contribution") {
			t.Errorf("%s: %q", dedupe, got)
		}
	}
	_, findings := load(t, fmt.Sprintf(rig, chosen, at+strings.Replace(window, "\n      dedupeId: event.id", "", 1), add))
	expect(t, findings, RuleToken, renamed)
	_, findings = load(t, fmt.Sprintf(rig, chosen, at, add))
	expect(t, findings, RuleToken, "")
}
