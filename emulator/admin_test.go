package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func TestTablesAreCreatedListedDescribedAndDeleted(t *testing.T) {
	f := start(t, emulator.Options{})
	for _, id := range []string{"b", "a", "c"} {
		if _, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: id, Table: &adminpb.Table{}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance + "2", TableId: "d"}); err != nil {
		t.Fatal(err)
	}
	_, err := f.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: "a"})
	refused(t, "a second table", err, codes.AlreadyExists, "")
	var names []string
	page, pages := "", 0
	for {
		res, err := f.admin.ListTables(t.Context(), &adminpb.ListTablesRequest{Parent: instance, PageSize: 2, PageToken: page})
		if err != nil {
			t.Fatal(err)
		}
		for _, tbl := range res.Tables {
			names = append(names, strings.TrimPrefix(tbl.Name, instance+"/tables/"))
		}
		pages++
		if page = res.NextPageToken; page == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) || pages != 2 {
		t.Errorf("%q on %d pages", names, pages)
	}
	if _, err := f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: instance + "/tables/a"}); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(name string) error{
		"get": func(n string) error {
			_, err := f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: n})
			return err
		},
		"delete": func(n string) error {
			_, err := f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: n})
			return err
		},
		"modify": func(n string) error {
			_, err := f.admin.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: n})
			return err
		},
		"update": func(n string) error {
			_, err := f.admin.UpdateTable(t.Context(), &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: n}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"deletion_protection"}}})
			return err
		},
		"drop": func(n string) error {
			_, err := f.admin.DropRowRange(t.Context(), &adminpb.DropRowRangeRequest{Name: n, Target: &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{DeleteAllDataFromTable: true}})
			return err
		},
		"token": func(n string) error {
			_, err := f.admin.GenerateConsistencyToken(t.Context(), &adminpb.GenerateConsistencyTokenRequest{Name: n})
			return err
		},
		"check": func(n string) error {
			_, err := f.admin.CheckConsistency(t.Context(), &adminpb.CheckConsistencyRequest{Name: n})
			return err
		},
	} {
		refused(t, name, call(instance+"/tables/a"), codes.NotFound, "Table not found")
		refused(t, name, call("a"), codes.InvalidArgument, "invalid resource name")
	}
	res, err := f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: instance + "/tables/b", View: adminpb.Table_FULL})
	if err != nil || res.Granularity != adminpb.Table_MILLIS || res.ClusterStates[emulator.Cluster].GetReplicationState() != adminpb.Table_ClusterState_READY {
		t.Errorf("%v, %v", res, err)
	}
}

func TestATableThatTheServiceWouldNotMakeIsRefused(t *testing.T) {
	f := start(t, emulator.Options{})
	hundredAndOne := map[string]*adminpb.ColumnFamily{}
	for i := range 101 {
		hundredAndOne[fmt.Sprint("f", i)] = &adminpb.ColumnFamily{}
	}
	retention := func(d time.Duration) *adminpb.Table {
		return &adminpb.Table{ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(d)}}
	}
	for name, req := range map[string]*adminpb.CreateTableRequest{
		"no id":              {},
		"bad id":             {TableId: "-x"},
		"id of 51":           {TableId: strings.Repeat("x", 51)},
		"bad family":         {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a b": {}}}},
		"family of 65":       {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{strings.Repeat("f", 65): {}}}},
		"family with dash":   {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"-a": {}}}},
		"family with dot":    {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{".a": {}}}},
		"a name in the body": {TableId: "t", Table: &adminpb.Table{Name: instance + "/tables/t"}},
		"101 families":       {TableId: "t", Table: &adminpb.Table{ColumnFamilies: hundredAndOne}},
		"bad gc":             {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{}}}}}},
		"bad type":           {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {ValueType: &adminpb.Type{Kind: &adminpb.Type_BytesType{}}}}}},
		"empty split":        {TableId: "t", InitialSplits: []*adminpb.CreateTableRequest_Split{{}}},
		"a short stream":     {TableId: "t", Table: retention(23 * time.Hour)},
		"a long stream":      {TableId: "t", Table: retention(7*24*time.Hour + time.Second)},
		"a granularity":      {TableId: "t", Table: &adminpb.Table{Granularity: 99}},
		"no such parent":     {Parent: "p", TableId: "t"},
		"unknown aggregate":  {TableId: "t", Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {ValueType: &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: &adminpb.Type_Aggregate{}}}}}}},
	} {
		if req.Parent == "" {
			req.Parent = instance
		}
		_, err := f.admin.CreateTable(t.Context(), req)
		refused(t, name, err, codes.InvalidArgument, "")
	}
}

