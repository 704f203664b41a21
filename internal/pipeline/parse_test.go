package pipeline

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// minimal is a file with nothing but what must be there.
const minimal = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families: {cf: {}, totals: {aggregate: sum}}
write:
  mappings:
    - name: orders
      table: orders
      rowKey: event.id
      mutations: [{set: {cf: {status: event.status}}}]
`

func parseFile(t *testing.T, path string) *Pipeline {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseText(t, string(data))
}

func parseText(t *testing.T, text string) *Pipeline {
	t.Helper()
	p, err := Parse([]byte(text), Options{File: "orders.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// faultsOf returns the faults of a text, one a line.
func faultsOf(t *testing.T, text string) []string {
	t.Helper()
	_, err := Parse([]byte(text), Options{File: "f"})
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("Parse gave %v, want Errors", err)
	}
	return strings.Split(errs.Error(), "\n")
}

// covers: SQL-26
func TestAnAbsentFieldMeansItsDefault(t *testing.T) {
	w := parseText(t, minimal).Write
	want := Write{
		Format: FormatJSON, OnUnmatched: PolicyFail, OnFailure: PolicyFail, Unsaid: []string{"onUnmatched", "onFailure"},
		Limits: Limits{
			Batch:                 Batch{MaxEntries: 500, MaxBytes: 20 << 20, Concurrency: 4},
			InFlight:              InFlight{MaxEntries: 2500, MaxBytes: 64 << 20, MaxRequestBytes: 96 << 20, MaxRecordBytes: 64 << 20},
			ConsecutiveRejections: 100, InstanceClients: 16, TableIdle: time.Hour,
		},
		Repair: Repair{InitialBackoff: 500 * time.Millisecond, MaxBackoff: 10 * time.Second, MaxAttempts: 10},
	}
	got := *w
	got.Mappings, got.Pos = nil, Pos{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	m := w.Mappings[0]
	if m.Dedupe != DedupeNone || !m.Timestamp.IsZero() || !m.When.IsZero() || m.Table.Create != CreateNever ||
		m.Table.NullString != "null" || m.Table.Key.Kind != cell.String || m.Table.ID != "orders" {
		t.Errorf("mapping %+v of table %+v", m, m.Table)
	}
}

// covers: SQL-01, SQL-02, SQL-27
func TestTheWholeFileParsesToWhatItSays(t *testing.T) {
	p := parseFile(t, "testdata/orders.yaml")
	orders, daily := p.Tables[0], p.Tables[1]
	cf := orders.Family("cf")
	if ref := (TableRef{orders.Project, orders.Instance, orders.ID}); ref.String() != "projects/my-project/instances/my-instance/tables/orders" {
		t.Errorf("table is %v", ref)
	}
	if gc := cf.GC; len(gc.Union) != 2 || gc.Union[0].MaxVersions != 1 || gc.Union[1].MaxAge != 720*time.Hour {
		t.Errorf("gc is %+v", gc)
	}
	for qualifier, want := range map[string]string{"status": "string", "total": "int64", "price": "decimal(10,2)", "other": "bytes"} {
		if got := cf.Encoding(qualifier).String(); got != want {
			t.Errorf("column %s is %s, want %s", qualifier, got, want)
		}
	}
	if orders.Family("totals").Aggregate != AggregateSum || orders.Family("totals").Encoding("views").Kind != cell.Int64 {
		t.Errorf("totals is %+v", orders.Family("totals"))
	}
	if daily.ID != "" || daily.IDFrom.IsZero() || !daily.IDMatches.MatchString("orders-2026-08-30") || daily.IDMatches.MatchString("x-orders-2026-08-30") {
		t.Errorf("daily is %+v", daily)
	}
	var names []string
	for _, m := range p.Write.Mappings {
		names = append(names, m.Name)
	}
	if !slices.Equal(names, []string{"order-upsert", "page-views", "order-lines"}) {
		t.Errorf("mappings %v", names)
	}
	set := p.Write.Mappings[0].Mutations[0]
	if set.Kind != Set || set.Replace != ReplaceOlder || len(set.Cells) != 3 || set.Cells[1].Value.Source != "int(event.total_cents)" ||
		set.Cells[1].Encoding.Kind != cell.Int64 || set.Cells[1].Value.Place != "write.mappings[0].mutations[0].set.cf.total" {
		t.Errorf("set is %+v", set)
	}
	if del := p.Write.Mappings[0].Mutations[1]; del.Kind != DeleteColumns || del.Columns[0].Qualifier != "reserved_stock" || del.When.IsZero() {
		t.Errorf("delete is %+v", del)
	}
	if views := p.Write.Mappings[1]; views.Dedupe != DedupeWindow || views.DedupeID.Source != "event.view_id" || views.Mutations[0].Kind != Add {
		t.Errorf("page-views is %+v", views)
	}
	if p.Write.OnFailure != PolicyDeadLetter || p.Write.Mappings[2].ForEach.IsZero() {
		t.Errorf("write is %+v", p.Write)
	}
}

// covers: SQL-24
func TestAggregatesReadAsNumbersAndSketchesAsBytes(t *testing.T) {
	for aggregate, want := range map[Aggregate]cell.Kind{
		AggregateSum: cell.Int64, AggregateMin: cell.Int64, AggregateMax: cell.Int64, AggregateHLL: cell.Bytes, NoAggregate: cell.Bytes,
	} {
		f := &Family{Name: "totals", Aggregate: aggregate}
		if got := f.Encoding("views").Kind; got != want {
			t.Errorf("%q reads as %v, want %v", aggregate, got, want)
		}
	}
}

// covers: SQL-16, SQL-17
func TestScansParseToWhatTheySay(t *testing.T) {
	s := parseFile(t, "testdata/orders.yaml").Scans[0]
	want := []rowrange.Range{{Start: "archive#2025-", End: "archive#2026-"}, {Start: "order#", End: "order$"}}
	if !slices.Equal(s.Rows, want) {
		t.Errorf("rows %v, want %v", s.Rows, want)
	}
	if c := s.Cells; len(c.Columns) != 1 || c.Columns[0].Qualifier != "status" || c.Versions != 1 || !c.Since.Equal(time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("cells %+v", c)
	}
	if s.Limit != 1000 || s.Fetch != (Fetch{1000, 8 << 20}) || s.OnLargeRow != PolicySkip || s.OnFailure != PolicyFail || s.Schedule.TimeZone != "Etc/UTC" {
		t.Errorf("scan %+v", s)
	}
	if len(s.Emit.Fields) != 2 || s.Emit.Fields[1].Value.Source != "row.cf.status" || s.To.Kind() != "gcs" || s.To.GCS.Format != "parquet" {
		t.Errorf("emit %+v to %+v", s.Emit, s.To)
	}
}

// covers: SC-12, SC-13
func TestOverlappingRowsAreMerged(t *testing.T) {
	p := parseText(t, strings.Split(minimal, "write:")[0]+
		"scans: {all: {table: orders, rows: {encoding: base64, prefixes: [YQ==, YWI=], ranges: [{start: Yg==}]}, to: {log: {}}}, "+
		"binary: {table: orders, rows: {prefixes: [{base64: //8=}]}, to: {log: {}}}}\n")
	if got := fmt.Sprint(p.Scans[0].Rows, p.Scans[1].Rows); got != `[[a, *)] [[\xff\xff, *)]` {
		t.Errorf("rows %s", got)
	}
}

func TestChangesParseToWhatTheySay(t *testing.T) {
	p := parseFile(t, "testdata/orders.yaml")
	c := p.Changes[0]
	if c.Start.Kind != StartLatest || c.OnExpired.Kind != StartFail || c.Window != 55*time.Second || c.MaxIdle != 10*time.Minute ||
		c.MaxStreams != 32 || !c.IdleStop || c.MaxRecordBytes != 9<<20 || c.To.PubSub.OrderBy.Source != "rowKey" {
		t.Errorf("changes %+v", c)
	}
	if f := c.Filter; f.Families.Match("audit_x") || !f.Families.Match("my_audit_x") || !f.Qualifiers.Match("cf:YQ==") || f.Qualifiers.Match("xcf:YQ==") {
		t.Errorf("filter %+v", f)
	}
	p = parseFile(t, "testdata/every.yaml")
	if c := p.Changes[0]; c.Start != (Start{Kind: StartAgo, Ago: 2 * time.Hour}) || c.OnExpired.Kind != StartEarliest || c.End.Year() != 2030 || c.To.HTTP.Auth.HMACKey == "" {
		t.Errorf("changes %+v", c)
	}
	if c := p.Changes[1]; c.SelectedCell.Qualifier != "" || c.SelectedCell.Family.Name != "state" || !c.Snapshot || !c.To.PubSub.CDC {
		t.Errorf("changes %+v", c)
	}
}

func TestTestDataKeepsItsSourceText(t *testing.T) {
	p := parseFile(t, "testdata/every.yaml")
	want := `{"type":"order","id":18446744073709551616,"rate":-0.50,"none":null,"list":[true,"no","text"]}`
	if got := string(p.Tests[0].Message.Data); got != want {
		t.Errorf("data %s\nwant %s", got, want)
	}
	if got := string(p.Tests[1].Message.Data); got != "{\"type\":\n" {
		t.Errorf("raw data %q", got)
	}
	row := p.Tests[0].Expect.Rows[0]
	if row.Table.Name != "orders" || string(row.RowKey.JSON) != `"order#1"` || row.Mutations[0].Cells[2].Qualifier != "\xff\x00" || string(row.Mutations[0].Cells[1].Value.JSON) != `"1.00"` {
		t.Errorf("row %+v", row)
	}
	if computed := p.Tests[0].Expect.Rows[1]; computed.Table.Name != "daily" || computed.TableID != "daily-2026-08-30" {
		t.Errorf("computed row %+v", computed)
	}
	if e := p.Tests[4].Change.Entries; len(e) != 3 || e[1].From.IsZero() || e[2].Family != nil || e[2].FamilyName != "undeclared" {
		t.Errorf("entries %+v", e)
	}
}

func TestTheEnvironmentReplacesOnlyTheTopLevelDefaults(t *testing.T) {
	text := strings.Replace(minimal, "  orders:\n", "  fixed: {project: own-project, families: {cf: {}}}\n  orders:\n", 1)
	p, err := Parse([]byte(text), Options{Project: "env-project", Instance: "env-instance"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []TableRef{{"own-project", "env-instance", "fixed"}, {"env-project", "env-instance", "orders"}} {
		if got := (TableRef{p.Tables[i].Project, p.Tables[i].Instance, p.Tables[i].ID}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// ten is a file with ten faults; the comment behind each says what it is.
const ten = `version: 1
name: Orders                      # no pipeline name
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    key: strin                    # no encoding
    families:
      cf: {gc: {maxAge: 10}}      # no duration
