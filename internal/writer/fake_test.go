package writer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// service is a Bigtable that answers with what a test says and remembers what it was
// asked. Without an answer it applies everything.
type service struct {
	bigtablepb.UnimplementedBigtableServer
	adminpb.UnimplementedBigtableTableAdminServer

	// mutate decides on the n-th request, counted from 1: a status for each entry
	// (nil: applied), or an error for the call.
	mutate func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error)
	// stream, where it is set, answers instead.
	stream func(n int, r *bigtablepb.MutateRowsRequest, s bigtablepb.Bigtable_MutateRowsServer) error
	check  func(ctx context.Context, n int, r *bigtablepb.CheckAndMutateRowRequest) error

	get    func(n int, r *adminpb.GetTableRequest) (*adminpb.Table, error)
	create func(n int, r *adminpb.CreateTableRequest) (*adminpb.Table, error)
	modify func(n int, r *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error)

	mu       sync.Mutex
	requests [][]string // row keys of each MutateRows
	applied  map[string]int
	order    []string // row keys as they were applied
	calls    map[string]int
	inFlight int
	most     int // calls in flight at once
}

func (s *service) enter(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls, s.applied = map[string]int{}, map[string]int{}
	}
	s.calls[method]++
	return s.calls[method]
}

func (s *service) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func (s *service) appliedTimes(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied[key]
}

func (s *service) apply(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied[key]++
	s.order = append(s.order, key)
}

func (s *service) MutateRows(r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
	n := s.enter("MutateRows")
	s.mu.Lock()
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	var keys []string
	for _, e := range r.Entries {
		keys = append(keys, string(e.RowKey))
	}
	s.requests = append(s.requests, keys)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.inFlight--; s.mu.Unlock() }()
	if s.stream != nil {
		return s.stream(n, r, out)
	}
	var statuses []*spb.Status
	if s.mutate != nil {
		var err error
		if statuses, err = s.mutate(out.Context(), n, r); err != nil {
			return err
		}
	}
	return s.respond(r, statuses, out)
}

// respond applies entries without a status and sends all outcomes.
func (s *service) respond(r *bigtablepb.MutateRowsRequest, statuses []*spb.Status, out bigtablepb.Bigtable_MutateRowsServer) error {
	resp := &bigtablepb.MutateRowsResponse{}
	for i, e := range r.Entries {
		entry := &bigtablepb.MutateRowsResponse_Entry{Index: int64(i)}
		if i < len(statuses) && statuses[i] != nil {
			entry.Status = statuses[i]
		} else {
			s.apply(string(e.RowKey))
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return out.Send(resp)
}

func (s *service) CheckAndMutateRow(ctx context.Context, r *bigtablepb.CheckAndMutateRowRequest) (*bigtablepb.CheckAndMutateRowResponse, error) {
	n := s.enter("CheckAndMutateRow")
	if s.check != nil {
		if err := s.check(ctx, n, r); err != nil {
			return nil, err
		}
	}
	s.apply(string(r.RowKey))
	return &bigtablepb.CheckAndMutateRowResponse{}, nil
}

func (s *service) GetTable(_ context.Context, r *adminpb.GetTableRequest) (*adminpb.Table, error) {
	return s.get(s.enter("GetTable"), r)
}

func (s *service) CreateTable(_ context.Context, r *adminpb.CreateTableRequest) (*adminpb.Table, error) {
	return s.create(s.enter("CreateTable"), r)
}

func (s *service) ModifyColumnFamilies(_ context.Context, r *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) {
	return s.modify(s.enter("ModifyColumnFamilies"), r)
}

// serve returns a dialer for the service. Inside a bubble it must be called there.
func (s *service) serve(t testing.TB) func(context.Context, string, string) (Conn, error) {
	t.Helper()
	s.enter("start")
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 28))
	bigtablepb.RegisterBigtableServer(g, s)
	adminpb.RegisterBigtableTableAdminServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return func(context.Context, string, string) (Conn, error) {
		s.enter("Dial")
		return grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<28), grpc.MaxCallRecvMsgSize(1<<28)),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	}
}

