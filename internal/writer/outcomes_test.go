package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// statuses answers every entry of a key with a status, and applies the others.
func statuses(by map[string]codes.Code) func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
	return func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		out := make([]*spb.Status, len(r.Entries))
		for i, e := range r.Entries {
			if c, ok := by[string(e.RowKey)]; ok {
				out[i] = code(c)
			}
		}
		return out, nil
	}
}

func answer(err error) func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
	return func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) { return nil, err }
}

// issue-row: 3
func TestAnOmittedEntryIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{stream: func(_ int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			resp := &bigtablepb.MutateRowsResponse{}
			for i, e := range r.Entries {
				if string(e.RowKey) != "c" {
					resp.Entries = append(resp.Entries, &bigtablepb.MutateRowsResponse_Entry{Index: int64(i)})
				}
			}
			return out.Send(resp)
		}}
		w := start(t, s)
		errs := w.Apply(within(t, time.Minute), []Entry{set("a"), set("b"), set("c")})
		if errs[0] != nil || errs[1] != nil || errs[2] == nil || retry.IsRejected(errs[2]) {
			t.Errorf("%v", errs)
		}
		for _, keys := range s.requests[1:] {
			if !slices.Equal(keys, []string{"c"}) {
				t.Errorf("sent again: %v", keys)
			}
		}
		if len(s.requests) < 3 {
			t.Errorf("only %d attempts in a minute", len(s.requests))
		}
	})
}

// issue-row: 20
// covers: FAIL-20
func TestAtTheDeadlineWhatIsAppliedIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{stream: func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			if n == 1 {
				if err := out.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 1}}}); err != nil {
					return err
				}
			}
			<-out.Context().Done() // the rest is never answered
			return out.Context().Err()
		}}
		w := start(t, s)
		begin := time.Now()
		errs := w.Apply(within(t, 30*time.Second), sets(3))
		if errs[0] == nil || errs[1] != nil || errs[2] == nil {
			t.Errorf("%v", errs)
		}
		if d := time.Since(begin); d > 31*time.Second {
			t.Errorf("returned after %v", d)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, keys := range s.requests[1:] {
			if slices.Contains(keys, "row-00001") {
				t.Error("an applied entry was sent again")
			}
		}
	})
}

// issue-row: 23
// covers: SNK-34
func TestAServiceThatNeverAnswersEndsInRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		s := &service{mutate: func(ctx context.Context, _ int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		w := start(t, s, func(c *Config) { c.Logger = log.logger(); c.Limits.InFlight.MaxEntries = 10; c.SingleTable = true })
		begin := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i, err := range w.Apply(within(t, 270*time.Second), sets(5)) {
					if err == nil || retry.IsRejected(err) {
						t.Errorf("entry %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		if n := log.lines("admission and outcomes"); n != 2 { // two requests wait until half of their time is over
			t.Errorf("%d warnings of admission", n)
		}
		if d := time.Since(begin); d > 271*time.Second {
			t.Errorf("returned after %v", d)
		}
		if n := log.lines("answered no entry"); n < 3 || n > 4 {
			t.Errorf("%d warnings in 270 s", n)
		}
	})
}

// covers: SNK-34
func TestASlowServiceIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(40 * time.Second)
			return nil, nil
		}}
		w := start(t, s, func(c *Config) { c.Logger = log.logger() })
		for range 5 {
			wantApplied(t, w.Apply(within(t, 270*time.Second), sets(1)))
			time.Sleep(50 * time.Second) // idle is no stall either
		}
		if n := log.lines("answered no entry"); n != 0 {
			t.Errorf("%d warnings", n)
		}
	})
}

// covers: FAIL-04
func TestFatalStatusesAreRefusedAtOnce(t *testing.T) {
	for _, c := range []codes.Code{codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange, codes.Internal, codes.Unknown, codes.Canceled} {
		s := &service{mutate: answer(status.Error(c, "row key secret"))}
		w := start(t, s)
		errs := w.Apply(within(t, time.Minute), sets(2))
		var e *Error
		if !errors.As(errs[0], &e) || e.Code != c || e.Table != orders.String() || retry.IsRejected(errs[1]) || s.count("MutateRows") != 1 {
			t.Errorf("%v: %v after %d requests", c, errs, s.count("MutateRows"))
		}
	}
}

