package btrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// server answers with what a test says.
type server struct {
	bigtablepb.UnimplementedBigtableServer
	mutateRows func(*bigtablepb.MutateRowsRequest, grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error
	check      func(context.Context, *bigtablepb.CheckAndMutateRowRequest) (*bigtablepb.CheckAndMutateRowResponse, error)
	partitions func(*bigtablepb.GenerateInitialChangeStreamPartitionsRequest, bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error
	rows       func(*bigtablepb.ReadRowsRequest, bigtablepb.Bigtable_ReadRowsServer) error
	changes    func(*bigtablepb.ReadChangeStreamRequest, bigtablepb.Bigtable_ReadChangeStreamServer) error
}

func (s *server) MutateRows(r *bigtablepb.MutateRowsRequest, st bigtablepb.Bigtable_MutateRowsServer) error {
	return s.mutateRows(r, st)
}

func (s *server) CheckAndMutateRow(ctx context.Context, r *bigtablepb.CheckAndMutateRowRequest) (*bigtablepb.CheckAndMutateRowResponse, error) {
	return s.check(ctx, r)
}

func connect(t testing.TB, s *server) Conn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	bigtablepb.RegisterBigtableServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	opts := append(connOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	cc, err := grpc.NewClient("passthrough:///test", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close(); g.Stop(); <-done })
	return cc
}

func row(key string) *bigtablepb.MutateRowsRequest_Entry {
	return &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key), Mutations: []*bigtablepb.Mutation{{
		Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", Value: []byte("v")}},
	}}}
}

// attempt is MutateRows of measured entries.
func attempt(t testing.TB, cc grpc.ClientConnInterface, rows []*bigtablepb.MutateRowsRequest_Entry, cookies metadata.MD, errs []error) End {
	for _, r := range rows {
		proto.Size(r)
	}
	return table.MutateRows(t.Context(), cc, rows, cookies, errs, new(sync.Mutex))
}

func TestTheRequestIsTheGeneratedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable(rapid.String().Draw(t, "table"), rapid.String().Draw(t, "profile"))
		want := &bigtablepb.MutateRowsRequest{TableName: table.name, AppProfileId: table.profile}
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			r := &bigtablepb.MutateRowsRequest_Entry{RowKey: rapid.SliceOf(rapid.Byte()).Draw(t, "key")}
			for range rapid.IntRange(0, 3).Draw(t, "mutations") {
				r.Mutations = append(r.Mutations, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
					FamilyName: rapid.StringN(0, 300, -1).Draw(t, "family"), Value: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value"),
					TimestampMicros: rapid.Int64().Draw(t, "time"),
				}}})
			}
			proto.Size(r)
			want.Entries = append(want.Entries, r)
		}
		data, err := codec{encoding.GetCodecV2("proto")}.Marshal(&entriesOf{table: table, rows: want.Entries})
		if err != nil {
			t.Fatal(err)
		}
		got := new(bigtablepb.MutateRowsRequest)
		if err := proto.Unmarshal(data.Materialize(), got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v: %v", err, got)
		}
	})
}

func TestAnEntryChangedAfterItWasMeasuredIsNotSent(t *testing.T) {
	r := row("k")
	proto.Size(r)
	r.Mutations[0].GetSetCell().Value = make([]byte, 300)
	_, err := codec{encoding.GetCodecV2("proto")}.Marshal(&entriesOf{table: table, rows: []*bigtablepb.MutateRowsRequest_Entry{r}})
	if err == nil {
		t.Error("sent")
	}
}

func rows(n int) []*bigtablepb.MutateRowsRequest_Entry {
	out := make([]*bigtablepb.MutateRowsRequest_Entry, n)
	for i := range out {
		out[i] = row("r")
	}
	return out
}

func entry(i int, code codes.Code, details ...*anypb.Any) *bigtablepb.MutateRowsResponse_Entry {
	return &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: &spb.Status{Code: int32(code), Details: details}}
}

var table = NewTable("projects/p/instances/i/tables/t", "prof/ile")

