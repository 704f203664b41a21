package emulator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// dataService is google.bigtable.v2.Bigtable. What it does not define answers
// UNIMPLEMENTED.
type dataService struct {
	bigtablepb.UnimplementedBigtableServer
	e *Emulator
}

// PingAndWarm answers whether or not the instance has tables.
func (d *dataService) PingAndWarm(_ context.Context, req *bigtablepb.PingAndWarmRequest) (*bigtablepb.PingAndWarmResponse, error) {
	if err := checkName(instanceName, "name", req.GetName()); err != nil {
		return nil, err
	}
	if _, err := d.e.profile(req.Name, req.AppProfileId); err != nil {
		return nil, err
	}
	return &bigtablepb.PingAndWarmResponse{}, nil
}

// MutateRow changes one row.
func (d *dataService) MutateRow(ctx context.Context, req *bigtablepb.MutateRowRequest) (*bigtablepb.MutateRowResponse, error) {
	subject, err := subjectOf(req.TableName, req.AuthorizedViewName)
	if err != nil {
		return nil, err
	}
	t, v, cluster, err := d.e.writable(subject, req.AppProfileId)
	if err != nil {
		return nil, err
	}
	entry := &bigtablepb.MutateRowsRequest_Entry{RowKey: req.RowKey, Mutations: req.Mutations, Idempotency: req.Idempotency}
	missing, err := d.e.validateEntry(t.currentSchema(), entry, "")
	if err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, missing
	}
	w := writer{e: d.e, t: t, view: v, cluster: cluster, schema: t.currentSchema(), entries: []*bigtablepb.MutateRowsRequest_Entry{entry}}
	statuses, err := w.run(ctx)
	if err != nil {
		return nil, err
	}
	if s := statuses[0]; s.Code != int32(codes.OK) {
		return nil, status.ErrorProto(s)
	}
	return &bigtablepb.MutateRowResponse{}, nil
}

// MutateRows changes several rows, each atomically, in the order of the
// request. A request that is wrong anywhere is refused as a whole.
func (d *dataService) MutateRows(req *bigtablepb.MutateRowsRequest, stream bigtablepb.Bigtable_MutateRowsServer) error {
	subject, err := subjectOf(req.TableName, req.AuthorizedViewName)
	if err != nil {
		return err
	}
	t, v, cluster, err := d.e.writable(subject, req.AppProfileId)
	if err != nil {
		return err
	}
	schema := t.currentSchema()
	missing, err := d.e.validateEntries(schema, req.Entries)
	if err != nil {
		return err
	}
	f := faultOf(stream.Context())
	var statuses []*statuspb.Status
	if missing != nil {
		statuses = sameStatus(status.Convert(missing).Proto(), len(req.Entries))
	} else {
		w := writer{e: d.e, t: t, view: v, cluster: cluster, schema: schema, entries: req.Entries, fault: f}
		if statuses, err = w.run(stream.Context()); err != nil {
			return err
		}
	}
	res := entriesResponse(statuses, f)
	if flags := featureFlags(stream.Context()); flags.MutateRowsRateLimit || flags.MutateRowsRateLimit2 {
		res.RateLimitInfo = rateLimit(f)
	}
	return stream.Send(res)
}

func entriesResponse(statuses []*statuspb.Status, f *Fault) *bigtablepb.MutateRowsResponse {
	entries := make([]bigtablepb.MutateRowsResponse_Entry, len(statuses))
	res := &bigtablepb.MutateRowsResponse{Entries: make([]*bigtablepb.MutateRowsResponse_Entry, 0, len(statuses))}
	for i, s := range statuses {
		if f.omits(i) {
			continue
		}
		entries[i].Index, entries[i].Status = int64(i), s
		if f.hits(i) && s.Code == int32(codes.OK) {
			entries[i].Status = status.Convert(f.status()).Proto()
		}
		res.Entries = append(res.Entries, &entries[i])
	}
	return res
}

func rateLimit(f *Fault) *bigtablepb.RateLimitInfo {
	if f == nil || f.RateLimitFactor == 0 {
		return nil
	}
	return &bigtablepb.RateLimitInfo{
		Period: durationpb.New(cmp.Or(f.RateLimitPeriod, 10*time.Second)),
		Factor: f.RateLimitFactor,
	}
}