func modify(id string, change func(*adminpb.ModifyColumnFamiliesRequest_Modification)) *adminpb.ModifyColumnFamiliesRequest_Modification {
	m := &adminpb.ModifyColumnFamiliesRequest_Modification{Id: id}
	change(m)
	return m
}

func createFamily(id string, p *adminpb.ColumnFamily) *adminpb.ModifyColumnFamiliesRequest_Modification {
	return modify(id, func(m *adminpb.ModifyColumnFamiliesRequest_Modification) {
		m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: p}
	})
}

func updateFamily(id string, p *adminpb.ColumnFamily, paths ...string) *adminpb.ModifyColumnFamiliesRequest_Modification {
	return modify(id, func(m *adminpb.ModifyColumnFamiliesRequest_Modification) {
		m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Update{Update: p}
		if len(paths) > 0 {
			m.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
		}
	})
}

func dropFamily(id string) *adminpb.ModifyColumnFamiliesRequest_Modification {
	return modify(id, func(m *adminpb.ModifyColumnFamiliesRequest_Modification) {
		m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Drop{Drop: true}
	})
}

func TestFamiliesChangeAllOrNone(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.write(t, entry("k", setCell("a", "q", 0, nil), setCell("b", "q", 0, nil)), put("only a", "a", "v"))
	do := func(ms ...*adminpb.ModifyColumnFamiliesRequest_Modification) error {
		_, err := f.admin.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: tableT, Modifications: ms})
		return err
	}
	three := &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: 3}}
	refused(t, "no change", do(modify("a", func(*adminpb.ModifyColumnFamiliesRequest_Modification) {})), codes.InvalidArgument, "nothing to do")
	refused(t, "exists", do(createFamily("c", &adminpb.ColumnFamily{}), createFamily("a", &adminpb.ColumnFamily{})), codes.AlreadyExists, "")
	refused(t, "drop of none", do(dropFamily("b"), dropFamily("c")), codes.NotFound, "")
	refused(t, "update of none", do(updateFamily("c", &adminpb.ColumnFamily{})), codes.NotFound, "")
	refused(t, "nothing", do(), codes.InvalidArgument, "")
	refused(t, "unknown field", do(updateFamily("a", &adminpb.ColumnFamily{}, "nope")), codes.InvalidArgument, "")
	refused(t, "a type afterwards", do(updateFamily("a", sumFamily(), "value_type")), codes.InvalidArgument, "Immutable")
	if got := f.rows(t); len(got) != 2 || !strings.Contains(got[0], "b:q") {
		t.Errorf("refused requests changed %q", got)
	}
	if err := do(updateFamily("a", &adminpb.ColumnFamily{GcRule: three}), createFamily("sum", sumFamily()), dropFamily("b"), createFamily("b", &adminpb.ColumnFamily{})); err != nil {
		t.Fatal(err)
	}
	if err := do(updateFamily("sum", sumFamily(), "value_type")); err != nil {
		t.Error("the same type again:", err)
	}
	if err := do(dropFamily("a")); err != nil {
		t.Fatal(err)
	}
	if got := f.rows(t); len(got) != 0 {
		t.Errorf("dropped families left %q", got)
	}
	if err := do(createFamily("a", &adminpb.ColumnFamily{})); err != nil {
		t.Fatal(err)
	}
	if got := f.rows(t); len(got) != 0 {
		t.Errorf("a new family of the same name holds %q", got)
	}
}

