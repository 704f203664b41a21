package emulator

import (
	"context"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// RestoreTable makes a table of a backup's rows and families. It has no change
// stream, no protection and no views: those are the old table's.
func (a *tableAdmin) RestoreTable(_ context.Context, req *adminpb.RestoreTableRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.New(a.e.clock.now())
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if err := a.e.checkTableID(req.GetTableId()); err != nil {
		return nil, err
	}
	if err := checkName(backupName, "backup", req.GetBackup()); err != nil {
		return nil, err
	}
	t, err := a.e.restoreTable(req.Parent+"/tables/"+req.TableId, req.GetBackup())
	if err != nil {
		return nil, err
	}
	if err := a.e.durable(a.e.appended()); err != nil {
		return nil, err
	}
	source := t.info.GetRestoreInfo()
	return a.e.done(t.name, a.e.describe(t, adminpb.Table_SCHEMA_VIEW), &adminpb.RestoreTableMetadata{
		Name: t.name, SourceType: source.SourceType, SourceInfo: &adminpb.RestoreTableMetadata_BackupInfo{BackupInfo: source.GetBackupInfo()},
		Progress: &adminpb.OperationProgress{ProgressPercent: 100, StartTime: began, EndTime: timestamppb.New(a.e.clock.now())},
	})
}

func (e *Emulator) restoreTable(name, from string) (*table, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.backup(from)
	if err != nil {
		return nil, err
	}
	if _, err := e.instance(instanceOf(name)); err != nil {
		return nil, err
	}
	if e.tables[name] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "Table already exists: %s", name)
	}
	schema := proto.Clone(b.schema).(*adminpb.Table)
	schema.Name = name
	schema.ChangeStreamConfig, schema.DeletionProtection, schema.AutomatedBackupConfig = nil, false, nil
	schema.RestoreInfo = &adminpb.RestoreInfo{
		SourceType: adminpb.RestoreSourceType_BACKUP, SourceInfo: &adminpb.RestoreInfo_BackupInfo{BackupInfo: b.source()},
	}
	e.nextID++
	t := newTable(name, e.nextID, nil, nil)
	if err := t.setSchema(schema, 0); err != nil {
		return nil, status.Errorf(codes.Internal, "restoring %s: %v", from, err)
	}
	e.fill(t, b)
	e.tables[name] = t
	e.journalRestore(t, from)
	return t, nil
}

// fill gives a new table of one tablet the rows of a backup. The caller holds
// e.mu for writing.
func (e *Emulator) fill(t *table, b *backup) {
	t.rows = b.rows.Copy()
	t.tablets[0].size = b.info.SizeBytes
}
