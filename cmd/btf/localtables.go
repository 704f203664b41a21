package main

import (
	"context"
	"fmt"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/internal/writer"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// createTables makes every table whose name the file says, and what families it lacks.
func (l *local) createTables(ctx context.Context, p *pipeline.Pipeline) error {
	conn, err := l.emulator.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	admin := adminpb.NewBigtableTableAdminClient(conn)
	schema := writer.Schemas(p.Tables)
	for _, t := range p.Tables {
		if !t.IDFrom.IsZero() {
			continue
		}
		ref := pipeline.TableRef{Project: t.Project, Instance: t.Instance, Table: t.ID}
		s, err := schema(ref)
		if err != nil {
			return err
		}
		request := &adminpb.CreateTableRequest{
			Parent: "projects/" + t.Project + "/instances/" + t.Instance, TableId: t.ID,
			Table: &adminpb.Table{ColumnFamilies: s.Declared()},
		}
		for _, key := range l.tablets[t.ID] {
			request.InitialSplits = append(request.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(key)})
		}
		_, err = admin.CreateTable(ctx, request)
		if status.Code(err) == codes.AlreadyExists {
			err = alterTable(ctx, admin, ref.String(), s.Declared())
		}
		if err != nil {
			return fmt.Errorf("creating table %s: %w", t.Name, err)
		}
	}
	return nil
}

// alterTable gives a table the declared families that it lacks, and those it has their
// declared garbage collection. A family's aggregate type stays as it was made, and
// families that are no longer declared keep their data.
func alterTable(ctx context.Context, admin adminpb.BigtableTableAdminClient, name string, declared map[string]*adminpb.ColumnFamily) error {
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
	_, err = admin.ModifyColumnFamilies(ctx, req)
	return err
}