write:
  formt: json                     # unknown field
  mappings:
    - name: orders
      table: order                # no table
      when: !event.deleted        # a tag
      mutations:                  # no rowKey, reported at the mapping
        - set: {cf: {status: ""}} # empty expression
  limits: {batch: {maxEntries: 0}} # out of bounds
scans:
  all:
    table: orders
    to: {}                        # no sink
`

func TestAllFaultsAreReportedTogetherInOrder(t *testing.T) {
	want := []string{
		"2:7: name: ", "6:10: tables.orders.key: ", "8:25: tables.orders.families.cf.gc.maxAge: ", "10:3: write.formt: ",
		"12:7: write.mappings[0].rowKey: ", "13:14: write.mappings[0].table: ", "14:13: write.mappings[0].when: ",
		"16:30: write.mappings[0].mutations[0].set.cf.status: ", "17:32: write.limits.batch.maxEntries: ",
		"21:9: scans.all.to: ",
	}
	got := faultsOf(t, ten)
	if len(got) != len(want) {
		t.Fatalf("%d faults, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], "f:"+want[i]) {
			t.Errorf("got %s, want it to start with f:%s", got[i], want[i])
		}
	}
}

func TestExpressionsKnowWhereTheyStand(t *testing.T) {
	for name, c := range map[string]struct {
		text         string // stands where the row key stands
		source       string
		line, column int
		exact        bool
	}{
		"plain":                    {`event.id`, `event.id`, 11, 15, true},
		"plain with a comment":     {`event.id  # why`, `event.id`, 11, 15, true},
		"number":                   {`17`, `17`, 11, 15, true},
		"boolean":                  {`true`, `true`, 11, 15, true},
		"single-quoted":            {`'"a" + event.id'`, `"a" + event.id`, 11, 16, true},
		"single-quoted, escaped":   {`'''a'' + event.id'`, `'a' + event.id`, 11, 15, false},
		"double-quoted":            {`"event.id + 'a'"`, `event.id + 'a'`, 11, 16, true},
		"double-quoted, escaped":   {`"event.id + \"a\""`, `event.id + "a"`, 11, 15, false},
		"literal block":            {"|\n        key(event.a,\n          event.b)", "key(event.a,\n  event.b)", 12, 9, true},
		"literal block, indented":  {"|2-\n          event.id", "  event.id", 12, 9, true},
		"literal block, kept end":  {"|+\n        event.id\n", "event.id", 12, 9, true},
		"literal block, blank":     {"|\n\n        event.a +\n\n        event.b", "\nevent.a +\n\nevent.b", 12, 9, true},
		"folded block":             {">-\n        event.a +\n        event.b", "event.a + event.b", 11, 15, false},
		"plain over lines":         {"event.a +\n        event.b", "event.a + event.b", 11, 15, false},
		"after text beyond ASCII":  {"'\"é\" + event.id'", `"é" + event.id`, 11, 16, true},
		"on the next line":         {"\n        event.id", "event.id", 12, 9, true},
		"double-quoted over lines": {"\"event.a +\n        event.b\"", "event.a + event.b", 11, 15, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := parseText(t, strings.Replace(minimal, "rowKey: event.id", "rowKey: "+c.text, 1))
			got := p.Write.Mappings[0].RowKey
			want := Expr{c.source, "write.mappings[0].rowKey", Pos{"orders.yaml", c.line, c.column}, c.exact, strings.Trim(c.text[:1], "|>e1t\n")}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestUnquotedScalarsThatReadersDisagreeOnAreRefused(t *testing.T) {
	data := func(scalar string) string {
		return minimal + "tests:\n  - name: t\n    message: {data: [" + scalar + "]}\n    expect: {rows: []}\n"
	}
	for _, s := range strings.Fields(`y Y n N yes Yes NO on Off 0100 -012 007 0o17 0b101 1_000 1_000.5 0x1_F -0x1F 12:30:00 1:30 190:20:30.15
		1e3 1.5e3 2026-08-30 2026-8-3 2026-08-30T10:15:30Z = +0b1 00`) {
		got := faultsOf(t, data(s))
		if len(got) != 1 || !strings.HasPrefix(got[0], "f:15:22: tests[0].message.data[0]: "+s+" reads as ") || !strings.Contains(got[0], `quote it, as in "`+s+`"`) {
			t.Errorf("%s: %v", s, got)
		}
	}
	for _, s := range strings.Fields(`yess 0 -1 10 1.5 0.5 -0.0 1.5e+3 1.5E-3 true False null text 2026 08-30 a:b 1:a '"yes"' "0100" "12:30:00"`) {
		parseText(t, data(strings.Trim(s, "'")))
	}
}

// Quotes around such a scalar are what a text takes. What other places take is told
// there: what each hint says to write is taken.
func TestAScalarThatReadersDisagreeOnIsToldWhatItsPlaceTakes(t *testing.T) {
	for _, c := range []struct{ old, field, wrong, says, works string }{
		{"rowKey: event.id", "rowKey: ", "2026-01-01", `p: 2026-01-01 reads as a time in one version of YAML and as something else in another: to mean the text, quote it twice, since YAML takes the outer quotes away: '"2026-01-01"'`, `'"2026-01-01"'`},
		{"rowKey: event.id", "rowKey: ", "yes", `quote it twice, since YAML takes the outer quotes away: '"yes"'`, `'"yes"'`},
		{"deleteRow: true", "deleteRow: ", "yes", "p: takes true or false, not yes: write true", "true"},
		{"deleteRow: true", "deleteRow: ", "Off", "p: takes true or false, not Off: write false", "false"},
		{"deleteRow: true", "deleteRow: ", "12:30:00", "p: takes true or false, not 12:30:00", "true"},
		{"ordered: true", "ordered: ", "no", "p: takes true or false, not no: write false", "false"},
		{"maxVersions: 1", "maxVersions: ", "1_000", "something else in another: write a whole number such as 1", "1000"},
		{"maxVersions: 1", "maxVersions: ", "010", "something else in another: write a whole number such as 1", "10"},
	} {
		file := "version: 1\nname: orders\nbigtable: {project: p, instance: i}\ntables: {orders: {families: {cf: {gc: {maxVersions: 1}}}}}\n" +
			"write:\n  format: json\n  ordered: true\n  mappings:\n    - name: m\n      table: orders\n      rowKey: event.id\n      mutations: [{deleteRow: true}]\n"
		parseText(t, file)
		with := func(value string) string { return strings.Replace(file, c.old, c.field+value, 1) }
		place := regexp.MustCompile(`^f:\d+:\d+: \S+: `)
		got := faultsOf(t, with(c.wrong))
		if len(got) != 1 || !strings.Contains(place.ReplaceAllString(got[0], "p: "), c.says) {
			t.Errorf("%s%s: %v\ndoes not say %s", c.field, c.wrong, got, c.says)
		}
		if c.works != "false" || c.old != "deleteRow: true" { // a false delete is refused for a reason of its own
			parseText(t, with(c.works))
		}
	}
}

func TestAMappingThatHoldsNothingIsToldHowToFillIt(t *testing.T) {
	for _, text := range []string{
		strings.Replace(minimal, "{cf: {}, ", "{cf: , ", 1),
		strings.Replace(indentFile, "        - set:\n            cf:\n              x:", "        - set:\n          cf:\n            x:", 1),
		strings.Replace(indentFile, "      cf: {}", "      cf:", 1),
		strings.Replace(indentFile, "write:\n", "changes:\nwrite:\n", 1),
	} {
		got := faultsOf(t, text)
		if !strings.Contains(strings.Join(got, "\n"), "takes a mapping, not nothing: there are no nulls; indent what belongs to it further than its name, write {} if nothing does, or leave the field out") {
			t.Errorf("%s\ngave %v", text, got)
		}
	}
}

// A name of another language is told its encoding here: the nearest name may be one that
// loses digits, as int8 is of int.
func TestATypeOfAnotherLanguageIsToldItsEncoding(t *testing.T) {
	file := strings.Replace(minimal, "cf: {}", "cf: {columns: {status: string}}", 1)
	for wrong, right := range map[string]string{
		"int": "int64", "Integer": "int64", "long": "int64", "BIGINT": "int64", "float": "float64", "double": "float64", "str": "string", "text": "string", "varchar": "string",
		"boolean": "bool", "datetime": "timestamp", "binary": "bytes", "blob": "bytes", "object": "json", "itn64": "int64", "STRING": "string", "flaot32": "float32",
	} {
		got := faultsOf(t, strings.Replace(file, "status: string", "status: "+wrong, 1))
		if want := `"` + wrong + `" is no encoding; did you mean "` + right + `"?`; len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("%s: %v\ndoes not say %s", wrong, got, want)
		}
		if _, err := Parse([]byte(strings.Replace(file, "status: string", "status: "+right, 1)), Options{}); err != nil {
			t.Errorf("%s: %v", right, err)
		}
	}
	for _, wrong := range []string{"numeric", "decimal", "number(10,2)"} {
		if got := faultsOf(t, strings.Replace(file, "status: string", "status: \""+wrong+"\"", 1)); len(got) != 1 || !strings.HasSuffix(got[0], "is no encoding: write decimal(p,s), as in decimal(10,2)") {
			t.Errorf("%s: %v", wrong, got)
		}
	}
}