func TestErrorsQuoteNoData(t *testing.T) {
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unavailable, codes.Aborted} {
		s := &service{mutate: answer(status.Error(code, "Error while mutating the row 'secret'"))}
		err := start(t, s).Apply(within(t, 2*time.Second), sets(1))[0]
		if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "tables/orders") {
			t.Errorf("%v: %v", code, err)
		}
		if code == codes.PermissionDenied && !strings.Contains(err.Error(), "bigtable.tables.mutateRows") {
			t.Errorf("what the reader needs to act is lost: %v", err)
		}
	}
}

// An entry that may not be repeated is sent again only when it is certain that it
// changed nothing. A set with a time, a delete, an add under a token may be.
func TestOnlyRepeatableEntriesAreSentAgainAfterAnAmbiguousEnd(t *testing.T) {
	clock := set("k")
	clock.Row.Mutations[0].GetSetCell().TimestampMicros = -1
	del := set("k")
	del.Row.Mutations = []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}}
	other := add("k", "")
	other.Unless = column("seen", "q")
	someone := set("k")
	someone.Unless = column("seen", "q")
	undone := marked(add("k", ""))
	undone.Row.Mutations = append(undone.Row.Mutations, deleteFamily("seen"))
	many := marked(add("k", ""))
	many.Unless = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{
		Filters: []*bigtablepb.RowFilter{column("seen", "other"), column("seen", "q")},
	}}}
	strange := marked(add("k", ""))
	strange.Unless = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{BlockAllFilter: true}}
	open := marked(add("k", ""))
	open.Unless.GetColumnRangeFilter().StartQualifier = &bigtablepb.ColumnRange_StartQualifierOpen{StartQualifierOpen: []byte("q")}
	for name, c := range map[string]struct {
		entry Entry
		code  codes.Code
		again bool
	}{
		"set":                        {set("k"), codes.Unavailable, true},
		"set, aborted":               {set("k"), codes.Aborted, true},
		"set by the service's clock": {clock, codes.Unavailable, false},
		"delete":                     {del, codes.DeadlineExceeded, true},
		"add":                        {add("k", ""), codes.Unavailable, false},
		"add, aborted":               {add("k", ""), codes.Aborted, false},
		"add, not taken":             {add("k", ""), codes.ResourceExhausted, true},
		"add under a short token":    {add("k", "1234567"), codes.Unavailable, false},
		"add under a token":          {add("k", "12345678"), codes.Unavailable, true},
		"add under a marker":         {marked(add("k", "")), codes.Unavailable, true},
		"add under several markers":  {many, codes.Unavailable, true},

		"add under another's marker":           {other, codes.Unavailable, false},
		"set under another's marker":           {someone, codes.Unavailable, false},
		"another's marker, not taken":          {other, codes.ResourceExhausted, true},
		"add under a marker that it deletes":   {undone, codes.Unavailable, false},
		"add under a filter that is no marker": {strange, codes.Unavailable, false},
		"add under a range without its start":  {open, codes.Unavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fail := func(n int) error {
					if n == 1 {
						return status.Error(c.code, "once")
					}
					return nil
				}
				s := &service{
					mutate: func(_ context.Context, n int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
						return nil, fail(n)
					},
					check: func(_ context.Context, n int, _ *bigtablepb.CheckAndMutateRowRequest) error { return fail(n) },
				}
				err := start(t, s).Apply(within(t, time.Minute), []Entry{c.entry})[0]
				calls := s.count("MutateRows") + s.count("CheckAndMutateRow")
				if (err == nil) != c.again || (calls > 1) != c.again {
					t.Errorf("%v after %d requests", err, calls)
				}
			})
		})
	}
}

func deleteFamily(name string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{
		DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: name},
	}}
}

