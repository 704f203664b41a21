package writer

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// computedTable is a table whose id comes out of a record.
var computedTable = pipeline.TableRef{Project: "p", Instance: "i", Table: "of-secret"}

// An id that is computed of a record stands in no error and no log line, whatever
// becomes of the entry.
func TestAComputedTableIDIsNamedNowhere(t *testing.T) {
	file := &pipeline.Table{
		Name: "daily", Project: "p", Instance: "i", IDMatches: regexp.MustCompile("^(?:of-.*)$"), Create: pipeline.CreateNever,
		Families: []*pipeline.Family{{Name: "cf"}},
	}
	ask := func(t *testing.T, create pipeline.Create, ref pipeline.TableRef, s *service) (text string) {
		t.Helper()
		var log logged
		f := *file
		f.Create = create
		synctest.Test(t, func(t *testing.T) {
			w := start(t, s, func(c *Config) { c.Schema, c.Logger = Schemas([]*pipeline.Table{&f}), log.logger() })
			if err := w.Apply(within(t, 2*time.Minute), []Entry{setIn(ref, "k")})[0]; err != nil {
				text = err.Error()
			}
		})
		return text + log.b.String()
	}
	gone := func(int, *adminpb.GetTableRequest) (*adminpb.Table, error) {
		return nil, status.Error(codes.NotFound, "no table of-secret")
	}
	there := func(int, *adminpb.GetTableRequest) (*adminpb.Table, error) {
		return &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{}}, nil
	}
	for name, c := range map[string]struct {
		create pipeline.Create
		ref    pipeline.TableRef
		s      *service
		want   string
	}{
		"refused":            {pipeline.CreateNever, computedTable, &service{mutate: answer(status.Error(codes.PermissionDenied, "of-secret"))}, "tables.daily in projects/p/instances/i"},
		"silent":             {pipeline.CreateNever, computedTable, &service{mutate: answer(status.Error(codes.Unavailable, "of-secret"))}, "tables.daily"},
		"missing":            {pipeline.CreateNever, computedTable, &service{mutate: answer(status.Error(codes.NotFound, "of-secret")), get: gone}, "tables.daily"},
		"without the family": {pipeline.CreateNever, computedTable, &service{mutate: answer(status.Error(codes.NotFound, "of-secret")), get: there}, `no family "cf"`},
		"not in the file":    {pipeline.CreateNever, pipeline.TableRef{Project: "p", Instance: "i", Table: "x-secret"}, &service{}, "no such table"},
		"not to be created": {pipeline.CreateIfNeeded, computedTable, &service{
			mutate: answer(status.Error(codes.NotFound, "of-secret")), get: gone,
			create: func(int, *adminpb.CreateTableRequest) (*adminpb.Table, error) {
				return nil, status.Error(codes.PermissionDenied, "of-secret")
			},
		}, "tables.daily"},
		"never settled": {pipeline.CreateIfNeeded, computedTable, &service{
			mutate: answer(status.Error(codes.NotFound, "of-secret")), get: there,
			modify: func(int, *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) { return &adminpb.Table{}, nil },
		}, "tables.daily"},
		"made": {pipeline.CreateIfNeeded, computedTable, &service{
			mutate: answerOnce(status.Error(codes.NotFound, "of-secret")), get: gone,
			create: func(int, *adminpb.CreateTableRequest) (*adminpb.Table, error) { return &adminpb.Table{}, nil },
		}, "repaired a missing table"},
	} {
		t.Run(name, func(t *testing.T) {
			if text := ask(t, c.create, c.ref, c.s); strings.Contains(text, "secret") || !strings.Contains(text, c.want) {
				t.Errorf("%s", text)
			}
		})
	}
}

// answerOnce fails the first request.
func answerOnce(err error) decision {
	return func(_ context.Context, n int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		if n == 1 {
			return nil, err
		}
		return nil, nil
	}
}
