package write_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

// A record that a mapping refuses counts against its table, as one does that the service
// refuses; one that no mapping takes counts against none.
//
// covers: SNK-15, MET-03, MET-09
func TestRejectedRecordsCountAgainstTheirTable(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	h := newHarness(t, strings.Replace(meteredFile, "onFailure: dead-letter", "onFailure: drop\n  onUnmatched: dead-letter", 1), plainFamilies("cf"), func(h *harness) {
		h.service.CellBytes = 1000
		h.meter = provider.Meter("write")
	})
	lines := []string{
		`{"id":"a","v":[]}`, `{"id":"b","v":"` + strings.Repeat("x", 2000) + `"}`, // refused by the mapping, by the service
		`{"day":"1","v":[]}`, `{"day":"x","v":"1"}`, `{"day":"2","v":[]}`, // of a computed table; its id refused; its value
		`{"other":1}`, `no JSON`,
	}
	if status := h.deliver("m-1", []byte(strings.Join(lines, "\n"))); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	got := functest.Readings(t, reader)
	if orders, daily, all := got["btf.write.table.entries.failed{table=orders}"], got["btf.write.table.entries.failed{table=daily}"], got["btf.write.records.failed"]; orders != 2 || daily != 3 || all != 7 {
		t.Errorf("failed: %d of orders, %d of daily, %d in all", orders, daily, all)
	}
}

// What a record's id of a table may not be is the failure of the record, and names the
// field; no table is made, and its row is not looked at.
//
// covers: SNK-16
func TestANullTableIsARecordsFailure(t *testing.T) {
	file := strings.Replace(repairFile("if-needed"), `idFrom: '"day-" + event.day'`, `idFrom: event.day`, 1)
	for day, says := range map[string]string{"null": "idFrom", "7": "idFrom", `""`: "idMatches", `"day-x"`: "idMatches"} {
		h := newHarness(t, file, plainFamilies("cf", "totals"), nil)
		if status := h.deliver("m-1", []byte(`{"day":`+day+`,"key":[],"v":"1"}`)); status != 204 {
			t.Fatalf("%s: %d\n%s", day, status, h.log)
		}
		if s := h.writer.Stats(); s.TablesCreated != 0 || s.RecordsSend != 0 {
			t.Errorf("%s: %d tables created, %d entries sent", day, s.TablesCreated, s.RecordsSend)
		}
		if l := h.letters.letters; len(l) != 1 || l[0].Kind != deadletter.KindRecord || !strings.Contains(l[0].Error, says) {
			t.Errorf("%s: letters %v", day, l)
		}
	}
}

// A time finer than a millisecond never reaches Bigtable: it is the failure of its record,
// which says what to write, and of no other.
//
// covers: SNK-12
func TestATimeFinerThanAMillisecondIsNotSent(t *testing.T) {
	var calls atomic.Int64
	h := newHarness(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *harness) {
		h.call = func(method string) {
			if method == "MutateRows" {
				calls.Add(1)
			}
		}
	})
	fine := `{"id":"fine","status":"x","at":"2026-08-30T10:15:30.123456Z"}`
	if status := h.deliver("m-1", []byte(fine)); status != 204 || calls.Load() != 0 {
		t.Errorf("%d after %d calls\n%s", status, calls.Load(), h.log)
	}
	if l := h.letters.letters; len(l) != 1 || string(l[0].Data) != fine || !strings.Contains(l[0].Error, "millis(") {
		t.Errorf("letters %v", l)
	}
	if status := h.deliver("m-2", []byte(fine+"\n"+`{"id":"whole","status":"x","at":"2026-08-30T10:15:30.123Z"}`)); status != 204 {
		t.Errorf("%d\n%s", status, h.log)
	}
	if rows := h.rows("orders"); len(rows) != 1 || rows["whole"] == nil {
		t.Errorf("rows %v", rows)
	}
}

