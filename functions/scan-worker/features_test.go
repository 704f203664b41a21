package scanworker_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// withFile has the function run another file.
func (h *harness) withFile(file string) *harness {
	h.t.Helper()
	p, err := pipeline.Parse([]byte(file), pipeline.Options{File: "p.yaml"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.cfg.Pipeline = p
	h.start()
	return h
}

const aggregatesFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families: {cf: {}, sums: {aggregate: sum}, lows: {aggregate: min}, highs: {aggregate: max}, people: {aggregate: hll}}
scans:
  all: {table: orders, emit: {sum: row.sums.total, low: row.lows.total, high: row.highs.total, people: row.people.total}, to: {log: {}}}
`

// What was added to aggregates is read as numbers, and a distinct count as the bytes of
// its sketch.
//
// covers: SQL-24
func TestAggregatesAreReadAsNumbersAndASketch(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{}).withFile(aggregatesFile)
	int64Type := &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{}}}
	var create []*adminpb.ModifyColumnFamiliesRequest_Modification
	for name, a := range map[string]*adminpb.Type_Aggregate{
		"sums":   {InputType: int64Type, Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}},
		"lows":   {InputType: int64Type, Aggregator: &adminpb.Type_Aggregate_Min_{Min: &adminpb.Type_Aggregate_Min{}}},
		"highs":  {InputType: int64Type, Aggregator: &adminpb.Type_Aggregate_Max_{Max: &adminpb.Type_Aggregate_Max{}}},
		"people": {InputType: int64Type, Aggregator: &adminpb.Type_Aggregate_HllppUniqueCount{HllppUniqueCount: &adminpb.Type_Aggregate_HyperLogLogPlusPlusUniqueCount{}}},
	} {
		create = append(create, &adminpb.ModifyColumnFamiliesRequest_Modification{Id: name, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{
			Create: &adminpb.ColumnFamily{ValueType: &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: a}}},
		}})
	}
	if _, err := adminpb.NewBigtableTableAdminClient(h.conn).ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: tableName, Modifications: create}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{5, -3, 9} {
		var muts []*bigtablepb.Mutation
		for _, family := range []string{"sums", "lows", "highs", "people"} {
			muts = append(muts, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
				FamilyName:      family,
				ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("total")}},
				Timestamp:       &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{}},
				Input:           &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: n}},
			}}})
		}
		if _, err := bigtablepb.NewBigtableClient(h.conn).MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte("k"), Mutations: muts}); err != nil {
			t.Fatal(err)
		}
	}
	h.plan(0, whole())
	h.run()
	bodies := h.sink.bodies()
	if len(bodies) != 1 {
		t.Fatalf("records %q\n%s", bodies, h.log)
	}
	var got struct {
		Sum, Low, High int64
		People         string
	}
	if err := json.Unmarshal([]byte(bodies[0]), &got); err != nil {
		t.Fatalf("%s: %v", bodies[0], err)
	}
	sketch, err := base64.StdEncoding.DecodeString(got.People)
	if got.Sum != 11 || got.Low != -3 || got.High != 9 || err != nil || len(sketch) == 0 {
		t.Errorf("%s: %v", bodies[0], err)
	}
}

// A scan needs no permission but to read rows: it is well where every other method is
// refused.
//
// covers: SC-24
func TestAScanOnlyReadsRows(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(10)
	for _, method := range []string{
		"SampleRowKeys", "MutateRow", "MutateRows", "CheckAndMutateRow", "ReadModifyWriteRow", "GetTable", "ListTables", "CreateTable", "UpdateTable",
		"ModifyColumnFamilies", "DropRowRange", "GetAppProfile", "ListAppProfiles", "GetInstance", "GetCluster", "ListClusters", "GenerateConsistencyToken",
	} {
		h.emulator.Inject(emulator.Fault{Method: method, Code: codes.PermissionDenied})
	}
	h.plan(0, whole())
	h.run()
	if got := h.sink.bodies(); !slices.Equal(got, wantKeys(0, 10)) {
		t.Errorf("read %v\n%s", got, h.log)
	}
	for _, f := range h.emulator.Faults() {
		if f.Hits > 0 {
			t.Errorf("%s was called", f.Method)
		}
	}
}

// A scan reads under its own profile, and under the default one where it has none, never
// under the one for writes.
//
// covers: SQL-27, SC-20
func TestAScanDoesNotReadUnderTheProfileForWrites(t *testing.T) {
	for name, profile := range map[string]string{"its own": "appProfile: boost, ", "none": ""} {
		h := newHarness(t, ids).withTable(emulator.Options{}).withFile(`
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables: {orders: {appProfile: ingest, families: {cf: {}}}}
scans: {all: {table: orders, ` + profile + `emit: {id: rowKey}, to: {log: {}}}}
`)
		// There is no profile ingest.
		_, err := adminpb.NewBigtableInstanceAdminClient(h.conn).CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{
			Parent: "projects/my-project/instances/my-instance", AppProfileId: "boost", AppProfile: &adminpb.AppProfile{
				RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: emulator.Cluster}},
				Isolation: &adminpb.AppProfile_DataBoostIsolationReadOnly_{DataBoostIsolationReadOnly: &adminpb.AppProfile_DataBoostIsolationReadOnly{
					ComputeBillingOwner: adminpb.AppProfile_DataBoostIsolationReadOnly_HOST_PAYS.Enum(),
				}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.putRows(3)
		h.plan(0, whole())
		if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || !slices.Equal(h.sink.bodies(), wantKeys(0, 3)) {
			t.Errorf("%s: %d, %v, %v", name, code, s.Reason, h.sink.bodies())
		}
	}
}
