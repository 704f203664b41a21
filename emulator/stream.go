package emulator

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// defaultHeartbeat is the time between heartbeats unless the request sets it
// (bigtable.proto, ReadChangeStreamRequest).
const defaultHeartbeat = 5 * time.Second

// shortestHeartbeat keeps a request from asking for heartbeats without pause.
const shortestHeartbeat = time.Millisecond

// GenerateInitialChangeStreamPartitions answers with the key ranges of the
// tablets there are now.
func (d *dataService) GenerateInitialChangeStreamPartitions(req *bigtablepb.GenerateInitialChangeStreamPartitionsRequest, stream bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error {
	t, err := d.e.streamed(stream.Context(), req.TableName, req.AppProfileId)
	if err != nil {
		return err
	}
	ranges, err := t.partitions()
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if err := stream.Send(&bigtablepb.GenerateInitialChangeStreamPartitionsResponse{Partition: partitionProto(r)}); err != nil {
			return err
		}
	}
	return nil
}

// streamed finds a table whose change stream a request may read.
func (e *Emulator) streamed(ctx context.Context, name, profile string) (*table, error) {
	if err := checkHeaders(ctx, name, profile); err != nil {
		return nil, err
	}
	if err := checkName(tableName, "table_name", name); err != nil {
		return nil, err
	}
	p, err := e.profileFor(subject{table: name}, profile)
	if err != nil {
		return nil, err
	}
	t, err := e.table(name)
	if err != nil {
		return nil, err
	}
	s := t.streamSettings()
	if p.GetSingleClusterRouting() == nil {
		return nil, status.Error(s.MultiCluster, "Reading a change stream needs an app profile with single-cluster routing")
	}
	if p.GetDataBoostIsolationReadOnly() != nil {
		return nil, status.Error(codes.FailedPrecondition, "Change streams are not served by this app profile: it is for Data Boost")
	}
	return t, nil
}

// checkHeaders checks the headers by which the service routes a request, if
// they are there: clients in use send them URL-encoded.
func checkHeaders(ctx context.Context, table, profile string) error {
	for _, header := range metadata.ValueFromIncomingContext(ctx, "x-goog-request-params") {
		params, err := url.ParseQuery(header)
		if err != nil {
			return status.Error(codes.InvalidArgument, "The header x-goog-request-params is not URL-encoded")
		}
		if params.Has("table_name") && params.Get("table_name") != table || params.Has("app_profile_id") && params.Get("app_profile_id") != profile {
			return status.Error(codes.InvalidArgument, "The header x-goog-request-params does not name the table and app profile of the request")
		}
	}
	for _, header := range metadata.ValueFromIncomingContext(ctx, "bigtable-features") {
		if !isFeatureFlags(header) {
			return status.Error(codes.InvalidArgument, "The header bigtable-features is not URL-safe base64 of FeatureFlags")
		}
	}
	return nil
}

func isFeatureFlags(header string) bool {
	for _, encoding := range []*base64.Encoding{base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := encoding.DecodeString(header); err == nil && proto.Unmarshal(b, &bigtablepb.FeatureFlags{}) == nil {
			return true
		}
	}
	return false
}

func (t *table) streamSettings() StreamSettings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settings.orDefaults()
}

// partitions are the key ranges of the tablets.
func (t *table) partitions() ([]keyRange, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkStream(t.log.generation); err != nil {
		return nil, err
	}
	out := make([]keyRange, len(t.tablets))
	for i := range out {
		out[i] = t.tabletRange(i)
	}
	return out, nil
}

// checkStream checks that the change stream is on, and still is the one of a
// generation. The caller holds t.mu.
func (t *table) checkStream(generation uint64) error {
	if t.dropped {
		return tableNotFound(t.name)
	}
	if t.log.retention == 0 || t.log.generation != generation {
		return status.Errorf(t.settings.orDefaults().Disabled, "The change stream is not enabled on the table: %s", t.name)
	}
	return nil
}

// partitionProto is a range with both bounds set, also if they are empty.
func partitionProto(r keyRange) *bigtablepb.StreamPartition {
	return &bigtablepb.StreamPartition{RowRange: &bigtablepb.RowRange{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(r.start)},
		EndKey:   &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(r.end)},
	}}
}

// partitionRange reads a partition. The service's text is from
// flink-connector-gcp (ADR-0097).
func partitionRange(p *bigtablepb.StreamPartition, field string) (keyRange, error) {
	start, closed := p.GetRowRange().GetStartKey().(*bigtablepb.RowRange_StartKeyClosed)
	end, open := p.GetRowRange().GetEndKey().(*bigtablepb.RowRange_EndKeyOpen)
	if !closed || !open {
		return keyRange{}, status.Errorf(codes.InvalidArgument, "%s.row_range must be the form of [start_key, end_key)", field)
	}
	r := keyRange{string(start.StartKeyClosed), string(end.EndKeyOpen)}
	if r.end != "" && r.start >= r.end {
		return keyRange{}, status.Errorf(codes.InvalidArgument, "%s.row_range must not be empty", field)
	}
	return r, nil
}

