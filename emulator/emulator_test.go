package emulator_test

import (
	"context"
	"fmt"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

const (
	instance = "projects/p/instances/i"
	tableT   = instance + "/tables/t"
)

// fixture is an emulator in memory and the generated clients on it.
type fixture struct {
	*emulator.Emulator
	conn  *grpc.ClientConn
	data  bigtablepb.BigtableClient
	admin adminpb.BigtableTableAdminClient
	insts adminpb.BigtableInstanceAdminClient
}

func start(t testing.TB, opts emulator.Options) *fixture {
	t.Helper()
	e, err := emulator.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{e, conn, bigtablepb.NewBigtableClient(conn), adminpb.NewBigtableTableAdminClient(conn), adminpb.NewBigtableInstanceAdminClient(conn)}
}

// create makes table t with families a and b, and what else a test wants.
func (f *fixture) create(t testing.TB, change ...func(*adminpb.CreateTableRequest)) {
	t.Helper()
	req := &adminpb.CreateTableRequest{Parent: instance, TableId: "t", Table: &adminpb.Table{
		ColumnFamilies: map[string]*adminpb.ColumnFamily{"a": {}, "b": {}},
	}}
	for _, c := range change {
		c(req)
	}
	if _, err := f.admin.CreateTable(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) client(t testing.TB) *bigtable.Client {
	t.Helper()
	c, err := bigtable.NewClientWithConfig(t.Context(), "p", "i", bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(f.conn))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRowsWrittenByTheOfficialClientAreReadBack(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	tbl := f.client(t).Open("t")
	var keys []string
	var muts []*bigtable.Mutation
	for i := range 3000 {
		m := bigtable.NewMutation()
		m.Set("a", "q", 1000, []byte("v"))
		m.Set("b", "", 2000, []byte("w"))
		keys, muts = append(keys, fmt.Sprintf("row%04d", i)), append(muts, m)
	}
	if errs, err := tbl.ApplyBulk(t.Context(), keys, muts); errs != nil || err != nil {
		t.Fatal(errs, err)
	}
	var got []string
	err := tbl.ReadRows(context.Background(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		got = append(got, r.Key())
		if len(r["a"]) != 1 || string(r["a"][0].Value) != "v" || len(r["b"]) != 1 || r["b"][0].Column != "b:" {
			t.Errorf("row %s: %v", r.Key(), r)
		}
		return true
	})
	if err != nil || len(got) != len(keys) {
		t.Fatal(len(got), err)
	}
	for i := range keys {
		if got[i] != keys[i] {
			t.Fatalf("row %d is %s", i, got[i])
		}
	}
}
