package localdeploy

import (
	"context"
	"fmt"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// createTables makes every table whose name the file says, what families it lacks, and
// the application profiles that the file names.
func (d *Deployment) createTables(ctx context.Context, p *pipeline.Pipeline) error {
	conn, err := d.Emulator.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := createProfiles(ctx, adminpb.NewBigtableInstanceAdminClient(conn), p); err != nil {
		return err
	}
	admin := adminpb.NewBigtableTableAdminClient(conn)
	schema := writer.Schemas(p.Tables)
	for _, t := range p.Tables {
		if !t.IDFrom.IsZero() {
			continue
		}
		ref := t.Ref()
		s, err := schema(ref)
		if err != nil {
			return err
		}
		request := &adminpb.CreateTableRequest{
			Parent: t.Ref().Parent(), TableId: t.ID,
			Table: &adminpb.Table{ColumnFamilies: s.Declared(), ChangeStreamConfig: streamOf(p, t)},
		}
		for _, key := range d.Tablets[t.ID] {
			request.InitialSplits = append(request.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(key)})
		}
		_, err = admin.CreateTable(ctx, request)
		if status.Code(err) == codes.AlreadyExists {
			err = alterTable(ctx, admin, ref.String(), s.Declared(), streamOf(p, t))
		}
		if err == nil && t.AuthorizedView != "" {
			err = createView(ctx, admin, t)
		}
		if err != nil {
			return fmt.Errorf("creating table %s: %w", t.Name, err)
		}
	}
	return nil
}

// createView makes the authorized view that a table names, if it is not there. It shows every
// row and every column of the declared families: the file does not say what the real one shows.
func createView(ctx context.Context, admin adminpb.BigtableTableAdminClient, t *pipeline.Table) error {
	subset := &adminpb.AuthorizedView_SubsetView{RowPrefixes: [][]byte{{}}, FamilySubsets: map[string]*adminpb.AuthorizedView_FamilySubsets{}}
	for _, f := range t.Families {
		subset.FamilySubsets[f.Name] = &adminpb.AuthorizedView_FamilySubsets{QualifierPrefixes: [][]byte{{}}}
	}
	_, err := admin.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{
		Parent: t.Ref().String(), AuthorizedViewId: t.AuthorizedView,
		AuthorizedView: &adminpb.AuthorizedView{AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: subset}},
	})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

// createProfiles makes the application profiles that are not there. Each routes to the
// one cluster there is, and allows everything.
func createProfiles(ctx context.Context, admin adminpb.BigtableInstanceAdminClient, p *pipeline.Pipeline) error {
	create := func(t *pipeline.Table, id string) error {
		if id == "" {
			return nil
		}
		_, err := admin.CreateAppProfile(ctx, &adminpb.CreateAppProfileRequest{
			Parent: t.Ref().Parent(), AppProfileId: id,
			AppProfile: &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{
				SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: emulator.Cluster, AllowTransactionalWrites: true},
			}},
		})
		if err != nil && status.Code(err) != codes.AlreadyExists {
			return fmt.Errorf("creating application profile %s: %w", id, err)
		}
		return nil
	}
	for _, t := range p.Tables {
		if err := create(t, t.AppProfile); err != nil {
			return err
		}
	}
	for _, s := range p.Scans {
		if err := create(s.Table, s.AppProfile); err != nil {
			return err
		}
	}
	for _, c := range p.Changes {
		if err := create(c.Table, c.AppProfile); err != nil {
			return err
		}
	}
	return nil
}

// alterTable gives a table the declared families that it lacks, those it has their declared
// garbage collection, and a change stream if it lacks one that is wanted. A family's aggregate type stays as it was made, and
// families that are no longer declared keep their data.
func alterTable(ctx context.Context, admin adminpb.BigtableTableAdminClient, name string, declared map[string]*adminpb.ColumnFamily, stream *adminpb.ChangeStreamConfig) error {
	table, err := admin.GetTable(ctx, &adminpb.GetTableRequest{Name: name, View: adminpb.Table_SCHEMA_VIEW})
	if err != nil {
		return err
	}
	req := &adminpb.ModifyColumnFamiliesRequest{Name: name}
	for id, f := range declared {
		m := &adminpb.ModifyColumnFamiliesRequest_Modification{Id: id}
		if table.ColumnFamilies[id] == nil {
			m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: f}
		} else {
			m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Update{Update: f}
			m.UpdateMask = &fieldmaskpb.FieldMask{Paths: []string{"gc_rule", "value_type"}}
		}
		req.Modifications = append(req.Modifications, m)
	}
	if _, err = admin.ModifyColumnFamilies(ctx, req); err != nil || stream == nil || table.ChangeStreamConfig != nil {
		return err
	}
	_, err = admin.UpdateTable(ctx, &adminpb.UpdateTableRequest{
		Table: &adminpb.Table{Name: name, ChangeStreamConfig: stream}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"change_stream_config"}},
	})
	return err
}