func TestADeletionProtectedTableKeepsItselfAndItsFamilies(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) { r.Table.DeletionProtection = true })
	del := func() error {
		_, err := f.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: tableT})
		return err
	}
	refused(t, "table", del(), codes.FailedPrecondition, "protected")
	_, err := f.admin.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: tableT, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{dropFamily("a")}})
	refused(t, "family", err, codes.FailedPrecondition, "protected")
	f.write(t, put("k", "a", "v"), entry("k", deleteFromRow()))
	op, err := f.admin.UpdateTable(t.Context(), &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: tableT}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"deletion_protection"}}})
	if err != nil || !op.Done {
		t.Fatal(op, err)
	}
	if err := del(); err != nil {
		t.Error(err)
	}
}

func TestChangeStreamRetentionAndKeySchemaAreUpdated(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	update := func(tbl *adminpb.Table, paths ...string) error {
		tbl.Name = tableT
		_, err := f.admin.UpdateTable(t.Context(), &adminpb.UpdateTableRequest{Table: tbl, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	get := func() *adminpb.Table {
		tbl, err := f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: tableT})
		if err != nil {
			t.Fatal(err)
		}
		return tbl
	}
	stream := func(d time.Duration) *adminpb.Table {
		return &adminpb.Table{ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(d)}}
	}
	for _, path := range []string{"change_stream_config", "change_stream_config.retention_period"} {
		if err := update(stream(48*time.Hour+time.Nanosecond), path); err != nil {
			t.Fatal(err)
		}
		if got := get().ChangeStreamConfig.GetRetentionPeriod().AsDuration(); got != 48*time.Hour {
			t.Errorf("%s: %v", path, got)
		}
		refused(t, path, update(stream(time.Hour), path), codes.InvalidArgument, "at least 1 day")
	}
	if err := update(&adminpb.Table{}, "change_stream_config"); err != nil || get().ChangeStreamConfig != nil {
		t.Errorf("disabling: %v, %v", err, get())
	}
	keySchema := &adminpb.Table{RowKeySchema: &adminpb.Type_Struct{
		Fields: []*adminpb.Type_Struct_Field{{FieldName: "id", Type: &adminpb.Type{Kind: &adminpb.Type_BytesType{BytesType: &adminpb.Type_Bytes{
			Encoding: &adminpb.Type_Bytes_Encoding{Encoding: &adminpb.Type_Bytes_Encoding_Raw_{}},
		}}}}},
		Encoding: &adminpb.Type_Struct_Encoding{Encoding: &adminpb.Type_Struct_Encoding_Singleton_{}},
	}}
	if err := update(keySchema, "row_key_schema"); err != nil || get().RowKeySchema == nil {
		t.Error("row_key_schema:", err)
	}
	refused(t, "removing the key schema", update(&adminpb.Table{}, "row_key_schema"), codes.InvalidArgument, "ignore_warnings")
	refused(t, "families", update(&adminpb.Table{}, "column_families"), codes.Unimplemented, "")
	refused(t, "unknown path", update(&adminpb.Table{}, "granularity"), codes.InvalidArgument, "")
	refused(t, "no mask", update(&adminpb.Table{}), codes.InvalidArgument, "update_mask")
}

func TestConsistencyTokensBelongToTheirTable(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	res, err := f.admin.GenerateConsistencyToken(t.Context(), &adminpb.GenerateConsistencyTokenRequest{Name: tableT})
	if err != nil {
		t.Fatal(err)
	}
	check, err := f.admin.CheckConsistency(t.Context(), &adminpb.CheckConsistencyRequest{Name: tableT, ConsistencyToken: res.ConsistencyToken})
	if err != nil || !check.Consistent {
		t.Errorf("%v, %v", check, err)
	}
	_, err = f.admin.CheckConsistency(t.Context(), &adminpb.CheckConsistencyRequest{Name: tableT, ConsistencyToken: res.ConsistencyToken + "1"})
	refused(t, "another token", err, codes.InvalidArgument, "token")
}