// Requests to write carry the application profile of the table: one that cannot write
// breaks writes, as does one that does not exist.
//
// covers: SNK-39, SQL-27
func TestWritesGoThroughTheProfileOfTheTable(t *testing.T) {
	file := strings.Replace(ordersFile("json", "fail", "fail"), "  orders:\n", "  orders:\n    appProfile: ingest\n", 1)
	cluster := &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: emulator.Cluster}}
	for name, test := range map[string]struct {
		profile *adminpb.AppProfile
		status  int
		says    string
	}{
		"one to write": {&adminpb.AppProfile{RoutingPolicy: cluster}, 204, ""},
		"Data Boost": {&adminpb.AppProfile{RoutingPolicy: cluster, Isolation: &adminpb.AppProfile_DataBoostIsolationReadOnly_{
			DataBoostIsolationReadOnly: &adminpb.AppProfile_DataBoostIsolationReadOnly{
				ComputeBillingOwner: adminpb.AppProfile_DataBoostIsolationReadOnly_HOST_PAYS.Enum(),
			}}}, 503, "FailedPrecondition"},
		"none": {nil, 503, "NotFound"},
	} {
		h := newHarness(t, file, plainFamilies("cf", "extra"), nil)
		if test.profile != nil {
			_, err := adminpb.NewBigtableInstanceAdminClient(h.conn).CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{
				Parent: instance, AppProfileId: "ingest", AppProfile: test.profile,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if status := h.deliver("m-1", []byte(`{"id":"a","status":"x"}`)); status != test.status || !strings.Contains(h.log.String(), test.says) {
			t.Errorf("%s: %d\n%s", name, status, h.log)
		}
		if rows := h.rows("orders"); (len(rows) == 1) != (test.status == 204) {
			t.Errorf("%s: rows %v", name, rows)
		}
	}
}

// cells are all versions of a column, newest first, as VALUE@MILLISECOND of the minute.
func (h *harness) cells(table, key, column string) string {
	h.t.Helper()
	var out []string
	h.read(table, func(r bigtable.Row) {
		for _, items := range r {
			for _, item := range items {
				if r.Key() == key && item.Column == column {
					out = append(out, fmt.Sprintf("%s@%d", item.Value, item.Timestamp.Time().UnixMilli()%60_000))
				}
			}
		}
	})
	return strings.Join(out, " ")
}

// What replaces leaves no version that it replaces, at once and without garbage
// collection: of the column as a whole, or of what is older.
//
// covers: SNK-43, PLAN-05, SQL-25
func TestWhatReplacesIsReadWithAllVersions(t *testing.T) {
	for _, c := range []struct{ replace, want string }{
		{"", "late@30000 two@20000 middle@15000 one@10000"},
		{"          replace: older\n", "late@30000 middle@15000"},
		{"          replace: all\n", "middle@15000"},
	} {
		file := ordersFile("json", "fail", "fail")
		file = strings.Replace(file, "total: event.?total}}\n", "total: event.?total}}\n"+c.replace, 1)
		h := newHarness(t, file, plainFamilies("cf", "extra"), nil)
		for _, e := range []string{`one","at":"2026-08-30T10:15:10Z`, `two","at":"2026-08-30T10:15:20Z`, `late","at":"2026-08-30T10:15:30Z`, `middle","at":"2026-08-30T10:15:15Z`} {
			if status := h.deliver("m", []byte(`{"id":"a","status":"`+e+`","total":7}`)); status != 204 {
				t.Fatalf("%d\n%s", status, h.log)
			}
			if c.replace != "" && e[:3] == "two" && h.cells("orders", "a", "cf:status") != "two@20000" {
				t.Errorf("%q: after two there are %s", c.replace, h.cells("orders", "a", "cf:status"))
			}
		}
		if got := h.cells("orders", "a", "cf:status"); got != c.want {
			t.Errorf("%q: left is %s, want %s", c.replace, got, c.want)
		}
	}
}

// families reads a table's families back, as NAME=RULE/TYPE.
func (h *harness) families(table string) map[string]string {
	h.t.Helper()
	p, err := adminpb.NewBigtableTableAdminClient(h.conn).GetTable(h.t.Context(), &adminpb.GetTableRequest{Name: instance + "/tables/" + table})
	if err != nil {
		h.t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range p.ColumnFamilies {
		rule, kind := "none", "none"
		if f.GcRule != nil {
			rule = fmt.Sprint(f.GcRule.GetMaxNumVersions(), f.GcRule.GetMaxAge().AsDuration(), len(f.GcRule.GetUnion().GetRules()), len(f.GcRule.GetIntersection().GetRules()))
		}
		switch a := f.GetValueType().GetAggregateType(); a.GetAggregator().(type) {
		case *adminpb.Type_Aggregate_Sum_:
			kind = "sum"
		case *adminpb.Type_Aggregate_Min_:
			kind = "min"
		case *adminpb.Type_Aggregate_Max_:
			kind = "max"
		case *adminpb.Type_Aggregate_HllppUniqueCount:
			kind = "hll"
		}
		out[name] = rule + "/" + kind
	}
	return out
}

const familiesFile = `
version: 1
name: kinds
bigtable: {project: my-project, instance: my-instance}
tables:
  kinds:
    create: if-needed
    families:
      versions: {gc: {maxVersions: 2}}
      age: {gc: {maxAge: 1h}}
      both: {gc: {union: [{maxVersions: 1}, {maxAge: 720h}]}}
      kept: {}
      sums: {aggregate: sum}
      lows: {aggregate: min}
      highs: {aggregate: max}
      people: {aggregate: hll}
write:
  format: ndjson
  onFailure: dead-letter
  repair: {initialBackoff: 5ms, maxBackoff: 10ms, maxAttempts: 3}
  mappings:
    - name: m
      table: kinds
      rowKey: event.id
      timestamp: timestamp("2026-08-30T00:00:00Z")
      mutations:
        - set: {versions: {v: event.id}}
        - add: {sums: {total: int(event.n)}}
        - add: {lows: {total: int(event.n)}}
        - add: {highs: {total: int(event.n)}}
        - add: {people: {total: int(event.n)}}
`

// What repair makes is read back: rules and types are those of the file, and of a family
// that exists neither is compared nor changed.
//
// covers: TBL-08, TBL-10, TBL-11, PLAN-04
func TestWhatRepairMakesIsWhatTheFileSays(t *testing.T) {
	declared := map[string]string{
		"versions": "2 0s 0 0/none", "age": "0 1h0m0s 0 0/none", "both": "0 0s 2 0/none", "kept": "none/none",
		"sums": "none/sum", "lows": "none/min", "highs": "none/max", "people": "none/hll",
	}
	event := []byte(`{"id":"a","n":"5"}`)
	h := newHarness(t, familiesFile, nil, func(h *harness) { h.create = false })
	if status := h.deliver("m-1", event); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	if got := h.families("kinds"); !maps.Equal(got, declared) {
		t.Errorf("made: %v, want %v", got, declared)
	}
	existing := map[string]*adminpb.ColumnFamily{
		"versions": {GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: 5}}}, "other": {},
	}
	h = newHarness(t, familiesFile, existing, nil)
	if status := h.deliver("m-1", event); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	want := maps.Clone(declared)
	want["versions"], want["other"] = "5 0s 0 0/none", "none/none"
	if got := h.families("kinds"); !maps.Equal(got, want) {
		t.Errorf("completed: %v, want %v", got, want)
	}
}