func TestNamesAreLiteralBytes(t *testing.T) {
	text := strings.Replace(minimal, "{cf: {status: event.status}}", `{cf: {"a.b[c]*": "1", '{base64: "AP8="}': "2", "": "3", "{base64: x}": "4"}}`, 1)
	var got []string
	for _, c := range parseText(t, text).Write.Mappings[0].Mutations[0].Cells {
		got = append(got, c.Qualifier)
	}
	if want := []string{"a.b[c]*", "\x00\xff", "", "{base64: x}"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOneNameInTwoSpellingsIsADuplicate(t *testing.T) {
	text := strings.Replace(minimal, "{cf: {status: event.status}}", `{cf: {a: "1", '{base64: "YQ=="}': "2"}}`, 1)
	if got := faultsOf(t, text); len(got) != 1 || !strings.Contains(got[0], "is the same name as the one on line 12") {
		t.Errorf("got %v", got)
	}
}

func TestBase64MustBeCanonical(t *testing.T) {
	for _, s := range []string{"YQ", "YR==", "_w==", "YQ==\\n", "Y Q=="} {
		text := strings.Replace(minimal, "{set: {cf: {status: event.status}}}", `{deleteColumns: {cf: [{base64: "`+s+`"}]}}`, 1)
		if got := faultsOf(t, text); len(got) != 1 || !strings.Contains(got[0], "write it canonically") {
			t.Errorf("%s: %v", s, got)
		}
	}
}

func TestKeysDifferByCase(t *testing.T) {
	text := strings.Replace(minimal, "{status: event.status}", `{status: event.a, Status: event.b}`, 1)
	if cells := parseText(t, text).Write.Mappings[0].Mutations[0].Cells; len(cells) != 2 {
		t.Errorf("%d cells", len(cells))
	}
}

func TestWhatIsNotTextIsRefusedWithItsPlace(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", "f:1:1: the file is empty"},
		"comments alone":    {"# nothing\n", "f:1:1: the file is empty"},
		"a list":            {"- a\n", "f:1:1: takes a mapping, not a list"},
		"invalid UTF-8":     {"version: 1\nname: a\xffb\n", "f:2:8: a byte that is not text"},
		"a control":         {"version: 1\nname: é\x01b\n", "f:2:8: a byte that is not text"},
		"UTF-16":            {"v\x00e\x00r\x00", "f:1:2: a byte that is not text"},
		"tabs to indent":    {"version: 1\ntables:\n\torders: {}\n\t\tx: {}\n", "f:3:1: a tab"},
		"an unclosed brace": {"version: 1\nname: {a\n", "not YAML"},
		"a directive":       {"%YAML 1.1\n---\nversion: 1\n", "f:1:1: a directive"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := faultsOf(t, c.text); !strings.Contains(got[0], c.want) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

func TestByteOrderMarkAndCarriageReturnsChangeNothing(t *testing.T) {
	want := parseText(t, minimal)
	got := parseText(t, "\ufeff"+strings.ReplaceAll(minimal, "\n", "\r\n"))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAMisplacedSecretIsNotQuoted(t *testing.T) {
	const secret = "hunter2.Zm9v"
	for _, sink := range []string{
		`{http: {url: "https://example.com", auth: {bearer: "` + secret + `"}}}`,
		`{http: {url: "https://example.com", auth: {hmac: "` + secret + `"}}}`,
		`{http: {url: "https://example.com", headers: {x-token: "` + secret + `é"}}}`,
	} {
		text := strings.Split(minimal, "write:")[0] + "scans: {all: {table: orders, to: " + sink + "}}\n"
		got := faultsOf(t, text)
		if len(got) != 1 || strings.Contains(got[0], "hunter2") {
			t.Errorf("got %v", got)
		}
	}
}

func TestAMarkerOutlivesEveryDelivery(t *testing.T) {
	for gc, ok := range map[string]bool{
		"{maxAge: 913h}": true, "{maxAge: 912h}": false, "{maxVersions: 1}": true,
		"{union: [{maxAge: 913h}, {maxVersions: 1}]}":          true,
		"{union: [{maxAge: 913h}, {maxAge: 1h}]}":              false,
		"{intersection: [{maxAge: 1h}, {maxVersions: 1}]}":     true,
		"{intersection: [{maxAge: 1h}, {maxAge: 2h}]}":         false,
		"{intersection: [{maxAge: 1h}, {maxAge: 100000000s}]}": true,
	} {
		text := strings.Replace(minimal, "families: {", "families: {seen: {gc: "+gc+"}, ", 1)
		text = strings.Replace(text, "      mutations:", "      dedupe: marker\n      markerFamily: seen\n      mutations:", 1)
		if _, err := Parse([]byte(text), Options{}); (err == nil) != ok {
			t.Errorf("%s: %v", gc, err)
		}
	}
}

func TestSchedules(t *testing.T) {
	for _, s := range []string{"* * * * *", "*/5 0-6/2 1,15 jan-DEC 7", "59 23 31 12 0", "0 3 * * Mon-fri"} {
		if err := checkCron(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"", "* * * *", "* * * * * *", "60 * * * *", "-1 * * * *", "+1 * * * *", "*/0 * * * *", "5-1 * * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "every 5 minutes", ", * * * *", "1- * * * *"} {
		if err := checkCron(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestOwnTopicsAreRefusedInTheOwnProjectOnly(t *testing.T) {
	base := strings.Split(minimal, "write:")[0]
	for topic, ok := range map[string]bool{
		"orders-events": false, "projects/my-project/topics/orders-dead-letter": false,
		"projects/other-project/topics/orders-events": true, "orders-cdc": true, "orders-events2": true,
	} {
		_, err := Parse([]byte(base+"scans: {all: {table: orders, to: {pubsub: {topic: "+topic+"}}}}\n"), Options{})
		if (err == nil) != ok {
			t.Errorf("%s: %v", topic, err)
		}
	}
}

func TestSizesAndDurationsAreBounded(t *testing.T) {
	for field, want := range map[string]string{
		"limits: {batch: {maxBytes: 201MiB}}":             "write 1KiB to 200MiB",
		"limits: {batch: {maxBytes: 1B}}":                 "write 1KiB to 200MiB",
		"limits: {inFlight: {maxBytes: 999999999999GiB}}": "is more bytes than can be counted",
		"limits: {tableIdle: 10ms}":                       "write at least 1s",
		"limits: {tableIdle: -1h}":                        "write at least 1s",
		"limits: {instanceClients: 99999999999999999999}": "write 1 to 1000",
		"repair: {maxBackoff: 5m}":                        "write 1ms to 4m",
	} {
		if got := faultsOf(t, minimal+"  "+field+"\n"); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v", field, got)
		}
	}
}

func TestADraftOfAGoodFileIsItsPipeline(t *testing.T) {
	for path, data := range wholeFiles(t) {
		p, err := Parse(data, Options{File: path, Project: "p", Instance: "i"})
		if err != nil {
			t.Fatal(err)
		}
		if draft, err := Draft(data, Options{File: path, Project: "p", Instance: "i"}); err != nil || !reflect.DeepEqual(draft, p) {
			t.Errorf("%s: %v, or another pipeline", path, err)
		}
	}
}

func TestADraftLeavesOutWhatAFaultMayHaveChanged(t *testing.T) {
	data := []byte(minimal + "  skip: true\n  onFailure: nope\nscans:\n" +
		"  sound: {table: orders, emit: {id: rowKey}, limit: 0, to: {log: {}}}\n" +
		"  lost: {table: elsewhere, emit: {id: rowKey}, to: {log: {}}}\n" +
		"changes:\n  all: {table: orders, appProfile: single, to: {log: {}}}\n  gone: {table: elsewhere, appProfile: single, to: {log: {}}}\n")
	if p, err := Parse(data, Options{}); err == nil || p != nil {
		t.Errorf("Parse gave %v, %v", p, err)
	}
	p, err := Draft(data, Options{})
	if err == nil || p == nil {
		t.Fatalf("Draft gave %v, %v", p, err)
	}
	if len(p.Write.Mappings) != 1 || p.Write.Skip.Source != "true" || len(p.Scans) != 1 || p.Scans[0].Name != "sound" ||
		len(p.Changes) != 1 || p.Changes[0].Name != "all" {
		t.Errorf("%+v, scans %+v", p, p.Scans)
	}
	if p, err := Draft([]byte("a: [\n"), Options{}); err == nil || p != nil {
		t.Errorf("of what is no YAML: %v, %v", p, err)
	}
}

// What belongs to scans is refused in changes, and the other way round.
//
// covers: CSQ-01
func TestOptionsOfScansAndOfChangesAreNotMixed(t *testing.T) {
	const file = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables: {orders: {families: {cf: {}}}}
`
	for section, option := range map[string]string{
		"scans: {all: {table: orders, to: {log: {}}, %s}}":                     "window: 55s",
		"changes: {feed: {table: orders, appProfile: one, to: {log: {}}, %s}}": "limit: 10",
	} {
		if _, err := Parse(fmt.Appendf(nil, file+section, option), Options{File: "p.yaml"}); err == nil || !strings.Contains(err.Error(), strings.SplitN(option, ":", 2)[0]) {
			t.Errorf("%s: %v", option, err)
		}
	}
}