func TestProfilesDecideWhatRequestsMayDo(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	single := func(transactions bool) *adminpb.AppProfile {
		return &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: emulator.Cluster, AllowTransactionalWrites: transactions}}}
	}
	multi := &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}}}
	boost := func(transactions bool) *adminpb.AppProfile {
		p := single(transactions)
		p.Isolation = &adminpb.AppProfile_DataBoostIsolationReadOnly_{DataBoostIsolationReadOnly: &adminpb.AppProfile_DataBoostIsolationReadOnly{}}
		return p
	}
	create := func(id string, p *adminpb.AppProfile) error {
		_, err := f.insts.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: instance, AppProfileId: id, AppProfile: p})
		return err
	}
	for id, p := range map[string]*adminpb.AppProfile{"single": single(false), "transactions": single(true), "multi": multi, "boost": boost(false)} {
		if err := create(id, p); err != nil {
			t.Fatal(id, err)
		}
	}
	refused(t, "again", create("single", single(false)), codes.AlreadyExists, "")
	refused(t, "no routing", create("x", &adminpb.AppProfile{}), codes.InvalidArgument, "routing_policy")
	refused(t, "bad id", create("-", multi), codes.InvalidArgument, "app_profile_id")
	refused(t, "boost with transactions", create("x", boost(true)), codes.InvalidArgument, "read-only")

	muts := put("k", "a", "v").Mutations
	reverse := withFeatures(t.Context(), &bigtablepb.FeatureFlags{ReverseScans: true})
	calls := map[string]func(profile string) error{
		"write": func(p string) error {
			_, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, AppProfileId: p, RowKey: []byte("k"), Mutations: muts})
			return err
		},
		"conditional": func(p string) error {
			_, err := f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, AppProfileId: p, RowKey: []byte("k"), TrueMutations: muts})
			return err
		},
		"increment": func(p string) error {
			_, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, AppProfileId: p, RowKey: []byte("n"),
				Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "a", Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}}})
			return err
		},
		"read": func(p string) error {
			_, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, AppProfileId: p})
			return err
		},
		"reverse": func(p string) error {
			_, err := read(reverse, f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, AppProfileId: p, Reversed: true})
			return err
		},
	}
	allowed := map[string][]string{
		"":             {"write", "conditional", "increment", "read", "reverse"},
		"default":      {"write", "conditional", "increment", "read", "reverse"},
		"transactions": {"write", "conditional", "increment", "read", "reverse"},
		"single":       {"write", "read", "reverse"},
		"multi":        {"write", "read", "reverse"},
		"boost":        {"read"},
	}
	for profile, names := range allowed {
		for name, call := range calls {
			err := call(profile)
			if ok := err == nil; ok != slices.Contains(names, name) {
				t.Errorf("%s with profile %q: %v", name, profile, err)
			}
			if err != nil && profile != "boost" {
				refused(t, name, err, codes.FailedPrecondition, "Single-row transactions are not allowed by this app profile")
			}
		}
	}
}