// A family that exists must have the declared type already: what adds to another one is
// refused by the service and kept, and the family stays as it is.
//
// covers: TBL-11
func TestAFamilyOfAnotherTypeIsNotAddedTo(t *testing.T) {
	h := newHarness(t, repairFile("if-needed"), plainFamilies("cf", "totals"), nil)
	if status := h.deliver("m-1", []byte(`{"id":"a","v":"1"}`)); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	if l := h.letters.letters; len(l) != 1 || l[0].Kind != deadletter.KindEntry || !strings.Contains(l[0].Error, "InvalidArgument") {
		t.Errorf("letters %v", l)
	}
	if got := h.families("fixed"); got["totals"] != "none/none" {
		t.Errorf("the families are %v", got)
	}
}

// Each input counts for itself, under one key as well; a second delivery counts again in
// a sum, and changes neither a least, a greatest nor a distinct count.
//
// covers: SQL-23, PLAN-04
func TestEachInputOfAnAggregateCountsForItself(t *testing.T) {
	h := newHarness(t, familiesFile, nil, func(h *harness) { h.create = false })
	events := []byte(`{"id":"a","n":"5"}` + "\n" + `{"id":"a","n":"-3"}` + "\n" + `{"id":"a","n":"5"}`)
	var people string
	for i, sum := range []int64{7, 14} {
		if status := h.deliver("m-1", events); status != 204 {
			t.Fatalf("%d\n%s", status, h.log)
		}
		row := h.rows("kinds")["a"]
		if row["sums:total"] != int64Cell(sum) || row["lows:total"] != int64Cell(-3) || row["highs:total"] != int64Cell(5) {
			t.Errorf("after delivery %d the row is %q", i+1, row)
		}
		if i > 0 && row["people:total"] != people {
			t.Error("the distinct count has changed")
		}
		people = row["people:total"]
	}
	if h.deliver("m-2", []byte(`{"id":"a","n":"6"}`)); h.rows("kinds")["a"]["people:total"] == people {
		t.Error("another input leaves the distinct count as it is")
	}
}

