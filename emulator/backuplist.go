package emulator

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ListBackups lists the backups in a cluster, or in all clusters of an
// instance if the cluster is "-". Filters are not served.
func (a *tableAdmin) ListBackups(_ context.Context, req *adminpb.ListBackupsRequest) (*adminpb.ListBackupsResponse, error) {
	if err := checkName(clusterName, "parent", req.GetParent()); err != nil {
		return nil, err
	}
	if req.Filter != "" {
		return nil, status.Error(codes.Unimplemented, "This emulator serves no filters of backups: list them all")
	}
	order, err := backupOrder(req.OrderBy)
	if err != nil {
		return nil, err
	}
	backups, err := a.e.backupsIn(req.Parent)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(backups, order)
	if req.PageToken != "" {
		last := &adminpb.Backup{}
		b, err := nameOfPageToken("", req.PageToken)
		if err != nil {
			return nil, err
		}
		if err := proto.Unmarshal([]byte(b), last); err != nil {
			return nil, status.Error(codes.InvalidArgument, "Error in field 'page_token' : it is not of an answer to this request")
		}
		// The last one may have been deleted since: the next one counts.
		backups = slices.DeleteFunc(backups, func(b *adminpb.Backup) bool { return order(b, last) <= 0 })
	}
	res := &adminpb.ListBackupsResponse{Backups: backups}
	if n := int(req.PageSize); n > 0 && len(backups) > n {
		res.Backups = backups[:n]
		b, err := proto.Marshal(backups[n-1])
		if err != nil {
			return nil, status.Errorf(codes.Internal, "making a page token: %v", err)
		}
		res.NextPageToken = pageToken(string(b))
	}
	return res, nil
}

// backupsIn are the backups of a cluster or, if its id is "-", of an instance.
func (e *Emulator) backupsIn(cluster string) ([]*adminpb.Backup, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	prefix := cluster + "/"
	if instance, every := strings.CutSuffix(cluster, "/clusters/-"); every {
		if _, err := e.instance(instance); err != nil {
			return nil, err
		}
		prefix = instance + "/"
	} else if _, err := e.cluster(cluster); err != nil {
		return nil, err
	}
	var out []*adminpb.Backup
	now := e.clock.now()
	for name, b := range e.backups {
		if strings.HasPrefix(name, prefix) && !b.expired(now) {
			out = append(out, b.describe(now))
		}
	}
	return out, nil
}

// backupOrder reads order_by: fields, each with an optional " desc". The
// default is the newest first; equal backups come in order of name.
func backupOrder(orderBy string) (func(a, b *adminpb.Backup) int, error) {
	fields := map[string]func(a, b *adminpb.Backup) int{
		"name":         func(a, b *adminpb.Backup) int { return strings.Compare(a.Name, b.Name) },
		"source_table": func(a, b *adminpb.Backup) int { return strings.Compare(a.SourceTable, b.SourceTable) },
		"expire_time":  func(a, b *adminpb.Backup) int { return compareTimes(a.ExpireTime, b.ExpireTime) },
		"start_time":   func(a, b *adminpb.Backup) int { return compareTimes(a.StartTime, b.StartTime) },
		"end_time":     func(a, b *adminpb.Backup) int { return compareTimes(a.EndTime, b.EndTime) },
		"size_bytes":   func(a, b *adminpb.Backup) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) },
		"state":        func(a, b *adminpb.Backup) int { return cmp.Compare(a.State, b.State) },
	}
	if strings.TrimSpace(orderBy) == "" {
		orderBy = "start_time desc"
	}
	var keys []func(a, b *adminpb.Backup) int
	for _, part := range strings.Split(orderBy, ",") {
		words := strings.Fields(part)
		if len(words) == 0 || len(words) > 2 || fields[words[0]] == nil || len(words) == 2 && words[1] != "desc" && words[1] != "asc" {
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'order_by' : %q is not a field of a backup, optionally with desc", part)
		}
		key := fields[words[0]]
		if len(words) == 2 && words[1] == "desc" {
			ascending := key
			key = func(a, b *adminpb.Backup) int { return ascending(b, a) }
		}
		keys = append(keys, key)
	}
	keys = append(keys, fields["name"])
	return func(a, b *adminpb.Backup) int {
		for _, key := range keys {
			if c := key(a, b); c != 0 {
				return c
			}
		}
		return 0
	}, nil
}

func compareTimes(a, b *timestamppb.Timestamp) int { return a.AsTime().Compare(b.AsTime()) }
