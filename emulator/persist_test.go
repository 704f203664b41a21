package emulator

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"
)

// dump is everything an emulator must bring back, as text.
func (e *Emulator) dump() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.tables)) {
		t := e.tables[name]
		fmt.Fprintf(&b, "table %s %d %v\n", name, t.id, stable(t.schemaProto()))
		for key, r := range allRows(t.rows) {
			fmt.Fprintf(&b, "  %q", key)
			for _, c := range r.Cells {
				fmt.Fprintf(&b, " %s:%q@%d=%q", c.Family, c.Qualifier, c.Timestamp, c.Value)
			}
			b.WriteByte('\n')
		}
		for i, tab := range t.tablets {
			fmt.Fprintf(&b, "  tablet %v %d\n", t.tabletRef(i), tab.size)
		}
		fmt.Fprintf(&b, "  log %d %d %d %d %d\n", t.log.retention, t.log.generation, t.log.since, t.log.next, t.log.last)
		for _, c := range t.changes() {
			fmt.Fprintf(&b, "  %d %d %d %q %q %d", c.position, c.kind, c.commit, c.key, c.cluster, c.tie)
			for _, m := range c.mutations {
				fmt.Fprintf(&b, " {%v}", stable(m))
			}
			b.WriteByte('\n')
		}
		for _, id := range slices.Sorted(maps.Keys(t.tokens.seen)) {
			fmt.Fprintf(&b, "  token %q %d\n", id, t.tokens.seen[id])
		}
	}
	for _, instance := range slices.Sorted(maps.Keys(e.profiles)) {
		for _, id := range slices.Sorted(maps.Keys(e.profiles[instance])) {
			fmt.Fprintf(&b, "profile %s %v\n", instance, stable(e.profiles[instance][id]))
		}
	}
	e.dumpAdmin(&b)
	return b.String()
}

// stable is a message as text; prototext varies its spaces on purpose.
func stable(m any) string {
	return strings.Join(strings.Fields(fmt.Sprint(m)), " ")
}

// everything uses every kind of change once.
func everything(t *testing.T, l *logged) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sum := &adminpb.ColumnFamily{ValueType: &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: &adminpb.Type_Aggregate{
		InputType:  &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{}}},
		Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}}}}}
	must(l.admin.ModifyColumnFamilies(ctx, &adminpb.ModifyColumnFamiliesRequest{Name: testTable, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{
		{Id: "sum", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: sum}},
		{Id: "temp", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: &adminpb.ColumnFamily{}}}}}))
	l.set(t, "k", set("a", -1, "1"), set("a", 0, "0"), set("b", 1000, "\x00\xff"))
	l.set(t, "temp only", set("temp", 0, "x"))
	add := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
		FamilyName:      "sum",
		ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{}},
		Timestamp:       &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{}},
		Input:           &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 7}}}}}
	for range 2 {
		must(l.data.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: testTable, RowKey: []byte("n"), Mutations: []*bigtablepb.Mutation{add},
			Idempotency: &bigtablepb.Idempotency{Token: []byte("12345678")}}))
	}
	for i := range 50 {
		l.set(t, fmt.Sprintf("bulk%02d", i), set("b", 0, strings.Repeat("v", 100)))
	}
	must(l.admin.DropRowRange(ctx, &adminpb.DropRowRangeRequest{Name: testTable, Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte("bulk1")}}))
	must(l.admin.ModifyColumnFamilies(ctx, &adminpb.ModifyColumnFamiliesRequest{Name: testTable, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{
		{Id: "temp", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Drop{Drop: true}}}}))
	must(l.CollectGarbage(ctx))
	must(nil, l.SplitTablet(testTable, []byte("c")))
	must(nil, l.SplitTablet(testTable, []byte("d")))
	must(nil, l.ShiftTablets(testTable, []byte("c"), []byte("bx")))
	must(nil, l.MergeTablets(testTable, []byte("d")))
	must(nil, l.MoveTablet(testTable, []byte("a")))
	must(l.admin.UpdateTable(ctx, &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: testTable, DeletionProtection: true,
		ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(48 * time.Hour)}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"change_stream_config", "deletion_protection"}}}))
	for _, id := range []string{"gone", "kept"} {
		must(l.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: id, Table: &adminpb.Table{Granularity: adminpb.Table_MICROS}}))
	}
	must(l.admin.DeleteTable(ctx, &adminpb.DeleteTableRequest{Name: "projects/p/instances/i/tables/gone"}))
	insts := instanceAdmin{e: l.Emulator}
	for _, id := range []string{"x", "y"} {
		must(insts.CreateAppProfile(ctx, &adminpb.CreateAppProfileRequest{Parent: "projects/p/instances/i", AppProfileId: id, AppProfile: &adminpb.AppProfile{
			RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}}}}))
	}
	must(insts.DeleteAppProfile(ctx, &adminpb.DeleteAppProfileRequest{Name: "projects/p/instances/i/appProfiles/y"}))
	administer(t, l)
}

