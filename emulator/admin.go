package emulator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// tableAdmin is google.bigtable.admin.v2.BigtableTableAdmin. What it does not
// define answers UNIMPLEMENTED.
type tableAdmin struct {
	adminpb.UnimplementedBigtableTableAdminServer
	e *Emulator
}

// CreateTable makes a table with families and initial tablets.
func (a *tableAdmin) CreateTable(_ context.Context, req *adminpb.CreateTableRequest) (*adminpb.Table, error) {
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	t, err := a.e.createTable(req)
	if err != nil {
		return nil, err
	}
	return a.e.describe(t, adminpb.Table_SCHEMA_VIEW), a.e.durable(a.e.appended())
}

func (e *Emulator) createTable(req *adminpb.CreateTableRequest) (*table, error) {
	if err := e.checkTableID(req.GetTableId()); err != nil {
		return nil, err
	}
	if name := req.GetTable().GetName(); name != "" {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'table.name' : must be empty: parent and table_id name the table")
	}
	schema, err := e.newSchema(req.GetTable())
	if err != nil {
		return nil, err
	}
	info, err := newTableInfo(req.GetTable(), schema)
	if err != nil {
		return nil, err
	}
	splits, err := e.initialSplits(req.GetInitialSplits())
	if err != nil {
		return nil, err
	}
	name := req.Parent + "/tables/" + req.TableId
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.instance(req.Parent); err != nil {
		return nil, err
	}
	if e.tables[name] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "Table already exists: %s", name)
	}
	e.nextID++
	info.Name = name
	t := newTable(name, e.nextID, info, schema)
	for _, key := range splits {
		t.tablets = append(t.tablets, t.newTablet(key))
	}
	t.retain(retentionOf(info), e.clock.micros())
	e.tables[name] = t
	e.journalTable(t)
	return t, nil
}

func (e *Emulator) checkTableID(id string) error {
	if !resourceID.MatchString(id) || len(id) > e.limits.TableIDBytes {
		return status.Errorf(codes.InvalidArgument, "Error in field 'table_id' : %q must match [_a-zA-Z0-9][-_.a-zA-Z0-9]* and have at most %d characters", id, e.limits.TableIDBytes)
	}
	return nil
}

func (e *Emulator) newSchema(p *adminpb.Table) (*store.Schema, error) {
	s := &store.Schema{Unit: 1000, Families: map[string]*store.Family{}}
	switch p.GetGranularity() {
	case adminpb.Table_TIMESTAMP_GRANULARITY_UNSPECIFIED, adminpb.Table_MILLIS:
	case adminpb.Table_MICROS:
		s.Unit = 1
	default:
		return nil, status.Error(codes.InvalidArgument, "Error in field 'granularity' : unknown granularity")
	}
	for name, family := range p.GetColumnFamilies() {
		var err error
		if s, err = e.addFamily(s, name, family); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (e *Emulator) addFamily(s *store.Schema, name string, p *adminpb.ColumnFamily) (*store.Schema, error) {
	if !familyID.MatchString(name) {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'column_families' : the name %q must match [_a-zA-Z0-9][-_.a-zA-Z0-9]* and have at most 64 characters", name)
	}
	f, err := store.NewFamily(name, p)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'column_families' : family '%s' : %v", name, err)
	}
	s = s.With(f)
	if len(s.Families) > e.limits.FamiliesPerTable {
		return nil, status.Errorf(codes.InvalidArgument, "A table has at most %d column families", e.limits.FamiliesPerTable)
	}
	return s, nil
}

// newTableInfo is what a table keeps of its admin form beside the families.
func newTableInfo(p *adminpb.Table, schema *store.Schema) (*adminpb.Table, error) {
	info := &adminpb.Table{
		Granularity:         adminpb.Table_MILLIS,
		ChangeStreamConfig:  p.GetChangeStreamConfig(),
		DeletionProtection:  p.GetDeletionProtection(),
		RowKeySchema:        p.GetRowKeySchema(),
		TieredStorageConfig: p.GetTieredStorageConfig(),
	}
	if schema.Unit == 1 {
		info.Granularity = adminpb.Table_MICROS
	}
	setBackupPolicy(info, proto.Clone(p.GetAutomatedBackupPolicy()).(*adminpb.Table_AutomatedBackupPolicy))
	return info, checkTableInfo(info, schema)
}

// checkTableInfo checks what a client may set of a table beside the families.
func checkTableInfo(info *adminpb.Table, schema *store.Schema) error {
	if err := checkRetention(info); err != nil {
		return err
	}
	if err := checkBackupPolicy(info.GetAutomatedBackupPolicy()); err != nil {
		return err
	}
	if err := checkTieredStorage(info.TieredStorageConfig); err != nil {
		return err
	}
	return checkRowKeySchema(info.RowKeySchema, schema)
}

// checkRetention checks a change stream's retention, 1 to 7 days, and
// truncates it to microseconds (table.proto, ChangeStreamConfig).
func checkRetention(info *adminpb.Table) error {
	if info.ChangeStreamConfig == nil {
		return nil
	}
	d := info.ChangeStreamConfig.GetRetentionPeriod().AsDuration().Truncate(time.Microsecond)
	if d < 24*time.Hour || d > 7*24*time.Hour {
		return status.Error(codes.InvalidArgument, "Error in field 'change_stream_config.retention_period' : must be at least 1 day and at most 7 days")
	}
	info.ChangeStreamConfig = &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(d)}
	return nil
}