func TestAnAnswerHalfWayMakesTheRestAmbiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{stream: func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			if err := out.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 0}}}); err != nil {
				return err
			}
			if n > 1 {
				return nil
			}
			return status.Error(codes.ResourceExhausted, "half-way") // alone it would prove that nothing happened
		}}
		errs := start(t, s).Apply(within(t, time.Minute), []Entry{set("a"), add("b", "")})
		if errs[0] != nil || errs[1] == nil || s.count("MutateRows") != 1 {
			t.Errorf("%v after %d requests", errs, s.count("MutateRows"))
		}
	})
}

func TestRetryInfoIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := status.New(codes.Unavailable, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		var at []time.Time
		s := &service{mutate: func(_ context.Context, n int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			at = append(at, time.Now())
			if n == 1 {
				return nil, st.Err()
			}
			return nil, nil
		}}
		w := start(t, s)
		wantApplied(t, w.Apply(within(t, time.Minute), sets(2)))
		if d := at[1].Sub(at[0]); d < 20*time.Second || d > 25*time.Second {
			t.Errorf("sent again after %v", d)
		}
		s.mutate = answer(st.Err())
		begin := time.Now()
		err = w.Apply(within(t, 10*time.Second), sets(1))[0]
		if err == nil || time.Since(begin) > time.Second {
			t.Errorf("waited %v for an attempt that comes too late: %v", time.Since(begin), err)
		}
	})
}

func TestRetryInfoOfOneEntryIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := status.New(codes.Aborted, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		s := &service{mutate: func(_ context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n == 1 {
				return []*spb.Status{nil, st.Proto()}, nil
			}
			return nil, nil
		}}
		begin := time.Now()
		wantApplied(t, start(t, s).Apply(within(t, time.Minute), sets(2)))
		if d := time.Since(begin); d < 20*time.Second || d > 25*time.Second {
			t.Errorf("sent again after %v", d)
		}
	})
}

func TestAnEntryWhoseTimeIsOverIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(30 * time.Second)
			return nil, nil
		}}
		w := start(t, s, func(c *Config) { c.Limits.Batch.Concurrency = 1 })
		var wg sync.WaitGroup
		wg.Go(func() { wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("slow")})) })
		synctest.Wait()
		wg.Go(func() { wantApplied(t, w.Apply(within(t, 3*time.Minute), []Entry{set("fine")})) }) // the same batch
		if err := w.Apply(within(t, 5*time.Second), []Entry{set("late")})[0]; err == nil {
			t.Error("no error")
		}
		wg.Wait()
		time.Sleep(time.Minute)
		if s.appliedTimes("late") != 0 || w.Stats().InFlightEntries != 0 {
			t.Errorf("sent after its caller had left: %+v", w.Stats())
		}
	})
}

func TestRoutingCookiesAreEchoed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := &service{stream: func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			md, _ := metadata.FromIncomingContext(out.Context())
			got = append(got, strings.Join(md.Get("x-goog-cbt-cookie-routing"), ","))
			if n < 3 {
				out.SetTrailer(metadata.Pairs("x-goog-cbt-cookie-routing", fmt.Sprint(n)))
				return status.Error(codes.Unavailable, "moved")
			}
			return (&service{}).started().respond(r, nil, out)
		}}
		wantApplied(t, start(t, s).Apply(within(t, time.Minute), sets(1)))
		if !slices.Equal(got, []string{"", "1", "2"}) {
			t.Errorf("%q", got)
		}
	})
}

func (s *service) started() *service { s.enter("start"); return s }

func TestACallerThatLeavesLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(2500 * time.Millisecond)
			return nil, nil
		}}
		w := start(t, s)
		ctx, cancel := context.WithCancel(within(t, time.Minute))
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		errs := w.Apply(ctx, sets(3))
		if d := time.Since(begin); d > 2*time.Second || errs[0] == nil || !errors.Is(errs[2], context.Canceled) {
			t.Errorf("%v after %v", errs, d)
		}
		wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("other")}))
		synctest.Wait()
		if len(s.order) != 4 {
			t.Errorf("%d applied", len(s.order))
		}
	})
}

