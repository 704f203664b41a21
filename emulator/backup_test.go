package emulator_test

import (
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

const cluster = instance + "/clusters/" + emulator.Cluster

// createBackup makes a backup of a table for eight hours.
func (f *fixture) createBackup(t testing.TB, in, id, table string) {
	t.Helper()
	_, err := f.admin.CreateBackup(t.Context(), &adminpb.CreateBackupRequest{Parent: in, BackupId: id, Backup: &adminpb.Backup{
		SourceTable: table, ExpireTime: timestamppb.New(f.Now().Add(8 * time.Hour)),
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// setIn writes one cell a:q of a row.
func (f *fixture) setIn(t testing.TB, table, key, value string) {
	t.Helper()
	entries, err := mutate(t.Context(), f.data, &bigtablepb.MutateRowsRequest{TableName: table, Entries: []*bigtablepb.MutateRowsRequest_Entry{
		entry(key, setCell("a", "q", 1000, []byte(value)))}})
	if err != nil || entries[0].Status.Code != 0 {
		t.Fatal(entries, err)
	}
}

func (f *fixture) rowsOf(t testing.TB, table string) []string {
	t.Helper()
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: table})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestARestoredTableIsAsTheOldOneWasWhenItWasBackedUp(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t, func(r *adminpb.CreateTableRequest) { r.Table.DeletionProtection = true })
	f.setIn(t, tableT, "k1", "old")
	f.setIn(t, tableT, "k2", "old")
	f.createBackup(t, cluster, "b", tableT)
	f.setIn(t, tableT, "k1", "new")
	f.setIn(t, tableT, "k3", "new")
	restore := func(id, backup string) error {
		_, err := f.admin.RestoreTable(t.Context(), &adminpb.RestoreTableRequest{Parent: instance, TableId: id, Source: &adminpb.RestoreTableRequest_Backup{Backup: cluster + "/backups/" + backup}})
		return err
	}
	if err := restore("r", "b"); err != nil {
		t.Fatal(err)
	}
	const restored = instance + "/tables/r"
	if got, want := f.rowsOf(t, restored), []string{"k1 a:q@1000=old", "k2 a:q@1000=old"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	// Each of them changes for itself.
	f.setIn(t, restored, "k1", "restored")
	if err := restore("r2", "b"); err != nil {
		t.Fatal(err)
	}
	if got := f.rowsOf(t, instance+"/tables/r2")[0]; got != "k1 a:q@1000=old" {
		t.Error(got)
	}
	if got := f.rowsOf(t, tableT); !slices.Equal(got, []string{"k1 a:q@1000=new", "k2 a:q@1000=old", "k3 a:q@1000=new"}) {
		t.Errorf("%q", got)
	}
	table, err := f.admin.GetTable(t.Context(), &adminpb.GetTableRequest{Name: restored})
	if err != nil || len(table.ColumnFamilies) != 2 || table.DeletionProtection || table.RestoreInfo.GetBackupInfo().GetSourceTable() != tableT {
		t.Errorf("%v, %v", table, err)
	}
	refused(t, "an existing table", restore("r", "b"), codes.AlreadyExists, "Table already exists")
	refused(t, "no backup", restore("r3", "nope"), codes.NotFound, "Backup not found")
}

func TestABackupExpiresOnTheEmulatorsClock(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	f.SetClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	f.createBackup(t, cluster, "b", tableT)
	name := cluster + "/backups/b"
	f.AdvanceClock(8*time.Hour - time.Second)
	if _, err := f.admin.GetBackup(t.Context(), &adminpb.GetBackupRequest{Name: name}); err != nil {
		t.Error(err)
	}
	f.AdvanceClock(time.Second)
	_, err := f.admin.GetBackup(t.Context(), &adminpb.GetBackupRequest{Name: name})
	refused(t, "expired", err, codes.NotFound, "Backup not found")
	if _, err := f.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.AdvanceClock(-time.Hour)
	_, err = f.admin.GetBackup(t.Context(), &adminpb.GetBackupRequest{Name: name})
	refused(t, "collected", err, codes.NotFound, "Backup not found")
}

func TestBackupsAreBoundedCopiedChangedAndListed(t *testing.T) {
	f := start(t, emulator.Options{})
	f.create(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.SetClock(now)
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	make := func(id string, b *adminpb.Backup) error {
		b.SourceTable = tableT
		_, err := f.admin.CreateBackup(t.Context(), &adminpb.CreateBackupRequest{Parent: cluster, BackupId: id, Backup: b})
		return err
	}
	refused(t, "too short", make("x", &adminpb.Backup{ExpireTime: at(5 * time.Hour)}), codes.InvalidArgument, "expire_time")
	refused(t, "too long", make("x", &adminpb.Backup{ExpireTime: at(91 * 24 * time.Hour)}), codes.InvalidArgument, "expire_time")
	refused(t, "no expiry", make("x", &adminpb.Backup{}), codes.InvalidArgument, "expire_time")
	refused(t, "a standard one that is hot", make("x", &adminpb.Backup{ExpireTime: at(8 * time.Hour), HotToStandardTime: at(30 * time.Hour)}), codes.InvalidArgument, "hot_to_standard_time")
	refused(t, "hot for too short", make("x", &adminpb.Backup{ExpireTime: at(48 * time.Hour), BackupType: adminpb.Backup_HOT, HotToStandardTime: at(time.Hour)}), codes.InvalidArgument, "24 hours")
	if err := make("hot", &adminpb.Backup{ExpireTime: at(48 * time.Hour), BackupType: adminpb.Backup_HOT, HotToStandardTime: at(30 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	f.AdvanceClock(time.Minute)
	if err := make("std", &adminpb.Backup{ExpireTime: at(20 * 24 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	refused(t, "again", make("std", &adminpb.Backup{ExpireTime: at(48 * time.Hour)}), codes.AlreadyExists, "Backup already exists")

	copyTo := func(id, from string) error {
		_, err := f.admin.CopyBackup(t.Context(), &adminpb.CopyBackupRequest{Parent: "projects/p/instances/other/clusters/" + emulator.Cluster, BackupId: id,
			SourceBackup: from, ExpireTime: at(24 * time.Hour)})
		return err
	}
	if err := copyTo("copy", cluster+"/backups/std"); err != nil {
		t.Fatal(err)
	}
	refused(t, "a copy of a copy", copyTo("copy2", "projects/p/instances/other/clusters/"+emulator.Cluster+"/backups/copy"), codes.FailedPrecondition, "copied backup")

	_, err := f.admin.UpdateBackup(t.Context(), &adminpb.UpdateBackupRequest{Backup: &adminpb.Backup{Name: cluster + "/backups/std", ExpireTime: at(time.Hour)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"expire_time"}}})
	refused(t, "shortened too much", err, codes.InvalidArgument, "expire_time")
	list := func(order, token string) ([]string, string) {
		res, err := f.admin.ListBackups(t.Context(), &adminpb.ListBackupsRequest{Parent: instance + "/clusters/-", OrderBy: order, PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, b := range res.Backups {
			ids = append(ids, b.Name[len(cluster+"/backups/"):])
		}
		return ids, res.NextPageToken
	}
	first, token := list("", "")
	if second, end := list("", token); first[0] != "std" || second[0] != "hot" || end != "" {
		t.Errorf("%q, %q, %q", first, second, end)
	}
	if got, _ := list("expire_time", ""); got[0] != "hot" {
		t.Errorf("%q", got)
	}
	f.AdvanceClock(31 * time.Hour)
	b, err := f.admin.GetBackup(t.Context(), &adminpb.GetBackupRequest{Name: cluster + "/backups/hot"})
	if err != nil || b.BackupType != adminpb.Backup_STANDARD || b.HotToStandardTime != nil {
		t.Errorf("a hot backup whose time has come: %v, %v", b, err)
	}
}