// All cells of a row have one time: the mapping's, or the publish time to the millisecond.
// What deletes a family has none, and deletes what is newer too.
//
// covers: SQL-21
func TestTheCellsOfARowHaveOneTime(t *testing.T) {
	file := strings.Replace(vocabularyFile, "      timestamp: millis(timestamp(event.at))\n", "", 1)
	file = strings.Replace(file, "        - when: has(event.n)\n          add: {totals: {sum: int(event.n)}}\n", "", 1)
	file = strings.Replace(file, "        - when: has(event.sum)\n          merge: {totals: {sum: base64.decode(event.sum)}}\n", "", 1)
	for name, c := range map[string]struct {
		file string
		want string
	}{
		"the mapping's":    {vocabularyFile, "30123"},
		"the publish time": {file, "31456"},
	} {
		h := newHarness(t, c.file, counterFamilies(), nil)
		if status := h.deliver("m", []byte(`{"id":"r","at":"2026-08-30T10:15:30.123Z","a":"1","b":"2"}`)); status != 204 {
			t.Fatalf("%s: %d\n%s", name, status, h.log)
		}
		if a, b := h.cells("counters", "r", "cf:a"), h.cells("counters", "r", "cf:b"); a != "1@"+c.want || b != "2@"+c.want {
			t.Errorf("%s: %s, %s", name, a, b)
		}
		if status := h.deliver("m", []byte(`{"id":"r","at":"2001-01-01T00:00:00Z","family":1}`)); status != 204 || h.rows("counters")["r"] != nil {
			t.Errorf("%s: after a delete with an old time: %d, %v", name, status, h.rows("counters"))
		}
	}
}

// Project, instance and id of a table decide where its rows go.
//
// covers: SQL-02
func TestRowsGoWhereTheFileSays(t *testing.T) {
	file := strings.Replace(repairFile("if-needed"), "  fixed: {create", "  fixed: {project: other-project, instance: other-instance, id: renamed, create", 1)
	h := newHarness(t, file, nil, func(h *harness) { h.create = false })
	if status := h.deliver("m-1", []byte(`{"id":"a","v":"1"}`)); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	client, err := bigtable.NewClientWithConfig(t.Context(), "other-project", "other-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(h.conn))
	if err != nil {
		t.Fatal(err)
	}
	row, err := client.Open("renamed").ReadRow(t.Context(), "a")
	if err != nil || len(row["cf"]) != 1 || string(row["cf"][0].Value) != "1" {
		t.Errorf("%v, %v", row, err)
	}
	list, err := adminpb.NewBigtableTableAdminClient(h.conn).ListTables(t.Context(), &adminpb.ListTablesRequest{Parent: instance})
	if err != nil || len(list.Tables) != 0 {
		t.Errorf("beside it there are %v, %v", list, err)
	}
}

// The options of the writer are obeyed, not only read.
//
// covers: SQL-26
func TestWriterOptionsAreObeyed(t *testing.T) {
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf(`{"id":"row-%d","status":"%s"}`, i, strings.Repeat("x", 400)))
	}
	for limits, want := range map[string]int64{
		"": 1, "{batch: {maxEntries: 2}}": 5, "{batch: {maxBytes: 1KiB}}": 5, "{inFlight: {maxEntries: 1}}": 10,
	} {
		var calls atomic.Int64
		file := ordersFile("ndjson", "fail", "fail")
		if limits != "" {
			file = strings.Replace(file, "format: ndjson", "format: ndjson\n  limits: "+limits, 1)
		}
		h := newHarness(t, file, plainFamilies("cf", "extra"), func(h *harness) {
			h.call = func(method string) {
				if method == "MutateRows" {
					calls.Add(1)
				}
			}
		})
		if status := h.deliver("m", []byte(strings.Join(lines, "\n"))); status != 204 || len(h.rows("orders")) != 10 {
			t.Fatalf("%s: %d\n%s", limits, status, h.log)
		}
		if n := calls.Load(); n < want || limits == "" && n != want {
			t.Errorf("%s: %d calls, want %d", limits, n, want)
		}
	}
}