// retentionOf is a change stream's retention in microseconds, 0 for none.
func retentionOf(info *adminpb.Table) int64 {
	return info.GetChangeStreamConfig().GetRetentionPeriod().AsDuration().Microseconds()
}

func (e *Emulator) initialSplits(splits []*adminpb.CreateTableRequest_Split) ([]string, error) {
	var keys []string
	for i, s := range splits {
		if err := e.checkKey(s.GetKey()); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'initial_splits' : Error in element #%d : %s", i, status.Convert(err).Message())
		}
		keys = append(keys, string(s.Key))
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// describe is a table's admin form in a view.
func (e *Emulator) describe(t *table, view adminpb.Table_View) *adminpb.Table {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.describeLocked(t, view)
}

// describeLocked is like describe. The caller holds e.mu.
func (e *Emulator) describeLocked(t *table, view adminpb.Table_View) *adminpb.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	instance := instanceOf(t.name)
	switch view {
	case adminpb.Table_NAME_ONLY:
		return &adminpb.Table{Name: t.name}
	case adminpb.Table_REPLICATION_VIEW:
		return &adminpb.Table{Name: t.name, ClusterStates: e.clusterStates(instance, false)}
	case adminpb.Table_ENCRYPTION_VIEW:
		return &adminpb.Table{Name: t.name, ClusterStates: e.clusterStates(instance, true)}
	}
	p := t.schemaProto()
	if view == adminpb.Table_FULL {
		p.ClusterStates = e.clusterStates(instance, false)
	}
	return p
}

// schemaProto is the table's admin form. The caller holds t.mu.
func (t *table) schemaProto() *adminpb.Table {
	p := proto.Clone(t.info).(*adminpb.Table)
	p.ColumnFamilies = make(map[string]*adminpb.ColumnFamily, len(t.schema.Families))
	for name, f := range t.schema.Families {
		p.ColumnFamilies[name] = f.Proto()
	}
	return p
}

