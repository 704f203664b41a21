package emulator

import (
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

const testTable = "projects/p/instances/i/tables/t"

// logged is an emulator with a table that has a change stream, and the
// services as their handlers see them.
type logged struct {
	*Emulator
	data  dataService
	admin tableAdmin
}

func startLogged(t *testing.T, opts Options) *logged {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	l := &logged{Emulator: e, data: dataService{e: e}, admin: tableAdmin{e: e}}
	_, err = l.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: "t", Table: &adminpb.Table{
		ColumnFamilies: map[string]*adminpb.ColumnFamily{
			"a": {GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: 1}}}, "b": {},
		},
		ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *logged) set(t *testing.T, key string, muts ...*bigtablepb.Mutation) {
	t.Helper()
	if _, err := l.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: testTable, RowKey: []byte(key), Mutations: muts}); err != nil {
		t.Fatal(err)
	}
}

func set(family string, ts int64, value string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte("q"), TimestampMicros: ts, Value: []byte(value)}}}
}

func dropped(family string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: family}}}
}

func (l *logged) changes() []change { return l.tables[testTable].changes() }

// changes are what the log keeps, in order.
func (t *table) changes() []change {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []change
	v := t.view(keyRange{}, 0, t.log.next, true)
	v.each(func(c *change) bool {
		entry := &bigtablepb.MutateRowsRequest_Entry{}
		if err := proto.Unmarshal(c.encoded, entry); err != nil {
			panic(err)
		}
		c.mutations = entry.Mutations
		out = append(out, *c)
		return true
	})
	return out
}

func TestTheLogRecordsEveryAppliedChange(t *testing.T) {
	l := startLogged(t, Options{})
	ctx := t.Context()
	l.SetClock(time.UnixMicro(5_000_000))
	l.set(t, "k", set("a", -1, "1"), set("a", 1000, "old"), set("b", 0, "x"))
	l.set(t, "k", deleteRow[0], set("b", 0, "y"))
	l.set(t, "nothing there", deleteRow...)
	_, err := l.data.CheckAndMutateRow(ctx, &bigtablepb.CheckAndMutateRowRequest{TableName: testTable, RowKey: []byte("k"),
		TrueMutations: []*bigtablepb.Mutation{set("a", 0, "yes")}, FalseMutations: []*bigtablepb.Mutation{set("a", 0, "no")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.data.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: testTable, RowKey: []byte("k"), Rules: []*bigtablepb.ReadModifyWriteRule{
		{FamilyName: "a", ColumnQualifier: []byte("q"), Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte("+")}}}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.CollectGarbage(ctx); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := l.SplitTablet(testTable, []byte("m")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.admin.DropRowRange(ctx, &adminpb.DropRowRangeRequest{Name: testTable, Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte("k")}}); err != nil {
		t.Fatal(err)
	}
	collected := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: "a", ColumnQualifier: []byte("q"), TimeRange: &bigtablepb.TimestampRange{EndTimestampMicros: 1000}}}}
	want := []change{
		{kind: changeUser, mutations: []*bigtablepb.Mutation{set("a", 5_000_000, "1"), set("a", 1000, "old"), set("b", 0, "x")}},
		{kind: changeUser, mutations: []*bigtablepb.Mutation{dropped("a"), dropped("b"), set("b", 0, "y")}},
		{kind: changeUser, mutations: []*bigtablepb.Mutation{set("a", 0, "yes")}},
		{kind: changeUser, mutations: []*bigtablepb.Mutation{set("a", 5_000_000, "yes+")}},
		{kind: changeGC, mutations: []*bigtablepb.Mutation{collected}},
		{kind: changeUser, mutations: []*bigtablepb.Mutation{dropped("a"), dropped("b")}},
	}
	got := l.changes()
	if len(got) != len(want) {
		t.Fatalf("%d changes: %+v", len(got), got)
	}
	for i, w := range want {
		g := got[i]
		if g.kind != w.kind || !slices.EqualFunc(g.mutations, w.mutations, func(a, b *bigtablepb.Mutation) bool { return proto.Equal(a, b) }) {
			t.Errorf("change %d: %+v, want %+v", i, g, w)
		}
		if i > 0 && g.commit <= got[i-1].commit {
			t.Errorf("change %d is not later than the one before", i)
		}
		if g.key != "k" {
			t.Errorf("change %d is of row %q", i, g.key)
		}
		if cluster := map[bool]string{true: "", false: Cluster}[g.kind == changeGC]; g.cluster != cluster {
			t.Errorf("change %d is of cluster %q", i, g.cluster)
		}
	}
}

func TestTheLogForgetsWhatIsPastRetentionAndAllWhenTheStreamIsTurnedOff(t *testing.T) {
	l := startLogged(t, Options{})
	l.SetClock(time.UnixMicro(5_000_000))
	const old, fresh = 3 * changesPerSweep, changesPerSweep
	for range old {
		l.set(t, "k", set("a", 0, ""))
	}
	l.AdvanceClock(25 * time.Hour)
	for range fresh {
		l.set(t, "k", set("a", 0, ""))
	}
	log := &l.tables[testTable].log
	// One chunk may hold changes of both sides.
	if n := len(l.changes()); n < fresh || n > fresh+chunkBytes/10 || log.next != old+fresh {
		t.Errorf("%d changes are kept, the next is number %d", n, log.next)
	}
	l.AdvanceClock(25 * time.Hour)
	if _, err := l.CollectGarbage(t.Context()); err != nil || len(l.changes()) != 0 {
		t.Errorf("%d changes are kept without writes, %v", len(l.changes()), err)
	}
	l.set(t, "k", set("a", 0, ""))
	_, err := l.admin.UpdateTable(t.Context(), &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: testTable}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"change_stream_config"}}})
	if err != nil {
		t.Fatal(err)
	}
	l.set(t, "k", set("a", 0, ""))
	if n := len(l.changes()); n != 0 || log.next != old+fresh+2 {
		t.Errorf("%d changes are kept, the next is number %d", n, log.next)
	}
}

// A change of the schema while a request is under way must not let a cell
// into a family that is gone.
func TestARequestThatOutlivesItsFamilyFailsForTheRest(t *testing.T) {
	l := startLogged(t, Options{})
	tbl := l.tables[testTable]
	entries := []*bigtablepb.MutateRowsRequest_Entry{{RowKey: []byte("k"), Mutations: []*bigtablepb.Mutation{set("b", 0, "v")}}}
	w := writer{e: l.Emulator, t: tbl, schema: tbl.currentSchema(), entries: entries}
	_, err := l.admin.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: testTable, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{
		{Id: "b", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Drop{Drop: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		statuses, err := w.run(t.Context())
		if err != nil || statuses[0].Code != 5 || tbl.rows.Len() != 0 {
			t.Errorf("%v, %v, %d rows", statuses, err, tbl.rows.Len())
		}
		if _, err := l.admin.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: testTable}); err != nil && tbl.dropped == false {
			t.Fatal(err)
		}
	}
}