// issue-row: 19
// covers: SNK-35, SNK-36, SNK-38
func TestCloseDrainsAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(3 * time.Second)
			return nil, nil
		}}
		w := start(t, s)
		var errs []error
		var wg sync.WaitGroup
		wg.Go(func() { errs = w.Apply(within(t, time.Minute), sets(10)) })
		synctest.Wait()
		if err := w.Close(within(t, 9*time.Second)); err != nil {
			t.Error(err)
		}
		wg.Wait()
		wantApplied(t, errs)
		if err := w.Apply(within(t, time.Minute), sets(1))[0]; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(ctx context.Context, _ int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		w := start(t, s)
		var errs []error
		var wg sync.WaitGroup
		wg.Go(func() { errs = w.Apply(within(t, time.Hour), sets(3000)) }) // some wait for room
		synctest.Wait()
		begin := time.Now()
		if err := w.Close(within(t, 9*time.Second)); err == nil {
			t.Error("no error though entries were left")
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("closed after %v", d)
		}
		wg.Wait()
		for i, err := range errs {
			if err == nil || retry.IsRejected(err) {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
	})
}

// issue-row: 7, 39
// covers: SNK-31
func TestAnEntryThatNoRequestCanCarryIsRejectedAlone(t *testing.T) {
	s := &service{}
	w := start(t, s, func(c *Config) { c.MaxEntryBytes = 1 << 20 })
	big, wide, empty, odd := set("big"), set("wide"), set("empty"), set("odd")
	big.Row.Mutations[0].GetSetCell().Value = make([]byte, 1<<20)
	empty.Row.Mutations = nil
	for len(wide.Row.Mutations) < 100_000 {
		wide.Row.Mutations = append(wide.Row.Mutations, setCell("cf", 0))
	}
	odd.Row.Mutations[0].GetSetCell().FamilyName = "\xff"
	entries := []Entry{set("a"), big, wide, empty, odd, set("b")}
	errs := w.Apply(within(t, time.Minute), entries)
	for i, err := range errs {
		if retry.IsRejected(err) != (i > 0 && i < 5) || !retry.IsRejected(err) && err != nil {
			t.Errorf("%s: %v", entries[i].Row.RowKey, err)
		}
	}
	if len(s.order) != 2 || w.Stats().Rejected != 0 {
		t.Errorf("applied %v, %d rejected by the service", s.order, w.Stats().Rejected)
	}
}

// issue-row: 21, 22
// covers: MET-01, MET-02, MET-07
func TestAPartlyFailedBatchIsNotRepeatedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n == 1 {
				return statuses(map[string]codes.Code{"row-00001": codes.Unavailable, "row-00003": codes.Aborted})(ctx, n, r)
			}
			if n == 2 {
				return nil, status.Error(codes.Internal, "stream terminated by RST_STREAM")
			}
			return nil, nil
		}}
		w := start(t, s)
		wantApplied(t, w.Apply(within(t, time.Minute), sets(5)))
		for _, e := range sets(5) {
			if n := s.appliedTimes(string(e.Row.RowKey)); n != 1 {
				t.Errorf("%s applied %d times", e.Row.RowKey, n)
			}
		}
		st := w.Stats()
		size := int64(proto.Size(sets(1)[0].Row))
		if st.RecordsSend != 5 || st.BytesSend != 5*size || st.Errors[codes.Unavailable] != 1 || st.Errors[codes.Aborted] != 1 || st.Errors[codes.Internal] != 2 {
			t.Errorf("%+v", st)
		}
	})
}

func TestErrorIsTransientToItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: answer(status.Error(codes.Unavailable, "down"))}
		err := start(t, s).Apply(within(t, 5*time.Second), sets(1))[0]
		if c := retry.Classify(err); c.Verdict != retry.VerdictTransient || c.Code != codes.Unavailable && c.Code != codes.DeadlineExceeded {
			t.Errorf("%+v: %v", c, err)
		}
	})
}
