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

// Qualifiers makes one attempt to read which columns of a row the filter yields: their
// qualifiers, without the values, in the service's order. The filter must yield columns of
// one family.
func (t *Table) Qualifiers(ctx context.Context, cc grpc.ClientConnInterface, key []byte, filter *bigtablepb.RowFilter) ([]string, error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, t.header))
	defer cancel()
	table, view := t.target()
	stream, err := bigtablepb.NewBigtableClient(cc).ReadRows(ctx, &bigtablepb.ReadRowsRequest{
		TableName: table, AuthorizedViewName: view, AppProfileId: t.profile, RowsLimit: 1, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{key}}, Filter: namesOnly(filter),
	})
	if err != nil {
		return nil, err
	}
	var found []string
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
				found = append(found, string(q.GetValue()))
			}
			open = !c.GetCommitRow()
		}
	}
}

// namesOnly leaves one cell without a value of each column that the filter yields.
func namesOnly(filter *bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{
		filter,
		{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: 1}},
		{Filter: &bigtablepb.RowFilter_StripValueTransformer{StripValueTransformer: true}},
	}}}}
}