// issue-row: 2
func TestEveryEntryGetsItsOwnOutcome(t *testing.T) {
	info, err := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	cc := connect(t, &server{mutateRows: func(_ *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		if err := s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{
			entry(2, codes.OK), {Index: 0}, entry(3, codes.Unavailable, info),
		}}); err != nil {
			return err
		}
		return s.Send(&bigtablepb.MutateRowsResponse{
			Entries:       []*bigtablepb.MutateRowsResponse_Entry{entry(1, codes.InvalidArgument)},
			RateLimitInfo: &bigtablepb.RateLimitInfo{Period: durationpb.New(10 * time.Second), Factor: 0.8},
		})
	}})
	errs := make([]error, 4)
	end := attempt(t, cc, rows(4), nil, errs)
	if end.Err != nil || !end.Answered {
		t.Errorf("end %+v", end)
	}
	if end.RateLimit == nil || *end.RateLimit != (RateLimit{Period: 10 * time.Second, Factor: 0.8}) {
		t.Errorf("rate limit %+v", end.RateLimit)
	}
	for i, want := range []codes.Code{codes.OK, codes.InvalidArgument, codes.OK, codes.Unavailable} {
		if got := status.Code(errs[i]); got != want {
			t.Errorf("entry %d: %v", i, errs[i])
		}
	}
	if d := retry.Classify(errs[3]).Delay; d != 3*time.Second {
		t.Errorf("the entry's RetryInfo is lost: %v", d)
	}
}

// issue-row: 3
func TestAnOmittedEntryHasFailed(t *testing.T) {
	cc := connect(t, &server{mutateRows: func(_ *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		return s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 0}, {Index: 1}}})
	}})
	errs := make([]error, 3)
	if end := attempt(t, cc, rows(3), nil, errs); end.Err != nil {
		t.Errorf("end %+v", end)
	}
	if errs[0] != nil || errs[1] != nil || errs[2] != ErrOmitted {
		t.Errorf("%v", errs)
	}
}

// issue-row: 20
func TestOutcomesBeforeAFailureStand(t *testing.T) {
	cc := connect(t, &server{mutateRows: func(_ *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		if err := s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 1}}}); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("x-goog-cbt-cookie-a", "1", "other", "2"))
		return status.Error(codes.Unavailable, "cut")
	}})
	errs := make([]error, 2)
	end := attempt(t, cc, rows(2), nil, errs)
	if status.Code(end.Err) != codes.Unavailable || !end.Answered || errs[1] != nil || status.Code(errs[0]) != codes.Unavailable {
		t.Errorf("%+v %v", end, errs)
	}
	if len(end.Cookies) != 1 || end.Cookies.Get("x-goog-cbt-cookie-a")[0] != "1" {
		t.Errorf("cookies %v", end.Cookies)
	}
}

func TestAContradictedSuccessIsNone(t *testing.T) {
	cc := connect(t, &server{mutateRows: func(_ *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		return s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{
			{Index: 0}, entry(0, codes.Aborted), {Index: 0}}})
	}})
	errs := make([]error, 1)
	attempt(t, cc, rows(1), nil, errs)
	if status.Code(errs[0]) != codes.Aborted {
		t.Errorf("%v", errs)
	}
}

func TestAnIndexOutOfRangeFailsTheCall(t *testing.T) {
	cc := connect(t, &server{mutateRows: func(_ *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		return s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 0}, {Index: -1}}})
	}})
	errs := make([]error, 2)
	end := attempt(t, cc, rows(2), nil, errs)
	if end.Err == nil || errs[0] != nil || errs[1] == nil {
		t.Errorf("%+v %v", end, errs)
	}
}