func TestProfilesAreUpdatedListedAndDeleted(t *testing.T) {
	f := start(t, emulator.Options{})
	names := func() (ids []string) {
		res, err := f.insts.ListAppProfiles(t.Context(), &adminpb.ListAppProfilesRequest{Parent: instance})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range res.AppProfiles {
			ids = append(ids, strings.TrimPrefix(p.Name, instance+"/appProfiles/"))
		}
		return ids
	}
	if got := names(); !slices.Equal(got, []string{"default"}) {
		t.Errorf("%q", got)
	}
	p, err := f.insts.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: instance, AppProfileId: "p", AppProfile: &adminpb.AppProfile{
		Description:   "one",
		RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}},
		//lint:ignore SA1019 the service still takes the deprecated spelling
		Isolation: &adminpb.AppProfile_Priority_{Priority: adminpb.AppProfile_PRIORITY_LOW},
	}})
	if err != nil || p.GetStandardIsolation().GetPriority() != adminpb.AppProfile_PRIORITY_LOW || p.Etag != "" {
		t.Fatal(p, err)
	}
	if got := names(); !slices.Equal(got, []string{"default", "p"}) {
		t.Errorf("%q", got)
	}
	update := func(change *adminpb.AppProfile, paths ...string) error {
		change.Name = p.Name
		op, err := f.insts.UpdateAppProfile(t.Context(), &adminpb.UpdateAppProfileRequest{AppProfile: change, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		if err == nil && !op.Done {
			t.Error("the operation is not done")
		}
		return err
	}
	if err := update(&adminpb.AppProfile{Description: "two", Etag: p.Etag}, "description"); err != nil {
		t.Fatal(err)
	}
	refused(t, "an etag", update(&adminpb.AppProfile{Description: "three", Etag: "x"}, "description"), codes.Aborted, "etag")
	if err := update(&adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "c"}}}, "single_cluster_routing"); err != nil {
		t.Fatal(err)
	}
	refused(t, "unknown path", update(&adminpb.AppProfile{}, "name"), codes.InvalidArgument, "update_mask")
	got, err := f.insts.GetAppProfile(t.Context(), &adminpb.GetAppProfileRequest{Name: p.Name})
	if err != nil || got.Description != "two" || got.GetSingleClusterRouting().GetClusterId() != "c" || got.GetStandardIsolation() == nil {
		t.Errorf("%v, %v", got, err)
	}
	refused(t, "without a mask", update(&adminpb.AppProfile{RoutingPolicy: p.RoutingPolicy}), codes.InvalidArgument, "A non-empty 'update_mask' must be specified")
	del := func(id string, ignore bool) error {
		_, err := f.insts.DeleteAppProfile(t.Context(), &adminpb.DeleteAppProfileRequest{Name: instance + "/appProfiles/" + id, IgnoreWarnings: ignore})
		return err
	}
	if err := del("p", false); err != nil {
		t.Error(err)
	}
	refused(t, "again", del("p", false), codes.NotFound, "")
	refused(t, "the default one", del("default", false), codes.FailedPrecondition, "ignore_warnings")
	if err := del("default", true); err != nil {
		t.Error(err)
	}
	_, err = f.data.PingAndWarm(t.Context(), &bigtablepb.PingAndWarmRequest{Name: instance})
	refused(t, "without a default profile", err, codes.NotFound, "App profile not found")
	refused(t, "update of none", update(&adminpb.AppProfile{}, "description"), codes.NotFound, "")
}

func TestTheOfficialAdminClientWorks(t *testing.T) {
	f := start(t, emulator.Options{})
	ctx := t.Context()
	admin, err := bigtable.NewAdminClient(ctx, "p", "i", option.WithGRPCConn(f.conn))
	if err != nil {
		t.Fatal(err)
	}
	err = admin.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID: "t",
		ColumnFamilies: map[string]bigtable.Family{
			"gc": {GCPolicy: bigtable.UnionPolicy(bigtable.MaxVersionsPolicy(2), bigtable.IntersectionPolicy(bigtable.MaxAgePolicy(time.Hour), bigtable.MaxVersionsPolicy(1)))},
			"max": {ValueType: bigtable.AggregateType{
				Input: bigtable.Int64Type{Encoding: bigtable.BigEndianBytesEncoding{}}, Aggregator: bigtable.MaxAggregator{}}},
		},
		SplitKeys:             []string{"m"},
		ChangeStreamRetention: 48 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := admin.TableInfo(ctx, "t")
	if err != nil || info.ChangeStreamRetention != 48*time.Hour || len(info.FamilyInfos) != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	client := f.client(t)
	tbl := client.Open("t")
	for _, n := range []int64{3, 9, 4} {
		m := bigtable.NewMutation()
		m.AddIntToCell("max", "q", 0, n)
		if err := tbl.Apply(ctx, "k", m); err != nil {
			t.Fatal(err)
		}
	}
	row, err := tbl.ReadRow(ctx, "k")
	if err != nil || string(row["max"][0].Value) != int64Value(9) {
		t.Errorf("%v, %v", row, err)
	}
	keys, err := tbl.SampleRowKeys(ctx)
	if err != nil || !slices.Equal(keys, []string{"m"}) {
		t.Errorf("%q, %v", keys, err)
	}
	if err := admin.UpdateTableDisableChangeStream(ctx, "t"); err != nil {
		t.Error(err)
	}
	if err := admin.UpdateTableWithDeletionProtection(ctx, "t", bigtable.Protected); err != nil {
		t.Error(err)
	}
	if err := admin.WaitForReplication(ctx, "t"); err != nil {
		t.Error(err)
	}
}

