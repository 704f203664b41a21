package emulator

import (
	"context"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"github.com/tidwall/btree"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// backup is a table as it was at one moment. It shares its rows with the table
// and with what is restored from it, since rows never change.
type backup struct {
	info   *adminpb.Backup // replaced, never changed
	schema *adminpb.Table  // the table's admin form
	rows   *btree.BTreeG[*store.Row]
}

// The bounds of table.proto, Backup, and bigtable_table_admin.proto,
// CopyBackupRequest, counted from a backup's creation.
const (
	shortestBackup = 6 * time.Hour
	longestBackup  = 90 * day
	longestCopy    = 30 * day
	shortestHot    = day
)

func backupNotFound(name string) error {
	return status.Errorf(codes.NotFound, "Backup not found: %s", name)
}

// backup finds a backup that has not expired. The caller holds e.mu.
func (e *Emulator) backup(name string) (*backup, error) {
	b := e.backups[name]
	if b == nil || b.expired(e.clock.now()) {
		return nil, backupNotFound(name)
	}
	return b, nil
}

func (b *backup) expired(now time.Time) bool { return !now.Before(b.info.ExpireTime.AsTime()) }

// describe is a backup's admin form at a time: a hot backup becomes a standard
// one when its time has come.
func (b *backup) describe(now time.Time) *adminpb.Backup {
	t := b.info.HotToStandardTime
	if t == nil || now.Before(t.AsTime()) {
		return b.info
	}
	p := proto.Clone(b.info).(*adminpb.Backup)
	p.BackupType, p.HotToStandardTime = adminpb.Backup_STANDARD, nil
	return p
}

// backupIn is the name of a backup that lies in a resource, "" if none does.
// The caller holds e.mu.
func (e *Emulator) backupIn(prefix string) string {
	for name := range e.backups {
		if _, err := e.backup(name); err == nil && len(name) > len(prefix) && name[:len(prefix)] == prefix {
			return name
		}
	}
	return ""
}

// newBackupName is the name of a backup that is to be made.
func (e *Emulator) newBackupName(parent, id string) (string, error) {
	if err := checkName(clusterName, "parent", parent); err != nil {
		return "", err
	}
	if !resourceID.MatchString(id) || len(id) > e.limits.TableIDBytes {
		return "", status.Errorf(codes.InvalidArgument, "Error in field 'backup_id' : %q must match [_a-zA-Z0-9][-_.a-zA-Z0-9]* and have at most %d characters", id, e.limits.TableIDBytes)
	}
	return parent + "/backups/" + id, nil
}

func checkExpiry(created time.Time, expire *timestamppb.Timestamp, longest time.Duration) error {
	after := expire.AsTime().Sub(created)
	if expire == nil || after < shortestBackup || after > longest {
		return status.Errorf(codes.InvalidArgument, "Error in field 'expire_time' : must be at least %v and at most %d days after the backup's creation", shortestBackup, longest/day)
	}
	return nil
}

func checkHot(created time.Time, b *adminpb.Backup) error {
	switch {
	case b.HotToStandardTime == nil:
		return nil
	case b.BackupType != adminpb.Backup_HOT:
		return status.Error(codes.InvalidArgument, "Error in field 'hot_to_standard_time' : is for hot backups only")
	case b.HotToStandardTime.AsTime().Sub(created) < shortestHot:
		return status.Error(codes.InvalidArgument, "Error in field 'hot_to_standard_time' : must be at least 24 hours after the backup's creation")
	}
	return nil
}

// CreateBackup keeps a table's schema and rows as they are now.
func (a *tableAdmin) CreateBackup(_ context.Context, req *adminpb.CreateBackupRequest) (*longrunningpb.Operation, error) {
	name, err := a.e.newBackupName(req.GetParent(), req.GetBackupId())
	if err != nil {
		return nil, err
	}
	source := req.GetBackup().GetSourceTable()
	if err := checkName(tableName, "backup.source_table", source); err != nil {
		return nil, err
	}
	if instanceOf(source) != instanceOf(name) {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'backup.source_table' : must be in the instance of the backup")
	}
	info, err := a.e.createBackup(name, req.Backup)
	if err != nil {
		return nil, err
	}
	if err := a.e.durable(a.e.appended()); err != nil {
		return nil, err
	}
	return a.e.done(name, info, &adminpb.CreateBackupMetadata{
		Name: name, SourceTable: source, StartTime: info.StartTime, EndTime: info.EndTime,
	})
}

func (e *Emulator) createBackup(name string, p *adminpb.Backup) (*adminpb.Backup, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cluster, err := e.newBackup(name)
	if err != nil {
		return nil, err
	}
	t := e.tables[p.SourceTable]
	if t == nil {
		return nil, tableNotFound(p.SourceTable)
	}
	now := e.clock.now()
	info := &adminpb.Backup{
		Name: name, SourceTable: p.SourceTable, ExpireTime: p.ExpireTime, StartTime: timestamppb.New(now), EndTime: timestamppb.New(now),
		State: adminpb.Backup_READY, BackupType: p.BackupType, HotToStandardTime: p.HotToStandardTime, EncryptionInfo: encryptionOf(cluster),
	}
	if info.BackupType == adminpb.Backup_BACKUP_TYPE_UNSPECIFIED {
		info.BackupType = adminpb.Backup_STANDARD
	}
	if err := checkExpiry(now, info.ExpireTime, longestBackup); err != nil {
		return nil, err
	}
	if err := checkHot(now, info); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tab := range t.tablets {
		info.SizeBytes += tab.size
	}
	e.keepBackup(t, info)
	e.journalBackup(backupOfTable, info)
	return info, nil
}

// newBackup finds the cluster of a backup that does not exist yet. The caller
// holds e.mu.
func (e *Emulator) newBackup(name string) (*adminpb.Cluster, error) {
	parent, _ := parentOf(name)
	cluster, err := e.cluster(parent)
	if err != nil {
		return nil, err
	}
	if _, err := e.backup(name); err == nil {
		return nil, status.Errorf(codes.AlreadyExists, "Backup already exists: %s", name)
	}
	return cluster, nil
}

// keepBackup keeps a table as it is. The caller holds e.mu for writing and t.mu.
func (e *Emulator) keepBackup(t *table, info *adminpb.Backup) {
	e.backups[info.Name] = &backup{info: info, schema: t.schemaProto(), rows: t.rows.Copy()}
}

// copyBackup keeps a copy of a backup. The caller holds e.mu for writing.
func (e *Emulator) copyBackup(from *backup, info *adminpb.Backup) {
	e.backups[info.Name] = &backup{info: info, schema: from.schema, rows: from.rows.Copy()}
}

// GetBackup describes a backup.
func (a *tableAdmin) GetBackup(_ context.Context, req *adminpb.GetBackupRequest) (*adminpb.Backup, error) {
	if err := checkName(backupName, "name", req.GetName()); err != nil {
		return nil, err
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	b, err := a.e.backup(req.Name)
	if err != nil {
		return nil, err
	}
	return b.describe(a.e.clock.now()), nil
}

// UpdateBackup changes when a backup expires or becomes a standard one.
func (a *tableAdmin) UpdateBackup(_ context.Context, req *adminpb.UpdateBackupRequest) (*adminpb.Backup, error) {
	if err := checkName(backupName, "backup.name", req.GetBackup().GetName()); err != nil {
		return nil, err
	}
	if err := checkMask(req.UpdateMask.GetPaths()); err != nil {
		return nil, err
	}
	info, err := a.e.updateBackup(req)
	if err != nil {
		return nil, err
	}
	return info, a.e.durable(a.e.appended())
}

func (e *Emulator) updateBackup(req *adminpb.UpdateBackupRequest) (*adminpb.Backup, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, err := e.backup(req.Backup.Name)
	if err != nil {
		return nil, err
	}
	info := proto.Clone(old.describe(e.clock.now())).(*adminpb.Backup)
	for _, path := range req.UpdateMask.Paths {
		switch path {
		case "expire_time":
			info.ExpireTime = req.Backup.ExpireTime
		case "hot_to_standard_time":
			info.HotToStandardTime = req.Backup.HotToStandardTime
		default:
			return nil, unknownPath(path)
		}
	}
	created := info.StartTime.AsTime()
	if err := checkExpiry(created, info.ExpireTime, longestBackup); err != nil {
		return nil, err
	}
	if err := checkHot(created, info); err != nil {
		return nil, err
	}
	e.backups[info.Name] = &backup{info: info, schema: old.schema, rows: old.rows}
	e.journalBackup(backupChanged, info)
	return info, nil
}

// DeleteBackup deletes a backup.
func (a *tableAdmin) DeleteBackup(_ context.Context, req *adminpb.DeleteBackupRequest) (*emptypb.Empty, error) {
	if err := checkName(backupName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if err := a.e.deleteBackup(req.Name); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, a.e.durable(a.e.appended())
}

func (e *Emulator) deleteBackup(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.backup(name); err != nil {
		return err
	}
	e.dropBackup(name)
	e.journalBackup(backupDeleted, &adminpb.Backup{Name: name})
	return nil
}

func (e *Emulator) dropBackup(name string) {
	delete(e.backups, name)
	e.dropPolicies(name)
}

// expireBackups forgets the backups whose time is over.
func (e *Emulator) expireBackups() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.now()
	for name, b := range e.backups {
		if b.expired(now) {
			e.dropBackup(name)
			e.journalBackup(backupDeleted, &adminpb.Backup{Name: name})
		}
	}
}

// CopyBackup copies a backup to a cluster, which may be of another instance or
// project.
func (a *tableAdmin) CopyBackup(_ context.Context, req *adminpb.CopyBackupRequest) (*longrunningpb.Operation, error) {
	name, err := a.e.newBackupName(req.GetParent(), req.GetBackupId())
	if err != nil {
		return nil, err
	}
	if err := checkName(backupName, "source_backup", req.GetSourceBackup()); err != nil {
		return nil, err
	}
	info, source, err := a.e.addCopy(name, req)
	if err != nil {
		return nil, err
	}
	if err := a.e.durable(a.e.appended()); err != nil {
		return nil, err
	}
	return a.e.done(name, info, &adminpb.CopyBackupMetadata{
		Name: name, SourceBackupInfo: source,
		Progress: &adminpb.OperationProgress{ProgressPercent: 100, StartTime: info.StartTime, EndTime: info.EndTime},
	})
}

func (e *Emulator) addCopy(name string, req *adminpb.CopyBackupRequest) (*adminpb.Backup, *adminpb.BackupInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, err := e.backup(req.SourceBackup)
	if err != nil {
		return nil, nil, err
	}
	if from.info.SourceBackup != "" {
		return nil, nil, status.Error(codes.FailedPrecondition, "Copying a copied backup is not allowed")
	}
	cluster, err := e.newBackup(name)
	if err != nil {
		return nil, nil, err
	}
	now := e.clock.now()
	if err := checkExpiry(now, req.ExpireTime, longestCopy); err != nil {
		return nil, nil, err
	}
	info := &adminpb.Backup{
		Name: name, SourceTable: from.info.SourceTable, SourceBackup: req.SourceBackup, ExpireTime: req.ExpireTime,
		StartTime: timestamppb.New(now), EndTime: timestamppb.New(now), SizeBytes: from.info.SizeBytes,
		State: adminpb.Backup_READY, BackupType: adminpb.Backup_STANDARD, EncryptionInfo: encryptionOf(cluster),
	}
	e.copyBackup(from, info)
	e.journalBackup(backupOfBackup, info)
	return info, from.source(), nil
}

// source is how what is made from a backup names it.
func (b *backup) source() *adminpb.BackupInfo {
	return &adminpb.BackupInfo{
		Backup: b.info.Name, StartTime: b.info.StartTime, EndTime: b.info.EndTime,
		SourceTable: b.info.SourceTable, SourceBackup: b.info.SourceBackup,
	}
}