func TestHeadersNameTableProfileAndFeatures(t *testing.T) {
	var got metadata.MD
	var req *bigtablepb.MutateRowsRequest
	cc := connect(t, &server{mutateRows: func(r *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		got, _ = metadata.FromIncomingContext(s.Context())
		req = r
		return nil
	}})
	attempt(t, cc, rows(2), metadata.Pairs("x-goog-cbt-cookie-z", "26"), make([]error, 2))
	one := func(k string) string {
		if v := got.Get(k); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	if v := one("x-goog-request-params"); v != "table_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft&app_profile_id=prof%2File" {
		t.Errorf("request params %q", v)
	}
	if v := one("google-cloud-resource-prefix"); v != table.Name() {
		t.Errorf("resource prefix %q", v)
	}
	if v := one("x-goog-cbt-cookie-z"); v != "26" {
		t.Errorf("cookie %q", v)
	}
	b, err := base64.URLEncoding.DecodeString(one("bigtable-features"))
	if err != nil {
		t.Fatal(err)
	}
	var f bigtablepb.FeatureFlags
	if err := proto.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	if !f.MutateRowsRateLimit2 || f.MutateRowsRateLimit || !f.RoutingCookie || !f.RetryInfo || !f.ReverseScans || !f.LastScannedRowResponses {
		t.Errorf("features %v", &f)
	}
	if req.TableName != table.Name() || req.AppProfileId != "prof/ile" || len(req.Entries) != 2 {
		t.Errorf("request %v", req)
	}
}

func TestWithoutAConnectionNothingIsSent(t *testing.T) {
	cc, err := grpc.NewClient("passthrough:///none", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	errs := make([]error, 1)
	end := attempt(t, cc, rows(1), nil, errs)
	if c := retry.Classify(errs[0]); c.Verdict != retry.VerdictTransient || !c.NotApplied || end.Answered {
		t.Errorf("%+v of %v", c, errs[0])
	}
}

func TestMutateUnlessAppliesWhereTheFilterYieldsNothing(t *testing.T) {
	filter := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
	var got *bigtablepb.CheckAndMutateRowRequest
	answer := error(nil)
	cc := connect(t, &server{check: func(_ context.Context, r *bigtablepb.CheckAndMutateRowRequest) (*bigtablepb.CheckAndMutateRowResponse, error) {
		got = r
		return &bigtablepb.CheckAndMutateRowResponse{PredicateMatched: true}, answer
	}})
	if end := table.MutateUnless(t.Context(), cc, row("k"), filter, nil); end.Err != nil || !end.Answered {
		t.Errorf("%+v", end)
	}
	if len(got.TrueMutations) != 0 || len(got.FalseMutations) != 1 || !proto.Equal(got.PredicateFilter, filter) ||
		string(got.RowKey) != "k" || got.TableName != table.Name() || got.AppProfileId != "prof/ile" {
		t.Errorf("%v", got)
	}
	answer = status.Error(codes.Aborted, "x")
	if end := table.MutateUnless(t.Context(), cc, row("k"), filter, nil); status.Code(end.Err) != codes.Aborted {
		t.Errorf("%+v", end)
	}
}

// issue-row: 26
func TestMessagesOverFourMegabytesPass(t *testing.T) {
	cc := connect(t, &server{mutateRows: func(r *bigtablepb.MutateRowsRequest, s grpc.ServerStreamingServer[bigtablepb.MutateRowsResponse]) error {
		e := entry(0, codes.FailedPrecondition)
		e.Status.Message = string(r.Entries[0].Mutations[0].GetSetCell().Value) // 5 MB back, too
		return s.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{e}})
	}})
	r := row("k")
	value := make([]byte, 5<<20)
	for i := range value {
		value[i] = 'x'
	}
	r.Mutations[0].GetSetCell().Value = value
	errs := make([]error, 1)
	attempt(t, cc, []*bigtablepb.MutateRowsRequest_Entry{r}, nil, errs)
	if status.Code(errs[0]) != codes.FailedPrecondition {
		t.Errorf("%.200v", errs[0])
	}
}

// A reader of the wire must agree with the generated message on every response.
func FuzzResponse(f *testing.F) {
	seed, err := proto.Marshal(&bigtablepb.MutateRowsResponse{
		Entries:       []*bigtablepb.MutateRowsResponse_Entry{{Index: 2}, entry(1, codes.NotFound)},
		RateLimitInfo: &bigtablepb.RateLimitInfo{Factor: 0.5},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		const n = 4
		out := outcomes{errs: make([]error, n), guard: new(sync.Mutex)}
		for i := range out.errs {
			out.errs[i] = ErrOmitted
		}
		if out.read(b) != nil {
			return // it may be stricter
		}
		var m bigtablepb.MutateRowsResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			return // wire that the generated code refuses elsewhere, as in an unknown group
		}
		ok := map[int64]bool{}
		for _, e := range m.Entries {
			if e.Status.GetCode() == 0 {
				if _, seen := ok[e.Index]; !seen {
					ok[e.Index] = true
				}
			} else {
				ok[e.Index] = false
			}
		}
		for i, e := range out.errs {
			if (e == nil) != ok[int64(i)] {
				t.Fatalf("entry %d: %v, the generated message says %v", i, e, m.Entries)
			}
		}
	})
}
