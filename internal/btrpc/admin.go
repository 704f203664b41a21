package btrpc

import (
	"context"
	"net/url"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Families makes one attempt to read the column families of the table.
func (t *Table) Families(ctx context.Context, cc grpc.ClientConnInterface) (map[string]*adminpb.ColumnFamily, error) {
	got, err := adminpb.NewBigtableTableAdminClient(cc).GetTable(params(ctx, "name", t.name),
		&adminpb.GetTableRequest{Name: t.name, View: adminpb.Table_SCHEMA_VIEW})
	if err != nil {
		return nil, err
	}
	return got.GetColumnFamilies(), nil
}

// Create makes one attempt to create the table with these families.
func (t *Table) Create(ctx context.Context, cc grpc.ClientConnInterface, families map[string]*adminpb.ColumnFamily) error {
	instance, id, _ := strings.Cut(t.name, "/tables/")
	_, err := adminpb.NewBigtableTableAdminClient(cc).CreateTable(params(ctx, "parent", instance),
		&adminpb.CreateTableRequest{Parent: instance, TableId: id, Table: &adminpb.Table{ColumnFamilies: families}})
	return err
}

// AddFamilies makes one attempt to add families, all or none of them.
func (t *Table) AddFamilies(ctx context.Context, cc grpc.ClientConnInterface, families map[string]*adminpb.ColumnFamily) error {
	req := &adminpb.ModifyColumnFamiliesRequest{Name: t.name}
	for id, f := range families {
		req.Modifications = append(req.Modifications, &adminpb.ModifyColumnFamiliesRequest_Modification{
			Id: id, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: f},
		})
	}
	_, err := adminpb.NewBigtableTableAdminClient(cc).ModifyColumnFamilies(params(ctx, "name", t.name), req)
	return err
}

func params(ctx context.Context, field, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-goog-request-params", field+"="+url.QueryEscape(name))
}