// config is what tests start from.
func config(dial func(context.Context, string, string) (Conn, error)) Config {
	return Config{
		Schema:    func(pipeline.TableRef) (Schema, error) { return Schema{Name: "t", Create: pipeline.CreateNever}, nil },
		Dial:      dial,
		DialAdmin: dial,
		Limits: pipeline.Limits{
			Batch:                 pipeline.Batch{MaxEntries: 500, MaxBytes: 20 << 20, Concurrency: 4},
			InFlight:              pipeline.InFlight{MaxEntries: 2500, MaxBytes: 64 << 20},
			ConsecutiveRejections: 100, InstanceClients: 16, TableIdle: time.Hour,
		},
		Repair: pipeline.Repair{InitialBackoff: 500 * time.Millisecond, MaxBackoff: 10 * time.Second, MaxAttempts: 10},
		Logger: slog.New(slog.DiscardHandler),
		Random: func() float64 { return 0.5 },
	}
}

// start returns a writer that is closed, with everything it holds, at the test's end. The test
// fails if an entry goes as the table of transitions does not say.
func start(t testing.TB, s *service, change ...func(*Config)) *Writer {
	t.Helper()
	cfg := config(s.serve(t))
	cfg.moved = new(seenStates).moved(t)
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what still runs ends now
		_ = w.Close(ctx)
		if h := w.Stats(); h.InFlightEntries != 0 || h.InFlightBytes != 0 || h.Parked != 0 || h.Waiting != 0 {
			t.Errorf("closed with something held: %+v", h)
		}
	})
	return w
}

var orders = pipeline.TableRef{Project: "p", Instance: "i", Table: "orders"}

func set(key string) Entry { return setIn(orders, key) }

func setIn(ref pipeline.TableRef, key string) Entry {
	return Entry{Table: ref, Row: &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key), Mutations: []*bigtablepb.Mutation{setCell("cf", 1000)}}}
}

func setCell(family string, micros int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte("q"), TimestampMicros: micros, Value: []byte("value"),
	}}}
}

func add(key string, token string) Entry {
	e := Entry{Table: orders, Row: &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key), Mutations: []*bigtablepb.Mutation{{
		Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{FamilyName: "sum"}},
	}}}}
	if token != "" {
		e.Row.Idempotency = &bigtablepb.Idempotency{Token: []byte(token)}
	}
	return e
}

func sets(n int) []Entry {
	out := make([]Entry, n)
	for i := range out {
		out[i] = set(fmt.Sprintf("row-%05d", i))
	}
	return out
}

func passAll() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
}

// column is the filter that looks for one column, as the marker of dedupe does.
func column(family, qualifier string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{
		FamilyName:     family,
		StartQualifier: &bigtablepb.ColumnRange_StartQualifierClosed{StartQualifierClosed: []byte(qualifier)},
		EndQualifier:   &bigtablepb.ColumnRange_EndQualifierClosed{EndQualifierClosed: []byte(qualifier)},
	}}}
}

// marked makes the entry one under a marker, which it writes.
func marked(e Entry) Entry {
	e.Row.Mutations = append(e.Row.Mutations, setCell("seen", 1000))
	e.Unless = column("seen", "q")
	return e
}

func code(c codes.Code) *spb.Status { return status.New(c, "because "+c.String()).Proto() }

type decision = func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error)

// badRows answers a request with INVALID_ARGUMENT as a whole when it holds a bad row,
// and names the first.
func badRows(bad func(key string) bool) decision {
	return badRowsNaming(bad, func(i int, _ *bigtablepb.MutateRowsRequest) string {
		return fmt.Sprintf("Error in field 'Entry list' : Error in element #%d : Error in field 'Mutation list' : Error in element #0 : no", i)
	})
}

func badRowsNaming(bad func(key string) bool, text func(i int, r *bigtablepb.MutateRowsRequest) string) decision {
	return func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		for i, e := range r.Entries {
			if bad(string(e.RowKey)) {
				return nil, status.Error(codes.InvalidArgument, text(i, r))
			}
		}
		return nil, nil
	}
}

// unnamed refuses as badRows does and names nothing; misnamed names an innocent entry.
func unnamed(int, *bigtablepb.MutateRowsRequest) string { return "one of them" }
func misnamed(i int, r *bigtablepb.MutateRowsRequest) string {
	return fmt.Sprintf("Error in field 'Entry list' : Error in element #%d", (i+1)%len(r.Entries))
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func wantApplied(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
}

// logged collects log lines.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) lines(containing string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
