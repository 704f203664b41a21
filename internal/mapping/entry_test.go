package mapping

import (
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// letters is a pipeline of format mutation over the tables of ordersFile.
func letters(t *testing.T, more string) *Write {
	t.Helper()
	file := strings.Replace(ordersFile, "format: json", "format: mutation", 1)
	p, err := pipeline.Parse([]byte(strings.Replace(file, "%s", more, 1)), pipeline.Options{File: "orders.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Compile(p, Limits{KeyBytes: 10, QualifierBytes: 10, CellBytes: 10, EntryBytes: 200, Mutations: 3})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mapEntry(w *Write, table string, row *bigtablepb.MutateRowsRequest_Entry, unless *bigtablepb.RowFilter) *Result {
	records := []record.Record{{Entry: &record.Entry{Table: table, Row: row, Unless: unless}}}
	return w.Map(&expr.Message{ID: "m-2", Attributes: map[string]string{"mapping": "once"}}, records, time.Unix(9, 0))
}

const ordersTable = "projects/my-project/instances/my-instance/tables/orders"

func one(m *bigtablepb.Mutation, _ int) []*bigtablepb.Mutation { return []*bigtablepb.Mutation{m} }

// covers: FAIL-09
func TestADeadLetterPassesThroughAsTheEntryThatItHolds(t *testing.T) {
	w := letters(t, "")
	entry := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: one(setCell("cf", []byte("status"), 5000, []byte("PAID")))}
	letter := deadletter.Letter{Mapping: "order", Time: time.Unix(1, 0)}
	letter.SetRow(pipeline.TableRef{Project: "my-project", Instance: "my-instance", Table: "orders"}, entry, markerFilter("seen", []byte("t")))
	got := w.Map(&expr.Message{}, []record.Record{record.Mutation(letter.Encode())}, time.Unix(9, 0))
	if len(got.Rows) != 1 || len(got.Rejected)+len(got.Unmatched) > 0 {
		t.Fatalf("%+v", got)
	}
	r := got.Rows[0]
	if text(got.Rows) != "orders \"k\"\n  set cf:status = \"PAID\" @ 1970-01-01T00:00:00.005Z\n" || r.Unless == nil || r.Parts[0].Mapping.Name != "" || r.Parts[0].End != 1 {
		t.Errorf("%s %+v", text(got.Rows), r)
	}
	// Under a token it is sent last, like the entry that it was.
	entry.Idempotency = &bigtablepb.Idempotency{Token: make([]byte, 16)}
	if got := mapEntry(w, ordersTable, entry, nil); len(got.Rows) != 0 || len(got.Last) != 1 {
		t.Errorf("under a token: %+v", got)
	}
	daily := mapEntry(w, "projects/my-project/instances/my-instance/tables/orders-2026-08-30",
		&bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: one(deleteFamily("cf"))}, nil)
	if len(daily.Rows) != 1 || daily.Rows[0].Schema.Name != "daily" || daily.Rows[0].Table.Table != "orders-2026-08-30" {
		t.Errorf("a computed table: %+v", daily)
	}
	skipping := letters(t, `  skip: message.attributes.mapping == "once"`)
	if got := mapEntry(skipping, ordersTable, entry, nil); got.Skipped != 1 || len(got.Last) != 0 {
		t.Errorf("skip: %+v", got)
	}
}

func TestAnEntryThatTheTableOrTheServiceWouldNotTakeIsRefused(t *testing.T) {
	w := letters(t, "")
	key, q := []byte("k"), []byte("q")
	long := []byte("01234567890")
	row := func(key []byte, mutations ...*bigtablepb.Mutation) *bigtablepb.MutateRowsRequest_Entry {
		return &bigtablepb.MutateRowsRequest_Entry{RowKey: key, Mutations: mutations}
	}
	set := func(family string, q []byte, micros int64, value []byte) *bigtablepb.Mutation {
		m, _ := setCell(family, q, micros, value)
		return m
	}
	good := set("cf", q, 1000, nil)
	n := &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 1}}
	add, _ := addToCell("cf", q, 1000, n)
	addLate, _ := addToCell("totals", q, 1, n)
	merge, _ := mergeToCell("nope", q, 1000, n, 0)
	gone, _ := deleteFamily("nope")
	backwards, _ := deleteVersions("cf", q, 5000, 2000)
	for _, c := range []struct {
		table  string
		row    *bigtablepb.MutateRowsRequest_Entry
		unless *bigtablepb.RowFilter
		want   string
	}{
		{"orders", row(key, good), nil, "no name as projects/"},
		{strings.Replace(ordersTable, "my-project", "other", 1), row(key, good), nil, "does not have"},
		{ordersTable + "-2026", row(key, good), nil, "does not have"},
		{ordersTable, row(nil, good), nil, "a row key of 0 bytes"},
		{ordersTable, row(long, good), nil, "a row key of 11 bytes"},
		{ordersTable, row(key), nil, "0 mutations"},
		{ordersTable, row(key, good, good, good, good), nil, "4 mutations"},
		{ordersTable, row(key, good, set("nope", q, 0, nil)), nil, "mutations[1]: a family that table orders does not declare"},
		{ordersTable, row(key, set("totals", q, 0, nil)), nil, "totals is an aggregate"},
		{ordersTable, row(key, add), nil, "cf is no aggregate"},
		{ordersTable, row(key, merge), nil, "does not declare"},
		{ordersTable, row(key, gone), nil, "does not declare"},
		{ordersTable, row(key, addLate), nil, "whole number of milliseconds"},
		{ordersTable, row(key, set("cf", q, 1, nil)), nil, "whole number of milliseconds"},
		{ordersTable, row(key, set("cf", q, -1, nil)), nil, "whole number of milliseconds"},
		{ordersTable, row(key, set("cf", long, 0, nil)), nil, "a qualifier of 11 bytes"},
		{ordersTable, row(key, set("cf", q, 0, long)), nil, "a cell of 11 bytes"},
		{ordersTable, row(key, backwards), nil, "a range of deleted times"},
		{ordersTable, row(key, &bigtablepb.Mutation{}), nil, "not known here"},
		{ordersTable, row(key, good), markerFilter("nope", q), "its condition"},
		{ordersTable, row(key, good), &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}, "its condition"},
	} {
		got := mapEntry(w, c.table, c.row, c.unless)
		if len(got.Rejected) != 1 || len(got.Rows)+len(got.Last)+len(got.Unmatched) > 0 || !strings.Contains(got.Rejected[0].Error(), c.want) {
			t.Errorf("%s: %s %+v", c.want, rejections(got), got)
		}
	}
}

func TestACloudEventIsReadByExpressionsInEveryMode(t *testing.T) {
	w := load(t, `
mappings:
  - name: a
    table: orders
    rowKey: key(event.type, event.id)
    timestamp: timestamp(event.time)
    mutations:
      - set: {cf: {status: event.?subject, doc: event.data}, other: {size: string(size(event.data)), bytes: event.data}}
`, ServiceLimits())
	attributes := map[string]string{
		"ce-specversion": "1.0", "ce-id": "e", "ce-source": "/s", "ce-type": "t", "ce-time": "2026-08-30T10:15:30.5Z",
		"content-type": "application/octet-stream",
	}
	var d record.Decoder
	got := w.Map(&expr.Message{}, d.CloudEvents([]byte("\xff\x00"), attributes), published)
	const want = `orders "t#e"
  set cf:doc = "/wA=" @ 2026-08-30T10:15:30.500Z
  set other:size = 0x32 @ 2026-08-30T10:15:30.500Z
  set other:bytes = 0xff00 @ 2026-08-30T10:15:30.500Z
`
	if text(got.Rows) != want {
		t.Errorf("%s%s", text(got.Rows), rejections(got))
	}
}