// A letter of an entry holds table and entry as they were sent: whoever parses it can send
// it again, once the service takes it.
//
// covers: FAIL-09
func TestALetterOfAnEntryIsTheEntry(t *testing.T) {
	h := newHarness(t, ordersFile("json", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *harness) { h.service.CellBytes = 1000 })
	value := strings.Repeat("x", 1500)
	if status := h.deliver("m-1", []byte(`{"id":"large","status":"`+value+`","total":3}`)); status != 204 || len(h.letters.letters) != 1 {
		t.Fatalf("%d, letters %v\n%s", status, h.letters.letters, h.log)
	}
	data, attributes := h.letters.letters[0].Encode()
	e := &bigtablepb.MutateRowsRequest_Entry{}
	if err := proto.Unmarshal(data, e); err != nil || string(e.RowKey) != "large" || len(e.Mutations) != 2 {
		t.Fatalf("the letter holds %v, %v", e, err)
	}
	if attributes["table"] != instance+"/tables/orders" || attributes["mapping"] != "order" || attributes["kind"] != "entry" || !strings.Contains(attributes["error"], "InvalidArgument") {
		t.Errorf("attributes %v", attributes)
	}
	larger := newHarness(t, ordersFile("json", "dead-letter", "fail"), plainFamilies("cf", "extra"), nil)
	stream, err := bigtablepb.NewBigtableClient(larger.conn).MutateRows(t.Context(), &bigtablepb.MutateRowsRequest{
		TableName: attributes["table"], Entries: []*bigtablepb.MutateRowsRequest_Entry{e},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, err = stream.Recv(); err == nil; _, err = stream.Recv() {
	}
	if row := larger.rows("orders")["large"]; err != io.EOF || row["cf:status"] != value || row["cf:total"] != int64Cell(3) {
		t.Errorf("applied it is %d bytes of status, %q; %v", len(row["cf:status"]), row["cf:total"], err)
	}
}

// A delivery whose letters cannot be stored within the deadline is refused, and comes again:
// nothing is dropped.
//
// covers: FAIL-18
func TestALetterThatIsNotStoredInTimeRefusesTheDelivery(t *testing.T) {
	h := newHarness(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), nil)
	h.letters.err = context.DeadlineExceeded
	body := []byte(`{"id":"good","status":"x"}` + "\n" + `{"id":"bad","status":[]}`)
	if status := h.deliver("m-1", body); status != 503 {
		t.Errorf("answered %d\n%s", status, h.log)
	}
	h.letters.mu.Lock()
	h.letters.err = nil
	h.letters.mu.Unlock()
	if status := h.deliver("m-1", body); status != 204 || len(h.letters.letters) != 1 || string(h.letters.letters[0].Data) != `{"id":"bad","status":[]}` {
		t.Errorf("the second delivery: %d, letters %v", status, h.letters.letters)
	}
}

// Records that the file passes over count as skipped, whichever way, and as nothing else.
//
// covers: MET-04
func TestSkippedRecordsAreCountedWhicheverWay(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	h := newHarness(t, strings.Replace(meteredFile, "onFailure: dead-letter", "onFailure: dead-letter\n  onUnmatched: skip", 1), plainFamilies("cf"), func(h *harness) {
		h.meter = provider.Meter("write")
	})
	lines := slices.Repeat([]string{`{"heartbeat":1}`, `{"heartbeat":1,"id":"a","v":"1"}`, `{"other":1}`}, 2)
	if status := h.deliver("m-1", []byte(strings.Join(append(lines, `{"id":"a","v":"1"}`), "\n"))); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	got := functest.Readings(t, reader)
	if got["btf.write.records.skipped"] != 6 || got["btf.write.records.failed"] != 0 || got["btf.write.entries.sent"] != 1 || len(h.letters.letters) != 0 {
		t.Errorf("%v, %d letters", got, len(h.letters.letters))
	}
}

// The breaker counts what the service refuses, not what a mapping does, and names option
// and status.
//
// covers: FAIL-12
func TestTheBreakerCountsOnlyWhatTheServiceRefuses(t *testing.T) {
	file := strings.Replace(ordersFile("json", "drop", "fail"), "format: json", "format: json\n  limits: {consecutiveRejections: 3}", 1)
	h := newHarness(t, file, plainFamilies("cf", "extra"), func(h *harness) { h.service.CellBytes = 1000 })
	for range 10 {
		if status := h.deliver("m", []byte(`{"id":"a","status":[]}`)); status != 204 {
			t.Fatalf("refused by the mapping: %d\n%s", status, h.log)
		}
	}
	large := []byte(`{"id":"a","status":"` + strings.Repeat("x", 1500) + `"}`)
	for i, want := range []int{204, 204, 204, 503, 503} {
		if status := h.deliver("m", large); status != want {
			t.Errorf("rejection %d: answered %d, want %d\n%s", i+1, status, want, h.log)
		}
	}
	for _, says := range []string{"limits.consecutiveRejections", "InvalidArgument", `"limit":3`} {
		if !strings.Contains(h.log.String(), says) {
			t.Errorf("the log does not say %s:\n%s", says, h.log)
		}
	}
}
