package btrpc

import (
	"context"
	"errors"
	"fmt"
	"io"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Column is a column of a row, with its newest value.
type Column struct {
	Qualifier string
	Value     []byte
}

// Columns makes one attempt to read which columns of a row the filter yields, each with the
// newest value that it yields, in the service's order. The filter must yield columns of one
// family.
func (t *Table) Columns(ctx context.Context, cc grpc.ClientConnInterface, key []byte, filter *bigtablepb.RowFilter) ([]Column, error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, t.header))
	defer cancel()
	table, view := t.target()
	stream, err := bigtablepb.NewBigtableClient(cc).ReadRows(ctx, &bigtablepb.ReadRowsRequest{
		TableName: table, AuthorizedViewName: view, AppProfileId: t.profile, RowsLimit: 1, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{key}}, Filter: newestOnly(filter),
	})
	if err != nil {
		return nil, err
	}
	var found []Column
	open := false // a row has begun and not ended
	for {
		res, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && open:
			return nil, fmt.Errorf("an answer that ends within a row: %w", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		}
		for _, c := range res.GetChunks() {
			if c.GetResetRow() {
				found, open = nil, false
				continue
			}
			if q := c.GetQualifier(); q != nil {
				found = append(found, Column{Qualifier: string(q.GetValue())})
			}
			if n := len(found); n > 0 { // a value may come in several chunks
				found[n-1].Value = append(found[n-1].Value, c.GetValue()...)
			}
			open = !c.GetCommitRow()
		}
	}
}

// newestOnly leaves one cell of each column that the filter yields.
func newestOnly(filter *bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{
		filter,
		{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: 1}},
	}}}}
}
