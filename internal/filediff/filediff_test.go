package filediff

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
)

const base = `version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    appProfile: one
    families:
      cf: {gc: {maxVersions: 1}, columns: {status: string, total: int64}}
      marks: {gc: {maxAge: 1000h}}
      totals: {aggregate: sum}
write:
  format: json
  mappings:
    - name: order
      when: event.type == "order"
      table: orders
      rowKey: key("order", event.id)
      mutations:
        - set: {cf: {status: event.status}}
          replace: older
        - deleteColumns: {cf: [total]}
    - name: count
      when: event.type == "count"
      table: orders
      rowKey: event.id
      timestamp: timestamp("2026-01-01T00:00:00Z")
      dedupe: marker
      markerFamily: marks
      mutations: [{add: {totals: {seen: 1}}}]
  onUnmatched: fail
  onFailure: fail
scans:
  all: {table: orders, appProfile: one, limit: 5, emit: {id: rowKey}, to: {pubsub: {topic: out}}, schedule: {cron: "0 3 * * *", timeZone: Etc/UTC}}
changes:
  feed: {table: orders, appProfile: single, start: latest, window: 30s, filter: {families: {exclude: ["audit"]}}, to: {pubsub: {topic: feed}}}
tests:
  - name: an order
    message: {id: m, publishTime: "2026-08-30T10:15:31Z", data: {type: order, id: a, status: PAID}}
    expect:
      rows:
        - table: orders
          rowKey: order#a
          timestamp: "2026-08-30T10:15:31Z"
          mutations: [{set: {cf: {status: PAID}}, replace: older}, {deleteColumns: {cf: [total]}}]
  - name: a count
    message: {id: m, publishTime: "2026-08-30T10:15:31Z", data: {type: count, id: b}}
    expect:
      rows: [{table: orders, rowKey: b, timestamp: "2026-01-01T00:00:00Z", mutations: [{add: {totals: {seen: 1}}}]}]
  - name: a row
    row: {scan: all, key: order#a, cells: {cf: {status: PAID}}}
    expect: {records: [{id: order#a}]}
`

func load(t testing.TB, text string) *lint.Loaded {
	t.Helper()
	l, findings := lint.Load([]byte(text), pipeline.Options{File: "p.yaml"})
	if l == nil {
		t.Fatal(findings.Err())
	}
	return l
}