func sameStatus(s *statuspb.Status, n int) []*statuspb.Status {
	out := make([]*statuspb.Status, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// writable finds the table, or view of it, that a request may write to, and
// the cluster that its app profile routes it to.
func (e *Emulator) writable(s subject, profile string) (*table, *view, string, error) {
	p, err := e.profileFor(s, profile)
	if err != nil {
		return nil, nil, "", err
	}
	if p.GetDataBoostIsolationReadOnly() != nil {
		return nil, nil, "", status.Error(codes.FailedPrecondition, "Writes are not allowed by this app profile: it is for Data Boost, which is read-only")
	}
	t, v, err := s.find(e)
	return t, v, e.routed(instanceOf(s.table), p), err
}

// routed is the cluster that takes a request with an app profile: the first
// one, if the profile leaves a choice.
func (e *Emulator) routed(name string, p *adminpb.AppProfile) string {
	if r := p.GetSingleClusterRouting(); r != nil {
		return r.ClusterId
	}
	if ids := p.GetMultiClusterRoutingUseAny().GetClusterIds(); len(ids) > 0 {
		return ids[0]
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if i := e.instances[name]; i != nil && len(i.clusters) > 0 {
		return slices.Min(slices.Collect(maps.Keys(i.clusters)))
	}
	return Cluster
}

// validateEntries checks a whole request. A missing family fails every entry
// with NOT_FOUND (EMU-06); anything else that is wrong refuses the request.
func (e *Emulator) validateEntries(s *store.Schema, entries []*bigtablepb.MutateRowsRequest_Entry) (missing, refused error) {
	if len(entries) == 0 {
		return nil, status.Error(codes.InvalidArgument, "Error in field 'Entry list' : At least one entry must be specified")
	}
	total := 0
	for i, entry := range entries {
		m, err := e.validateEntry(s, entry, "")
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "Error in field 'Entry list' : Error in element #%d : %s", i, status.Convert(err).Message())
		}
		if missing == nil {
			missing = m
		}
		total += len(entry.Mutations)
	}
	if total > e.limits.RequestMutations {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'Entry list' : Too many mutations: %d, the limit is %d", total, e.limits.RequestMutations)
	}
	return missing, nil
}

// validateEntry checks the change of one row. field is the name of the list
// in messages, "" for the usual one.
func (e *Emulator) validateEntry(s *store.Schema, entry *bigtablepb.MutateRowsRequest_Entry, field string) (missing, refused error) {
	if err := e.checkKey(entry.GetRowKey()); err != nil {
		return nil, err
	}
	if i := entry.GetIdempotency(); i != nil && len(i.Token) < e.limits.IdempotencyTokenMin {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field 'idempotency' : the token must have at least %d bytes", e.limits.IdempotencyTokenMin)
	}
	return e.validateMutations(s, entry.GetMutations(), field)
}

func (e *Emulator) validateMutations(s *store.Schema, muts []*bigtablepb.Mutation, field string) (missing, refused error) {
	if field == "" {
		field = "Mutation list"
	}
	if len(muts) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field '%s' : At least one mutation must be specified", field)
	}
	if len(muts) > e.limits.EntryMutations {
		return nil, status.Errorf(codes.InvalidArgument, "Error in field '%s' : Too many mutations: %d, the limit is %d", field, len(muts), e.limits.EntryMutations)
	}
	switch r := store.Validate(s, &e.limits, muts); {
	case r == nil:
		return nil, nil
	case r.Code == codes.NotFound:
		return status.Error(codes.NotFound, r.Text), nil
	default:
		return nil, status.Errorf(r.Code, "Error in field '%s' : Error in element #%d : %s", field, r.Index, r.Text)
	}
}

func (e *Emulator) checkKey(key []byte) error {
	if len(key) == 0 {
		return status.Error(codes.InvalidArgument, "Row keys must be non-empty")
	}
	if len(key) > e.limits.RowKeyBytes {
		return status.Errorf(codes.InvalidArgument, "Row key size %d exceeds the limit of %d bytes", len(key), e.limits.RowKeyBytes)
	}
	return nil
}

// writer applies validated entries.
type writer struct {
	e       *Emulator
	t       *table
	view    *view // nil: the whole table
	cluster string
	schema  *store.Schema // that the entries were validated against
	entries []*bigtablepb.MutateRowsRequest_Entry
	fault   *Fault

	position int64 // in the journal, after what was applied
}

// entriesPerTurn is how many entries one request applies before others get a
// turn at the table.
const entriesPerTurn = 256

// run applies the entries and returns their statuses, once what it applied is
// durable. An error means that nothing is known of any entry.
func (w *writer) run(ctx context.Context) ([]*statuspb.Status, error) {
	statuses := make([]*statuspb.Status, len(w.entries))
	for lo := 0; lo < len(w.entries); lo += entriesPerTurn {
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		w.turn(statuses, lo, min(lo+entriesPerTurn, len(w.entries)))
	}
	return statuses, w.e.durable(w.position)
}

var statusOK = &statuspb.Status{}

func (w *writer) turn(statuses []*statuspb.Status, lo, hi int) {
	w.e.mu.RLock()
	defer w.e.mu.RUnlock()
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	s := w.e.session(w.t)
	s.cluster = w.cluster
	for i := lo; i < hi; i++ {
		statuses[i] = statusOK
		if w.fault.hits(i) && !w.fault.After {
			continue
		}
		if err := w.apply(s, w.entries[i]); err != nil {
			statuses[i] = status.Convert(err).Proto()
		}
	}
	w.position = w.e.appended()
}

func (w *writer) apply(s *session, entry *bigtablepb.MutateRowsRequest_Entry) error {
	if s.t.dropped {
		return tableNotFound(s.t.name)
	}
	if err := w.view.permits(entry.RowKey, entry.Mutations); err != nil {
		return err
	}
	if s.t.schema != w.schema { // changed since the request was validated
		if missing, refused := w.e.validateEntry(s.t.schema, entry, ""); refused != nil {
			return refused
		} else if missing != nil {
			return missing
		}
	}
	var token []byte
	if protects(entry.Idempotency, entry.Mutations) {
		token = entry.Idempotency.Token
		if s.t.tokens.used(tokenID(string(entry.RowKey), token), s.now) {
			return nil
		}
		if expired(entry.Idempotency, s.now) {
			return status.Error(codes.FailedPrecondition, fmt.Sprintf("the first attempt was more than %v ago: the idempotency token may have been forgotten", tokenLife))
		}
	}
	s.mutate(changeUser, string(entry.RowKey), entry.Mutations, token)
	return nil
}
