package emulatorserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// parseTables reads the tables of a configuration.
func parseTables(cfg Config) ([]*adminpb.CreateTableRequest, error) {
	var reqs []*adminpb.CreateTableRequest
	for _, spec := range cfg.Tables {
		req, err := parseTable(spec)
		if err != nil {
			return nil, fmt.Errorf("--table %q: %w", spec, err)
		}
		req.Parent = "projects/" + cfg.Project + "/instances/" + cfg.Instance
		reqs = append(reqs, req)
	}
	return reqs, nil
}

// parseTable reads 'name:cf,cf2;splits=a,m;stream=24h', of which all but the
// name may be missing.
func parseTable(spec string) (*adminpb.CreateTableRequest, error) {
	head, options, _ := strings.Cut(spec, ";")
	name, families, _ := strings.Cut(head, ":")
	if name == "" {
		return nil, errors.New("a table needs a name: 'name:family,family;splits=key,key;stream=24h'")
	}
	req := &adminpb.CreateTableRequest{TableId: name, Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{}}}
	for _, family := range list(families) {
		req.Table.ColumnFamilies[family] = &adminpb.ColumnFamily{}
	}
	if options == "" {
		return req, nil
	}
	for option := range strings.SplitSeq(options, ";") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "splits":
			for _, split := range list(value) {
				req.InitialSplits = append(req.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(split)})
			}
		case "stream":
			d, err := time.ParseDuration(value)
			if err != nil {
				return nil, fmt.Errorf("stream=%s is not a duration such as 24h", value)
			}
			req.Table.ChangeStreamConfig = &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(d)}
		default:
			return nil, fmt.Errorf("unknown option %q: there are splits and stream", key)
		}
	}
	return req, nil
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// createInstance creates an instance with one cluster unless it exists.
func createInstance(ctx context.Context, conn grpc.ClientConnInterface, name string) error {
	project, id, _ := strings.Cut(name, "/instances/")
	_, err := adminpb.NewBigtableInstanceAdminClient(conn).CreateInstance(ctx, &adminpb.CreateInstanceRequest{
		Parent: project, InstanceId: id, Instance: &adminpb.Instance{DisplayName: id},
		Clusters: map[string]*adminpb.Cluster{emulator.Cluster: {Location: project + "/locations/local", ServeNodes: 1}},
	})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("creating instance %s: %w", id, err)
	}
	return nil
}

// createTables creates the tables that are not in the data directory already,
// and their instance if none exists by itself.
// Those stay as they are; where that is not as asked for, stderr is told.
func createTables(ctx context.Context, e *emulator.Emulator, reqs []*adminpb.CreateTableRequest, strict bool, stderr io.Writer) error {
	conn, err := e.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, req := range reqs {
		if strict {
			if err := createInstance(ctx, conn, req.Parent); err != nil {
				return err
			}
		}
		_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(ctx, req)
		if status.Code(err) == codes.AlreadyExists {
			var lacks []string
			if lacks, err = missing(ctx, conn, req); len(lacks) > 0 {
				fmt.Fprintf(stderr, "table %s exists and stays as it is, which is not as --table says: %s\n", req.TableId, strings.Join(lacks, ", "))
			}
		}
		if err != nil {
			return fmt.Errorf("creating table %s: %w", req.TableId, err)
		}
	}
	return nil
}

// missing says what a table that exists lacks of a request to create it. More
// families and splits than asked for are none of it: a table gets those.
func missing(ctx context.Context, conn grpc.ClientConnInterface, req *adminpb.CreateTableRequest) ([]string, error) {
	name := req.Parent + "/tables/" + req.TableId
	table, err := adminpb.NewBigtableTableAdminClient(conn).GetTable(ctx, &adminpb.GetTableRequest{Name: name, View: adminpb.Table_FULL})
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, family := range slices.Sorted(maps.Keys(req.Table.ColumnFamilies)) {
		if table.ColumnFamilies[family] == nil {
			lacks = append(lacks, "it has no family "+family)
		}
	}
	bounds, err := boundaries(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	for _, split := range req.InitialSplits {
		if !bounds[string(split.Key)] {
			lacks = append(lacks, fmt.Sprintf("it is not split at %q", split.Key))
		}
	}
	if asked := req.Table.ChangeStreamConfig.GetRetentionPeriod().AsDuration(); asked != 0 {
		if has := table.ChangeStreamConfig.GetRetentionPeriod().AsDuration(); has != asked {
			lacks = append(lacks, fmt.Sprintf("its stream keeps %s", has))
		}
	}
	return lacks, nil
}

// boundaries returns the keys at which a table's tablets end.
func boundaries(ctx context.Context, conn grpc.ClientConnInterface, table string) (map[string]bool, error) {
	stream, err := bigtablepb.NewBigtableClient(conn).SampleRowKeys(ctx, &bigtablepb.SampleRowKeysRequest{TableName: table})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for {
		sample, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out[string(sample.RowKey)] = true
	}
}