// ReadChangeStream serves the changes of a partition's rows until the
// partition's tablet ends, the end time has passed, or the caller goes.
func (d *dataService) ReadChangeStream(req *bigtablepb.ReadChangeStreamRequest, stream bigtablepb.Bigtable_ReadChangeStreamServer) error {
	t, err := d.e.streamed(stream.Context(), req.TableName, req.AppProfileId)
	if err != nil {
		return err
	}
	r, err := newChangeReader(d.e, t, req)
	if err != nil {
		return err
	}
	r.out = streamSender{e: d.e, stream: stream, fault: faultOf(stream.Context())}
	return r.run(stream.Context())
}

// newChangeReader checks a request and finds where it starts.
func newChangeReader(e *Emulator, t *table, req *bigtablepb.ReadChangeStreamRequest) (*changeReader, error) {
	partition, err := partitionRange(req.Partition, "partition")
	if err != nil {
		return nil, err
	}
	r := &changeReader{e: e, t: t, keyRange: partition, heartbeat: defaultHeartbeat}
	if h := req.HeartbeatDuration; h != nil {
		if !h.IsValid() || h.AsDuration() < 0 {
			return nil, status.Error(codes.InvalidArgument, "heartbeat_duration must be a duration of at least 0")
		}
		r.heartbeat = max(shortestHeartbeat, cmp.Or(h.AsDuration(), defaultHeartbeat))
	}
	if req.EndTime != nil {
		if !req.EndTime.IsValid() {
			return nil, status.Error(codes.InvalidArgument, "end_time is not a time")
		}
		r.ends, r.endTime = true, req.EndTime.AsTime().UnixMicro()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkStream(t.log.generation); err != nil {
		return nil, err
	}
	now := e.clock.micros()
	t.trim(now)
	r.generation, r.binding = t.log.generation, tokenBinding(t, partition)
	switch from := req.StartFrom.(type) {
	case *bigtablepb.ReadChangeStreamRequest_StartTime:
		r.place, err = t.startAt(partition, from.StartTime, now)
	case *bigtablepb.ReadChangeStreamRequest_ContinuationTokens:
		r.place, err = t.resumeAt(partition, from.ContinuationTokens.GetTokens(), now)
	default:
		err = status.Error(codes.InvalidArgument, "start_from must be set: to start_time or continuation_tokens")
	}
	if err != nil {
		return nil, err
	}
	if i := t.tabletAt(partition.start); t.tabletRange(i) == partition {
		r.part = t.tablets[i].part
	}
	return r, nil
}

// startAt is the place before the first change at or after a time, which is
// truncated to microseconds.
func (t *table) startAt(r keyRange, start *timestamppb.Timestamp, now int64) (place, error) {
	s := t.settings.orDefaults()
	if !start.IsValid() {
		return place{}, status.Error(codes.InvalidArgument, "start_time is not a time")
	}
	at := start.AsTime().UnixMicro()
	switch {
	case at > now:
		return place{}, status.Error(s.BadStart, "start_time must not be in the future")
	case at < now-t.log.retention || at < t.log.forgotten:
		return place{}, status.Error(s.Expired, "start_time is before the change stream's retention period")
	case at < t.log.since:
		return place{}, status.Error(s.BadStart, "start_time is before the change stream was enabled")
	}
	return place{floor: t.seek(r, at), at: at}, nil
}

// resumeAt is the place of tokens, whose partitions together must be exactly
// the one to be read.
func (t *table) resumeAt(r keyRange, tokens []*bigtablepb.StreamContinuationToken, now int64) (place, error) {
	if len(tokens) == 0 {
		return place{}, status.Error(codes.InvalidArgument, "continuation_tokens must not be empty")
	}
	parts := make([]placed, len(tokens))
	for i, token := range tokens {
		part, err := partitionRange(token.GetPartition(), "continuation_tokens.partition")
		if err != nil {
			return place{}, err
		}
		parts[i].keyRange = part
	}
	if !tile(parts, r) {
		return place{}, status.Error(codes.InvalidArgument, "The partitions of the continuation tokens must exactly cover the partition")
	}
	s := t.settings.orDefaults()
	for i, token := range tokens {
		p, err := decodeToken(tokenBinding(t, parts[i].keyRange), token.Token)
		if err != nil || p.floor > t.log.next {
			return place{}, status.Errorf(s.BadToken, "Continuation token #%d is not usable: %v", i, cmp.Or(err, errNoToken))
		}
		if p.at < max(now-t.log.retention, t.log.forgotten) || p.floor < t.droppedIn(parts[i].keyRange) {
			return place{}, status.Errorf(s.Expired, "Continuation token #%d is older than the change stream's retention period", i)
		}
		parts[i].place = p
	}
	slices.SortFunc(parts, compareStart)
	return join(parts), nil
}

// tile reports whether ranges, in any order, leave no gap in a range, do not
// overlap and hold nothing else.
func tile(parts []placed, r keyRange) bool {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, compareStart)
	key := r.start
	for i, p := range parts {
		if p.start != key || i > 0 && key == "" {
			return false
		}
		key = p.end
	}
	return key == r.end
}
