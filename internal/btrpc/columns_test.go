package btrpc

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// ReadRows implements the server of tests.
func (s *server) ReadRows(r *bigtablepb.ReadRowsRequest, st bigtablepb.Bigtable_ReadRowsServer) error {
	return s.rows(r, st)
}

func TestTheColumnsOfARowAreReadWholeOrNotAtAll(t *testing.T) {
	cell := func(qualifier string, commit, reset bool) *bigtablepb.ReadRowsResponse_CellChunk {
		c := &bigtablepb.ReadRowsResponse_CellChunk{RowKey: []byte("k"), Qualifier: wrapperspb.Bytes([]byte(qualifier)), Value: []byte("of " + qualifier)}
		switch {
		case commit:
			c.RowStatus = &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}
		case reset:
			c = &bigtablepb.ReadRowsResponse_CellChunk{RowStatus: &bigtablepb.ReadRowsResponse_CellChunk_ResetRow{ResetRow: true}}
		}
		return c
	}
	for name, c := range map[string]struct {
		chunks []*bigtablepb.ReadRowsResponse_CellChunk
		err    error
		want   []string // qualifier=value
		fails  bool
	}{
		"none":       {},
		"two":        {chunks: []*bigtablepb.ReadRowsResponse_CellChunk{cell("a", false, false), cell("\x00\xff", true, false)}, want: []string{"a=of a", "\x00\xff=of \x00\xff"}},
		"begun anew": {chunks: []*bigtablepb.ReadRowsResponse_CellChunk{cell("a", false, false), cell("", false, true), cell("b", true, false)}, want: []string{"b=of b"}},
		"a value in two chunks": {chunks: []*bigtablepb.ReadRowsResponse_CellChunk{
			cell("a", false, false),
			{Value: []byte(", and more"), RowStatus: &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}},
		}, want: []string{"a=of a, and more"}},
		"cut":           {chunks: []*bigtablepb.ReadRowsResponse_CellChunk{cell("a", false, false)}, fails: true},
		"a late status": {chunks: []*bigtablepb.ReadRowsResponse_CellChunk{cell("a", true, false)}, err: status.Error(codes.Unavailable, ""), fails: true},
	} {
		cc := connect(t, &server{rows: func(r *bigtablepb.ReadRowsRequest, st bigtablepb.Bigtable_ReadRowsServer) error {
			if r.TableName != table.name || r.AppProfileId != table.profile || len(r.Rows.RowKeys) != 1 || string(r.Rows.RowKeys[0]) != "k" {
				t.Errorf("%v", r)
			}
			if err := st.Send(&bigtablepb.ReadRowsResponse{Chunks: c.chunks}); err != nil {
				return err
			}
			return c.err
		}})
		columns, err := table.Columns(t.Context(), cc, []byte("k"), &bigtablepb.RowFilter{})
		var got []string
		for _, c := range columns {
			got = append(got, c.Qualifier+"="+string(c.Value))
		}
		if (err != nil) != c.fails || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q %v", name, got, err)
		}
		if c.fails && retry.Classify(err).Verdict != retry.VerdictTransient {
			t.Errorf("%s: %v is not transient", name, err)
		}
	}
}
