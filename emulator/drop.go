package emulator

import (
	"context"
	"iter"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/tidwall/btree"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// allRows visits the rows of a snapshot in order of key.
func allRows(rows *btree.BTreeG[*store.Row]) iter.Seq2[string, *store.Row] {
	return rowsFrom(rows, "")
}

func rowsFrom(rows *btree.BTreeG[*store.Row], start string) iter.Seq2[string, *store.Row] {
	return func(yield func(string, *store.Row) bool) {
		rows.Ascend(&store.Row{Key: start}, func(r *store.Row) bool { return yield(r.Key, r) })
	}
}

var deleteRow = []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_DeleteFromRow_{
	DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{},
}}}

// DropRowRange deletes all rows, or those whose keys have a prefix, each as
// one change in the log.
func (a *tableAdmin) DropRowRange(_ context.Context, req *adminpb.DropRowRangeRequest) (*emptypb.Empty, error) {
	if err := checkName(tableName, "name", req.GetName()); err != nil {
		return nil, err
	}
	prefix := ""
	switch k := req.GetTarget().(type) {
	case *adminpb.DropRowRangeRequest_RowKeyPrefix:
		if prefix = string(k.RowKeyPrefix); prefix == "" {
			return nil, status.Error(codes.InvalidArgument, "Error in field 'row_key_prefix' : must not be empty")
		}
	case *adminpb.DropRowRangeRequest_DeleteAllDataFromTable:
		if !k.DeleteAllDataFromTable {
			return nil, status.Error(codes.InvalidArgument, "Error in field 'delete_all_data_from_table' : must be true if set")
		}
	default:
		return nil, status.Error(codes.InvalidArgument, "Error in field 'target' : must be set")
	}
	err := a.e.change(req.Name, func(s *session) error {
		s.dropPrefix(prefix)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func (s *session) dropPrefix(prefix string) {
	for key := range rowsFrom(s.t.rows.Copy(), prefix) {
		if !strings.HasPrefix(key, prefix) {
			return
		}
		s.mutate(changeUser, key, deleteRow, nil)
	}
}