func compare(t testing.TB, old, new string) *Report {
	t.Helper()
	r, err := Compare(load(t, old), load(t, new))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// places lists the differences by part and place, with a star at those that do harm.
func places(r *Report) string {
	var out []string
	for _, d := range r.Differences {
		star := ""
		if d.Harm != "" {
			star = "*"
		}
		out = append(out, fmt.Sprintf("%s %s%s", d.Part, d.Place, star))
	}
	return strings.Join(out, ", ")
}

func TestAVersionWithTheSameMeaningHasNoDifference(t *testing.T) {
	same := strings.NewReplacer("name: orders\n", "name: 'orders' # comment\n", "  onFailure: fail\n", "",
		"{status: string, total: int64}", `{"status": string, total: int64}`, "start: latest, ", "").Replace(base)
	if same == base {
		t.Fatal("nothing is written in another way")
	}
	for name, r := range map[string]*Report{"itself": compare(t, base, base), "another way to write it": compare(t, base, same)} {
		if len(r.Differences)+len(r.Examples) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	files, err := filepath.Glob("../../examples/*/pipeline.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if r := compare(t, string(data), string(data)); len(r.Differences)+len(r.Examples) > 0 {
			t.Errorf("%s: %+v", file, r)
		}
	}
}

func TestEachEditIsNamed(t *testing.T) {
	old := load(t, base)
	for i, c := range []struct{ from, to, want string }{
		{"    appProfile: one\n", "    appProfile: two\n", "tables tables.orders.appProfile"},
		{"  orders:\n    app", "  orders:\n    id: other\n    app", "tables tables.orders.id*, tokens write.mappings.count.tokens*, scans scans.all.table*, ids changes.feed.table*, " +
			"grants write: roles/bigtable.user on table projects/my-project/instances/my-instance/tables/orders, grants scan-planner: roles/bigtable.reader on table projects/my-project/instances/my-instance/tables/orders, " +
			"grants scan-worker: roles/bigtable.reader on table projects/my-project/instances/my-instance/tables/orders, grants changes: roles/bigtable.admin on table projects/my-project/instances/my-instance/tables/orders, " +
			"grants write: roles/bigtable.user on table projects/my-project/instances/my-instance/tables/other, grants scan-planner: roles/bigtable.reader on table projects/my-project/instances/my-instance/tables/other, " +
			"grants scan-worker: roles/bigtable.reader on table projects/my-project/instances/my-instance/tables/other, grants changes: roles/bigtable.admin on table projects/my-project/instances/my-instance/tables/other"},
		{"total: int64", "total: int32", "tables tables.orders.families.cf*, scans scans.all.the table's columns*"},
		{"{maxVersions: 1}", "{maxVersions: 2}", "tables tables.orders.families.cf.gc"},
		{"    families:\n", "    create: if-needed\n    families:\n", "tables tables.orders.create, grants write: roles/bigtable.user on table projects/my-project/instances/my-instance/tables/orders, grants write: roles/bigtable.admin on instance projects/my-project/instances/my-instance"},
		{"format: json", "format: ndjson", "rows write.format*"},
		{"  format: json\n", "  format: json\n  skip: event.type == \"x\"\n", "delivery write.skip"},
		{"  format: json\n", "  format: json\n  ordered: true\n", "subscriptions orders-events*"},
		{"  format: json\n", "  format: json\n  limits: {tableIdle: 2h}\n", "delivery write.limits"},
		{`event.type == "order"`, `event.type == "Order"`, "rows write.mappings.order.when*"},
		{`key("order", event.id)`, `key("o", event.id)`, "rows write.mappings.order.rowKey*"},
		{"status: event.status", `status: event.status + "!"`, "rows write.mappings.order.mutations"},
		{"replace: older", "replace: all", "rows write.mappings.order.mutations"},
		{"        - deleteColumns: {cf: [total]}\n", "", "rows write.mappings.order.mutations"},
		{"        - deleteColumns: {cf: [total]}\n", "        - {deleteColumns: {cf: [total]}, tombstone: true}\n", "rows write.mappings.order.mutations"},
		{"      rowKey: event.id\n", "      rowKey: event.id\n      dedupeId: event.view\n", "tokens write.mappings.count.tokens*"},
		{"name: count\n", "name: counts\n", "tokens write.mappings.count.name*"},
		{"name: order\n", "name: anorder\n", "tokens write.mappings.order.name"},
		{"      dedupe: marker\n      markerFamily: marks\n", "      dedupe: window\n", "tokens write.mappings.count.dedupe*"},
		{"2026-01-01T00:00:00Z\")\n", "2026-01-02T00:00:00Z\")\n", "rows write.mappings.count.timestamp*"},
		{"onFailure: fail", "onFailure: dead-letter", "delivery write.onFailure, topics orders-dead-letter, subscriptions orders-dead-letter, grants write: roles/pubsub.publisher on topic orders-dead-letter"},
		{"limit: 5, ", "limit: 6, ", "scans scans.all.limit*"},
		{"emit: {id: rowKey}", "forEach: '[1, 2]', emit: {id: rowKey}", "scans scans.all.emit*, ids scans.all.recordId*"},
		{"0 3 * * *", "0 4 * * *", "schedules orders-scan-all"},
		{"topic: out", "topic: elsewhere", "scans scans.all.to*, topics out*, topics elsewhere, grants scan-worker: roles/pubsub.publisher on topic out, grants scan-worker: roles/pubsub.publisher on topic elsewhere"},
		{"  all: {", "  every: {", "scans scans.all*, scans scans.every, schedules orders-scan-all, schedules orders-scan-every"},
		{"  feed: {", "  feeds: {", "changes changes.feed*, changes changes.feeds"},
		{"start: latest", "start: earliest", "changes changes.feed.start*"},
		{"window: 30s", "window: 40s", "changes changes.feed.pace"},
		{`["audit"]`, `["audit.*"]`, "changes changes.feed.filter*"},
	} {
		if race.Enabled && i%4 != 0 { // loading a file takes long under it
			continue
		}
		edited := strings.Replace(base, c.from, c.to, 1)
		if edited == base {
			t.Fatalf("%q is not in the file", c.from)
		}
		if strings.HasPrefix(c.to, "  every") {
			edited = strings.Replace(edited, "scan: all", "scan: every", 1)
		}
		want := strings.Replace(c.want, "topics out*,", "topics out,", 1)
		r, err := Compare(old, load(t, edited))
		if err != nil {
			t.Fatal(err)
		}
		if got := places(r); got != want {
			t.Errorf("%q for %q:\n got %s\nwant %s", c.to, c.from, got, want)
		}
	}
}

func TestOrderOfMappingsIsADifference(t *testing.T) {
	i, j, k := strings.Index(base, "    - name: order\n"), strings.Index(base, "    - name: count\n"), strings.Index(base, "  onUnmatched")
	swapped := base[:i] + base[j:k] + base[i:j] + base[k:]
	if got := places(compare(t, base, swapped)); got != "rows write.mappings*" {
		t.Errorf("got %s", got)
	}
}

func TestAnotherNameIsAnotherPipeline(t *testing.T) {
	r := compare(t, base, strings.Replace(base, "name: orders\n", "name: sales\n", 1))
	if first := r.Differences[0]; first.Part != Name || !strings.Contains(first.Harm, "another pipeline") {
		t.Errorf("the first difference is %+v", first)
	}
	all := places(r)
	for _, want := range []string{"tokens write.mappings.count.tokens*", "topics orders-events*", "topics sales-events", "subscriptions orders-undelivered*"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not among %s", want, all)
		}
	}
}

