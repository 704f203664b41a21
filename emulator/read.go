package emulator

import (
	"context"
	"encoding/base64"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/tidwall/btree"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/filter"
	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// featureFlags are what the client says it can do.
func featureFlags(ctx context.Context) *bigtablepb.FeatureFlags {
	flags := &bigtablepb.FeatureFlags{}
	md := metadata.ValueFromIncomingContext(ctx, "bigtable-features")
	if len(md) == 0 {
		return flags
	}
	for _, encoding := range []*base64.Encoding{base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := encoding.DecodeString(md[0]); err == nil && proto.Unmarshal(b, flags) == nil {
			return flags
		}
	}
	return &bigtablepb.FeatureFlags{}
}

// readable finds the table, or view of it, that a request may read from.
func (e *Emulator) readable(s subject, profile string) (*table, *view, error) {
	if _, err := e.profileFor(s, profile); err != nil {
		return nil, nil, err
	}
	return s.find(e)
}

// checkMaterialized refuses a request that reads a materialized view.
func checkMaterialized(view string) error {
	if view != "" {
		return status.Error(codes.Unimplemented, "This emulator serves no materialized views")
	}
	return nil
}

// ReadRows streams the rows of a snapshot of the table.
func (d *dataService) ReadRows(req *bigtablepb.ReadRowsRequest, stream bigtablepb.Bigtable_ReadRowsServer) error {
	began := time.Now()
	if err := checkMaterialized(req.MaterializedViewName); err != nil {
		return err
	}
	subject, err := subjectOf(req.TableName, req.AuthorizedViewName)
	if err != nil {
		return err
	}
	t, v, err := d.e.readable(subject, req.AppProfileId)
	if err != nil {
		return err
	}
	flags := featureFlags(stream.Context())
	if err := d.e.validateRead(req, subject, flags); err != nil {
		return err
	}
	spans, err := d.e.spansOf(req.Rows)
	if err != nil {
		return err
	}
	rows, schema := t.snapshot()
	if err := d.e.durable(d.e.appended()); err != nil {
		return err
	}
	f, err := d.e.compileFilter(req.Filter, v.schema(schema))
	if err != nil {
		return err
	}
	s := &scan{
		stream:   stream,
		limits:   &d.e.limits,
		filter:   f,
		limit:    req.RowsLimit,
		scanned:  flags.LastScannedRowResponses,
		chunks:   chunker{send: stream.Send, perMessage: cutting(stream.Context())},
		rows:     rows,
		spans:    v.within(spans),
		view:     v,
		reversed: req.Reversed,
	}
	if err := s.run(); err != nil {
		return err
	}
	if req.RequestStatsView != bigtablepb.ReadRowsRequest_REQUEST_STATS_FULL {
		return nil
	}
	return stream.Send(s.statistics(time.Since(began)))
}

func (e *Emulator) validateRead(req *bigtablepb.ReadRowsRequest, s subject, flags *bigtablepb.FeatureFlags) error {
	if n := proto.Size(req); n > e.limits.ReadRequestBytes {
		return status.Errorf(codes.InvalidArgument, "The ReadRows request has %d bytes, the limit is %d", n, e.limits.ReadRequestBytes)
	}
	if req.RowsLimit < 0 {
		return status.Error(codes.InvalidArgument, "Error in field 'rows_limit' : must be >= 0")
	}
	if !req.Reversed {
		return nil
	}
	if !flags.ReverseScans {
		return status.Error(codes.Unimplemented, "Reverse scans need the feature flag reverse_scans")
	}
	p, err := e.profileFor(s, req.AppProfileId)
	if err == nil && p.GetDataBoostIsolationReadOnly() != nil {
		return status.Error(codes.InvalidArgument, "Reverse scans are not supported with Data Boost")
	}
	return err
}

func (e *Emulator) compileFilter(p *bigtablepb.RowFilter, s *store.Schema) (*filter.Filter, error) {
	if n := proto.Size(p); n > e.limits.FilterBytes {
		return nil, status.Errorf(codes.InvalidArgument, "The filter has %d bytes, the limit is %d", n, e.limits.FilterBytes)
	}
	f, err := filter.Compile(p, s, e.opts.Random)
	switch {
	case err == filter.ErrMissingFamily:
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return f, nil
}

// scan is one ReadRows call.
type scan struct {
	stream   grpc.ServerStream
	limits   *store.Limits
	rows     *btree.BTreeG[*store.Row]
	spans    []span
	view     *view
	filter   *filter.Filter
	limit    int64 // rows; 0: all
	reversed bool
	scanned  bool // the client takes last_scanned_row_key
	chunks   chunker
	stats    bigtablepb.ReadIterationStats
	out      []filter.Out
	passed   int // rows looked at
	silent   int // rows filtered out since the client heard of one
	err      error
}

// cutting reports whether a fault counts the stream's messages.
func cutting(ctx context.Context) bool {
	f := faultOf(ctx)
	return f != nil && f.Cut
}

// silentRows is after how many filtered rows the client is told how far the
// scan is.
const silentRows = 512

func (s *scan) run() error {
	if s.reversed {
		slices.Reverse(s.spans)
	}
	for _, sp := range s.spans {
		more := true
		if s.reversed {
			more = s.descend(sp)
		} else {
			more = s.ascend(sp)
		}
		if !more {
			break
		}
	}
	if s.err != nil {
		return s.err
	}
	return s.chunks.flush()
}

func (s *scan) ascend(sp span) bool {
	more := true
	s.rows.Ascend(&store.Row{Key: sp.start}, func(r *store.Row) bool {
		if !sp.contains(r.Key) {
			return false
		}
		more = s.row(r)
		return more
	})
	return more
}

func (s *scan) descend(sp span) bool {
	more := true
	visit := func(r *store.Row) bool {
		if !sp.unbounded && r.Key >= sp.end {
			return true
		}
		if !sp.contains(r.Key) {
			return false
		}
		more = s.row(r)
		return more
	}
	if sp.unbounded {
		s.rows.Reverse(visit)
	} else {
		s.rows.Descend(&store.Row{Key: sp.end}, visit)
	}
	return more
}

// row sends one row and reports whether to go on.
func (s *scan) row(r *store.Row) bool {
	if s.passed++; s.passed%64 == 1 && s.stream.Context().Err() != nil {
		s.err = status.FromContextError(s.stream.Context().Err()).Err()
		return false
	}
	key := r.Key
	if r = s.view.visible(r); r == nil {
		return s.skip(key)
	}
	s.stats.RowsSeenCount++
	s.stats.CellsSeenCount += int64(len(r.Cells))
	s.out = s.filter.Run(r, s.out[:0])
	if len(s.out) == 0 {
		return s.skip(r.Key)
	}
	if filter.Size(r.Key, s.out) > s.limits.RowBytes {
		if s.err = s.chunks.flush(); s.err == nil {
			s.err = largeRow(r.Key, s.limits.RowBytes)
		}
		return false
	}
	s.silent = 0
	s.stats.RowsReturnedCount++
	s.stats.CellsReturnedCount += int64(len(s.out))
	s.err = s.chunks.row(r.Key, s.out)
	return s.err == nil && (s.limit == 0 || s.stats.RowsReturnedCount < s.limit)
}

func (s *scan) skip(key string) bool {
	if s.silent++; s.scanned && s.silent >= silentRows {
		s.silent = 0
		s.err = s.chunks.scanned(key)
	}
	return s.err == nil
}

// largeRow is the service's answer to a row over 256 MiB: clients find the
// row's key in the details (java-bigtable, LargeReadRowsResumptionStrategy).
func largeRow(key string, limit int64) error {
	st := status.Newf(codes.FailedPrecondition, "A row exceeds the limit of %d bytes for reads", limit)
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Reason:   "LargeRowReadError",
		Domain:   "bigtable.googleapis.com",
		Metadata: map[string]string{"rowKeyBase64Encoded": base64.StdEncoding.EncodeToString([]byte(key))},
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

func (s *scan) statistics(took time.Duration) *bigtablepb.ReadRowsResponse {
	return &bigtablepb.ReadRowsResponse{RequestStats: &bigtablepb.RequestStats{
		StatsView: &bigtablepb.RequestStats_FullReadStatsView{FullReadStatsView: &bigtablepb.FullReadStatsView{
			ReadIterationStats:  &s.stats,
			RequestLatencyStats: &bigtablepb.RequestLatencyStats{FrontendServerLatency: durationpb.New(took)},
		}},
	}}
}