func reopen(t *testing.T, opts Options) *Emulator {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestADataDirectoryBringsEverythingBack(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprint("snapshot=", snapshot), func(t *testing.T) {
			opts := Options{DataDir: t.TempDir(), Fsync: true, TabletBytes: 4000}
			l := startLogged(t, opts)
			everything(t, l)
			if snapshot {
				if err := l.saveSnapshot(); err != nil {
					t.Fatal(err)
				}
				l.set(t, "after", set("b", 0, "the snapshot"))
			}
			want := l.dump()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				e := reopen(t, opts)
				if got := e.dump(); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestSnapshotsKeepTheJournalShortWhileWritersGoOn(t *testing.T) {
	opts := Options{DataDir: t.TempDir(), SnapshotBytes: 20_000}
	l := startLogged(t, opts)
	for i := range 2000 {
		l.set(t, fmt.Sprint("k", i%10), set("b", int64(i)*1000, "some value"))
	}
	want := l.dump()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	snapshots, err := filepath.Glob(filepath.Join(opts.DataDir, "snapshot-*"))
	if err != nil || len(snapshots) != 1 {
		t.Errorf("%q, %v", snapshots, err)
	}
	if got := reopen(t, opts).dump(); got != want {
		t.Error("the state is not what it was")
	}
}

func TestADataDirectoryOfAnotherKindIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := startLogged(t, Options{DataDir: dir})
	if err := l.saveSnapshot(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "journal-0000000000000001")
	if err := os.WriteFile(path, []byte("not a journal at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{DataDir: dir}); err == nil {
		t.Error("opened")
	}
}

// Whatever bytes a record holds, reading it must not panic: a damaged disk is
// an error.
func TestRecordsThatAreCutShortAreErrors(t *testing.T) {
	var records [][]byte
	opts := Options{DataDir: t.TempDir()}
	l := startLogged(t, opts)
	everything(t, l)
	tbl := l.tables[testTable]
	for _, c := range tbl.changes() {
		records = append(records, putChange([]byte{recordChange}, tbl, c))
	}
	records = append(records, putTable([]byte{recordTable}, tbl), putProfiles([]byte{recordProfiles}, "i", l.profiles["projects/p/instances/i"]))
	for name, i := range l.instances {
		records = append(records, putInstance([]byte{recordInstance}, name, i))
	}
	for name, p := range l.policies {
		records = append(records, putNamed([]byte{recordPolicy}, name, p))
	}
	for _, b := range l.backups {
		records = append(records, putProto(putProto(putUint([]byte{recordBackup}, backupFollows), b.info), b.schema))
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := rapid.SampledFrom(records).Draw(rt, "record")
		cut := rapid.IntRange(1, len(r)-1).Draw(rt, "cut")
		fresh := reopen(t, Options{})
		fresh.tables[testTable] = newTable(testTable, 1, tbl.info, tbl.schema)
		if err := fresh.replay(r[:cut]); err == nil {
			rt.Fatalf("%q was taken", r[:cut])
		}
	})
}

func TestATornRecordIsCutOffWithALineInTheLog(t *testing.T) {
	dir := t.TempDir()
	l := startLogged(t, Options{DataDir: dir})
	l.set(t, "k", set("b", 0, "whole"))
	want := l.dump()
	l.set(t, "l", set("b", 0, "torn"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "journal-0000000000000000")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []bool{true, false} {
		var log strings.Builder
		e, err := New(Options{DataDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.dump(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "cut off") && strings.Contains(log.String(), "journal-0000000000000000"); got != cut {
			t.Errorf("the log says %q", log.String())
		}
	}
}