// covers: EMU-03
func TestWhatIsNotServedAnswersUnimplementedAndNothingPanics(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	var methods []string
	for _, service := range services() {
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			methods = append(methods, string(m.FullName()))
			err := callEmpty(t.Context(), f.conn, service, m)
			sentence := strings.Contains(status.Convert(err).Message(), "This emulator does not serve "+string(m.Name())+": ")
			if (status.Code(err) == codes.Unimplemented) != sentence {
				t.Errorf("%s: %v", m.FullName(), err)
			}
			if in := strings.Contains(emulator.RPCTable([]string{string(m.FullName())}), "not served"); in != sentence {
				t.Errorf("%s: the table of docs/emulator.md does not say what it answers: %v", m.FullName(), err)
			}
		}
	}
	doc, err := os.ReadFile("../docs/emulator.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := emulator.RPCTable(methods); !strings.Contains(string(doc), table) {
		t.Errorf("docs/emulator.md has not this table of RPCs:\n%s", table)
	}
	// Requests without their parts are refused, not followed into nil.
	for _, muts := range [][]*bigtablepb.Mutation{
		{{Mutation: &bigtablepb.Mutation_SetCell_{}}}, {{Mutation: &bigtablepb.Mutation_AddToCell_{}}}, {{Mutation: &bigtablepb.Mutation_MergeToCell_{}}},
		{{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{}}}, {{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{}}}, {nil},
	} {
		_, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: []byte("k"), Mutations: muts})
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.NotFound {
			t.Errorf("%v: %v", muts, err)
		}
	}
	for _, filter := range []*bigtablepb.RowFilter{
		{Filter: &bigtablepb.RowFilter_Chain_{}}, {Filter: &bigtablepb.RowFilter_Interleave_{}}, {Filter: &bigtablepb.RowFilter_Condition_{}},
		{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{}}, {Filter: &bigtablepb.RowFilter_TimestampRangeFilter{}}, {Filter: &bigtablepb.RowFilter_ValueRangeFilter{}},
		{Filter: &bigtablepb.RowFilter_ValueBitmaskFilter{}},
	} {
		if _, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Filter: filter}); status.Code(err) == codes.Unavailable {
			t.Errorf("%v: %v", filter, err)
		}
	}
}

// services are the services of Bigtable.
func services() []protoreflect.ServiceDescriptor {
	var out []protoreflect.ServiceDescriptor
	for _, file := range []protoreflect.FileDescriptor{bigtablepb.File_google_bigtable_v2_bigtable_proto, adminpb.File_google_bigtable_admin_v2_bigtable_table_admin_proto, adminpb.File_google_bigtable_admin_v2_bigtable_instance_admin_proto} {
		for i := range file.Services().Len() {
			out = append(out, file.Services().Get(i))
		}
	}
	return out
}

// callEmpty calls a method with an empty request.
func callEmpty(ctx context.Context, conn *grpc.ClientConn, service protoreflect.ServiceDescriptor, m protoreflect.MethodDescriptor) error {
	name := fmt.Sprintf("/%s/%s", service.FullName(), m.Name())
	var req proto.Message = dynamicpb.NewMessage(m.Input())
	res := dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return conn.Invoke(ctx, name, req, res)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: true}, name)
	if err != nil {
		return err
	}
	// io.EOF: the server has ended the call already, and RecvMsg has its status.
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(res); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