// ListTables lists an instance's tables in order of name.
func (a *tableAdmin) ListTables(_ context.Context, req *adminpb.ListTablesRequest) (*adminpb.ListTablesResponse, error) {
	if err := checkName(instanceName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	view := req.View
	if view == adminpb.Table_VIEW_UNSPECIFIED {
		view = adminpb.Table_NAME_ONLY
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	if _, err := a.e.instance(req.Parent); err != nil {
		return nil, err
	}
	prefix := req.Parent + "/tables/"
	names := slices.Sorted(maps.Keys(a.e.tables))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	names, next, err := page(names, prefix, req.PageSize, req.PageToken)
	if err != nil {
		return nil, err
	}
	res := &adminpb.ListTablesResponse{NextPageToken: next}
	for _, name := range names {
		res.Tables = append(res.Tables, a.e.describeLocked(a.e.tables[name], view))
	}
	return res, nil
}

// GetTable describes a table.
func (a *tableAdmin) GetTable(_ context.Context, req *adminpb.GetTableRequest) (*adminpb.Table, error) {
	if err := checkName(tableName, "name", req.GetName()); err != nil {
		return nil, err
	}
	t, err := a.e.table(req.Name)
	if err != nil {
		return nil, err
	}
	return a.e.describe(t, req.View), nil
}

// DeleteTable deletes a table that is not protected.
func (a *tableAdmin) DeleteTable(_ context.Context, req *adminpb.DeleteTableRequest) (*emptypb.Empty, error) {
	if err := checkName(tableName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if err := a.e.deleteTable(req.Name); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, a.e.durable(a.e.appended())
}

func (e *Emulator) deleteTable(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tables[name]
	if t == nil {
		return tableNotFound(name)
	}
	if err := e.deletable(t); err != nil {
		return err
	}
	e.dropTable(t)
	e.journalDelete(t)
	return nil
}

// deletable reports what protects a table against deletion: itself, or a view
// of it (table.proto, AuthorizedView.deletion_protection).
func (e *Emulator) deletable(t *table) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.info.DeletionProtection {
		return protected(t.name)
	}
	for _, v := range t.views {
		if v.info.DeletionProtection {
			return protectedView(v.info.Name)
		}
	}
	return nil
}

// dropTable forgets a table and what belongs to it. The caller holds e.mu for
// writing.
func (e *Emulator) dropTable(t *table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = true
	t.wakeReaders()
	delete(e.tables, t.name)
	e.dropPolicies(t.name)
}

func protected(table string) error {
	return status.Errorf(codes.FailedPrecondition, "The table is protected against deletion: %s", table)
}

// UpdateTable changes the fields that the mask names.
func (a *tableAdmin) UpdateTable(_ context.Context, req *adminpb.UpdateTableRequest) (*longrunningpb.Operation, error) {
	name := req.GetTable().GetName()
	if err := checkName(tableName, "table.name", name); err != nil {
		return nil, err
	}
	began := timestamppb.New(a.e.clock.now())
	if err := a.e.change(name, func(s *session) error { return s.updateTable(req) }); err != nil {
		return nil, err
	}
	t, err := a.e.table(name)
	if err != nil {
		return nil, err
	}
	return a.e.done(name, a.e.describe(t, adminpb.Table_SCHEMA_VIEW), &adminpb.UpdateTableMetadata{
		Name: name, StartTime: began, EndTime: timestamppb.New(a.e.clock.now()),
	})
}

func (s *session) updateTable(req *adminpb.UpdateTableRequest) error {
	paths := req.GetUpdateMask().GetPaths()
	if err := checkMask(paths); err != nil {
		return err
	}
	info := proto.Clone(s.t.info).(*adminpb.Table)
	for _, path := range paths {
		if err := updateTableInfo(info, req, path); err != nil {
			return err
		}
	}
	if err := checkTableInfo(info, s.t.schema); err != nil {
		return err
	}
	s.t.info = info
	s.t.retain(retentionOf(info), s.now)
	s.e.journalSchema(s.t, nil)
	return nil
}

func updateTableInfo(info *adminpb.Table, req *adminpb.UpdateTableRequest, path string) error {
	switch path {
	case "change_stream_config":
		info.ChangeStreamConfig = req.Table.ChangeStreamConfig
	case "change_stream_config.retention_period":
		info.ChangeStreamConfig = &adminpb.ChangeStreamConfig{RetentionPeriod: req.Table.GetChangeStreamConfig().GetRetentionPeriod()}
	case "deletion_protection":
		info.DeletionProtection = req.Table.DeletionProtection
	case "row_key_schema":
		return updateRowKeySchema(info, req)
	case "tiered_storage_config", "tiered_storage_config.infrequent_access":
		info.TieredStorageConfig = req.Table.TieredStorageConfig
	case "column_families":
		return status.Error(codes.Unimplemented, "UpdateTable does not change column families: use ModifyColumnFamilies")
	default:
		if field, ok := strings.CutPrefix(path, "automated_backup_policy"); ok {
			return updateBackupPolicy(info, req.Table.GetAutomatedBackupPolicy(), strings.TrimPrefix(field, "."))
		}
		return unknownPath(path)
	}
	return nil
}

// ModifyColumnFamilies changes families, all or none of what is asked.
func (a *tableAdmin) ModifyColumnFamilies(_ context.Context, req *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) {
	if err := checkName(tableName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if err := a.e.change(req.Name, func(s *session) error { return s.modifyFamilies(req) }); err != nil {
		return nil, err
	}
	t, err := a.e.table(req.Name)
	if err != nil {
		return nil, err
	}
	return a.e.describe(t, adminpb.Table_SCHEMA_VIEW), nil
}

func (s *session) modifyFamilies(req *adminpb.ModifyColumnFamiliesRequest) error {
	if len(req.GetModifications()) == 0 {
		return status.Error(codes.InvalidArgument, "Error in field 'modifications' : must not be empty")
	}
	schema := s.t.schema
	var drops []string
	for _, m := range req.Modifications {
		next, err := s.modifyFamily(schema, m)
		if err != nil {
			return err
		}
		if m.GetDrop() {
			drops = append(drops, m.Id)
		}
		schema = next
	}
	if err := checkRowKeySchema(s.t.info.RowKeySchema, schema); err != nil {
		return err
	}
	s.t.schema = schema
	s.e.journalSchema(s.t, drops)
	s.purge(drops)
	return nil
}

func (s *session) modifyFamily(schema *store.Schema, m *adminpb.ModifyColumnFamiliesRequest_Modification) (*store.Schema, error) {
	old := schema.Families[m.GetId()]
	if old == nil && m.GetCreate() == nil {
		return nil, status.Errorf(codes.NotFound, "Column family not found: %s", m.GetId())
	}
	switch k := m.GetMod().(type) {
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Create:
		if old != nil {
			return nil, status.Errorf(codes.AlreadyExists, "Column family already exists: %s", m.Id)
		}
		return s.e.addFamily(schema, m.Id, k.Create)
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Update:
		p, err := updatedFamily(old, k.Update, m.GetUpdateMask().GetPaths())
		if err != nil {
			return nil, err
		}
		return s.e.addFamily(schema, m.Id, p)
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Drop:
		if !k.Drop {
			break
		}
		if s.t.info.DeletionProtection {
			return nil, protected(s.t.name)
		}
		return schema.Without(m.Id), nil
	}
	return nil, status.Errorf(codes.InvalidArgument, "Error in field 'modifications' : nothing to do for family '%s'", m.GetId())
}

// updatedFamily is a family's new admin form. Without a mask only the GC rule
// is updated; an aggregate type cannot be set or changed after creation
// (table.proto, ColumnFamily.value_type).
func updatedFamily(old *store.Family, update *adminpb.ColumnFamily, paths []string) (*adminpb.ColumnFamily, error) {
	p := old.Proto()
	if len(paths) == 0 {
		paths = []string{"gc_rule"}
	}
	for _, path := range paths {
		switch path {
		case "gc_rule":
			p.GcRule = update.GetGcRule()
		case "value_type":
			p.ValueType = update.GetValueType()
		default:
			return nil, unknownPath(path)
		}
	}
	fresh, err := store.NewFamily(old.Name, p)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if (old.Aggregate != nil || fresh.Aggregate != nil) && !proto.Equal(fresh.ValueType, old.ValueType) {
		return nil, status.Error(codes.InvalidArgument, "Immutable fields 'value_type.aggregate_type' cannot be updated")
	}
	return p, nil
}

// purge removes families' cells from every row. A schema change is no change
// of data: the log does not record it.
func (s *session) purge(families []string) {
	for _, family := range families {
		for key, r := range allRows(s.t.rows.Copy()) {
			if rest := r.WithoutFamily(family); rest != r {
				s.put(key, r, rest)
			}
		}
	}
}