func TestWithoutAWriteSectionItsMessagesAreLost(t *testing.T) {
	const scans = "version: 1\nname: pp\nbigtable: {project: p, instance: i}\ntables: {t: {families: {cf: {}}}}\nscans: {s: {table: t, to: {log: {}}}}\n"
	write := scans + "write: {format: json, mappings: [{name: m, table: t, rowKey: event.id, mutations: [{set: {cf: {a: event.a}}}]}]}\n"
	if got := places(compare(t, write, scans)); !strings.HasPrefix(got, "rows write*, services pp-write, topics pp-events*, subscriptions pp-events*") {
		t.Errorf("got %s", got)
	}
	if got := places(compare(t, scans, write)); !strings.HasPrefix(got, "rows write, services pp-write, topics pp-events, subscriptions pp-events") {
		t.Errorf("got %s", got)
	}
}

// What the differences come to is shown by the tests of the files.
func TestTestsOfTheFilesShowWhatTheyMakeUnderBothVersions(t *testing.T) {
	edited := strings.NewReplacer(`key("order", event.id)`, `key("o", event.id)`, "rowKey: order#a", "rowKey: o#a", "name: count\n", "name: counts\n",
		"emit: {id: rowKey}", "emit: {key: rowKey}", "{records: [{id: order#a}]}", "{records: [{key: order#a}]}").Replace(base)
	r := compare(t, base, edited)
	if len(r.Examples) != 3 {
		t.Fatalf("%+v", r.Examples)
	}
	order, count, row := r.Examples[0], r.Examples[1], r.Examples[2]
	if order.Test != "an order" || !slices.Contains(order.Old, `orders "order#a"`) || !slices.Contains(order.New, `orders "o#a"`) {
		t.Errorf("%+v", order)
	}
	last := func(lines []string) string { return lines[len(lines)-1] }
	// The qualifier of the marker is the token, too.
	if !strings.HasPrefix(last(count.Old), "  under the token ") || last(count.Old) == last(count.New) || !slices.Equal(count.Old[:2], count.New[:2]) {
		t.Errorf("want only another token: %+v", count)
	}
	if !slices.Equal(row.Old, []string{`{"id":"order#a"}`}) || !slices.Equal(row.New, []string{`{"key":"order#a"}`}) {
		t.Errorf("%+v", row)
	}
}

// A row that is there already has the bytes of the old encoding: the new version reads those.
func TestARowOfAnOldTestHasTheBytesOfItsOwnFile(t *testing.T) {
	old := strings.NewReplacer("emit: {id: rowKey}", "emit: {total: row.cf.total}", "cells: {cf: {status: PAID}}", "cells: {cf: {total: 7}}", "{records: [{id: order#a}]}", "{records: [{total: 7}]}").Replace(base)
	edited := strings.NewReplacer("total: int64", "total: string", "name: a row", "name: a new row", "cf: {total: 7}", "cf: {total: '7'}", "{records: [{total: 7}]}", "{records: [{total: '7'}]}").Replace(old)
	r := compare(t, old, edited)
	if len(r.Examples) != 2 || !slices.Equal(r.Examples[1].Old, []string{`{"total":7}`}) || !strings.Contains(strings.Join(r.Examples[1].New, ""), `\u0007`) {
		t.Errorf("%+v", r.Examples)
	}
}
