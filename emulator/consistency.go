package emulator

import (
	"context"
	"strconv"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// GenerateConsistencyToken makes a token for what has been written so far.
func (a *tableAdmin) GenerateConsistencyToken(_ context.Context, req *adminpb.GenerateConsistencyTokenRequest) (*adminpb.GenerateConsistencyTokenResponse, error) {
	if err := checkName(tableName, "name", req.GetName()); err != nil {
		return nil, err
	}
	t, err := a.e.table(req.Name)
	if err != nil {
		return nil, err
	}
	return &adminpb.GenerateConsistencyTokenResponse{ConsistencyToken: tokenPrefix + strconv.FormatUint(t.id, 10)}, nil
}

const tokenPrefix = "consistency-"

// CheckConsistency is true for every token of the table: with one cluster
// there is nothing to wait for.
func (a *tableAdmin) CheckConsistency(_ context.Context, req *adminpb.CheckConsistencyRequest) (*adminpb.CheckConsistencyResponse, error) {
	if err := checkName(tableName, "name", req.GetName()); err != nil {
		return nil, err
	}
	t, err := a.e.table(req.Name)
	if err != nil {
		return nil, err
	}
	if id, ok := strings.CutPrefix(req.ConsistencyToken, tokenPrefix); !ok || id != strconv.FormatUint(t.id, 10) {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'consistency_token' : not a token of this table")
	}
	return &adminpb.CheckConsistencyResponse{Consistent: true}, nil
}
