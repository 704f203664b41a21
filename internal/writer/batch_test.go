package writer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// widths returns the number of mutations of each request, and checks that no row was
// lost or doubled.
func widths(t *testing.T, entries []Entry, batch pipeline.Batch) []int {
	t.Helper()
	var mu sync.Mutex
	var out []int
	s := &service{mutate: func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		n := 0
		for _, e := range r.Entries {
			n += len(e.Mutations)
		}
		mu.Lock()
		defer mu.Unlock()
		out = append(out, n)
		return nil, nil
	}}
	w := start(t, s, func(c *Config) {
		c.Limits.Batch = batch
		c.Limits.InFlight = pipeline.InFlight{MaxEntries: 1 << 20, MaxBytes: 1 << 30}
		c.SingleTable = true
	})
	wantApplied(t, w.Apply(within(t, 5*time.Minute), entries))
	for _, e := range entries {
		// On a slow machine a call of so many mutations may be given up, and sent again.
		if s.appliedTimes(string(e.Row.RowKey)) == 0 {
			t.Fatalf("%s is not applied", e.Row.RowKey)
		}
	}
	return out
}

// issue-row: 5
// covers: SNK-30
func TestABatchClosesBeforeTheLimitOfMutations(t *testing.T) {
	entries := sets(60_000)
	for i := range entries {
		entries[i].Row.Mutations = append(entries[i].Row.Mutations, setCell("cf", 2000))
	}
	got := widths(t, entries, pipeline.Batch{MaxEntries: 100_000, MaxBytes: 1 << 30, Concurrency: 1})
	if slices.Max(got) > MaxMutations || len(got) > 4 {
		t.Errorf("%v", got)
	}
}

// issue-row: 6
func TestAFewWideRowsDoNotOverflowABatch(t *testing.T) {
	entries := sets(20)
	for i := range entries {
		for len(entries[i].Row.Mutations) < 6000 {
			entries[i].Row.Mutations = append(entries[i].Row.Mutations, setCell("cf", 1000))
		}
	}
	got := widths(t, entries, pipeline.Batch{MaxEntries: 500, MaxBytes: 1 << 30, Concurrency: 1})
	if slices.Max(got) > MaxMutations {
		t.Errorf("%v", got)
	}
}

// issue-row: 8
// covers: SNK-26
func TestABatchClosesAtItsBytes(t *testing.T) {
	entries := sets(100)
	for _, e := range entries {
		e.Row.Mutations[0].GetSetCell().Value = make([]byte, 1000)
	}
	size := proto.Size(entries[0].Row)
	got := widths(t, entries, pipeline.Batch{MaxEntries: 500, MaxBytes: int64(10 * size), Concurrency: 4})
	if slices.Max(got) > 10 || len(got) > 14 {
		t.Errorf("%v", got)
	}
}

// issue-row: 17
// covers: SNK-08, SNK-45
func TestALoneEntryWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &service{})
		begin := time.Now()
		wantApplied(t, w.Apply(within(t, time.Minute), sets(1)))
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %v", d)
		}
	})
}

// issue-row: 27
// covers: SNK-17
func TestWhileCallsAreInFlightTheNextBatchFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(5 * time.Millisecond)
			return nil, nil
		}}
		w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.InFlight.MaxEntries = 10_000 })
		var wg sync.WaitGroup
		for i := range 10_000 { // one entry a request
			wg.Go(func() { wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set(fmt.Sprint(i))})) })
		}
		wg.Wait()
		if n := s.count("MutateRows"); n > 30 {
			t.Errorf("%d requests for 10,000 entries", n)
		}
	})
}

// issue-row: 28
// covers: SNK-22
func TestCallsAndEntriesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(time.Second)
			return nil, nil
		}}
		w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.Batch.MaxEntries = 10 })
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				entries := sets(2000)
				for _, e := range entries {
					e.Row.RowKey = append(e.Row.RowKey, byte(i))
				}
				wantApplied(t, w.Apply(within(t, time.Hour), entries))
			})
		}
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if n := w.Stats().InFlightEntries; n > 2500 {
				t.Fatalf("%d entries in flight", n)
			}
		}
		wg.Wait()
		if s.most != 4 {
			t.Errorf("%d calls in flight", s.most)
		}
	})
}

// issue-row: 29
func TestNoHiddenLimitOnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(time.Second)
			return nil, nil
		}}
		w := start(t, s, func(c *Config) {
			c.SingleTable = true
			c.Limits.Batch = pipeline.Batch{MaxEntries: 1, MaxBytes: 1 << 20, Concurrency: 64}
		})
		begin := time.Now()
		wantApplied(t, w.Apply(within(t, time.Minute), sets(128)))
		if d := time.Since(begin); s.most != 64 || d > 3*time.Second {
			t.Errorf("%d calls at once, %v", s.most, d)
		}
	})
}

// covers: SNK-09
func TestEntriesOfOneRowAreSentOneAfterAnother(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(rt, "n")
		var entries []Entry
		want := map[string][]int64{}
		for i := range n {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "key")
			e := set(key)
			e.Row.Mutations[0].GetSetCell().TimestampMicros = int64(i) * 1000
			if rapid.Bool().Draw(rt, "unless") {
				e = marked(e)
			}
			entries = append(entries, e)
			want[key] = append(want[key], int64(i)*1000)
		}
		failing := rapid.IntRange(0, 3).Draw(rt, "failing")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			got := map[string][]int64{}
			take := func(key []byte, m []*bigtablepb.Mutation) {
				got[string(key)] = append(got[string(key)], m[0].GetSetCell().GetTimestampMicros())
			}
			s := &service{
				mutate: func(_ context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
					time.Sleep(time.Millisecond)
					if n <= failing {
						return nil, status.Error(codes.Unavailable, "down")
					}
					mu.Lock()
					defer mu.Unlock()
					seen := map[string]bool{}
					for _, e := range r.Entries {
						if seen[string(e.RowKey)] {
							t.Errorf("row %s twice in one request", e.RowKey)
						}
						seen[string(e.RowKey)] = true
						take(e.RowKey, e.Mutations)
					}
					return nil, nil
				},
				check: func(_ context.Context, _ int, r *bigtablepb.CheckAndMutateRowRequest) error {
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					take(r.RowKey, r.FalseMutations)
					return nil
				},
			}
			wantApplied(t, start(t, s).Apply(within(t, time.Minute), entries))
			for key, order := range want {
				if !slices.Equal(got[key], order) {
					t.Errorf("row %s: %v, want %v", key, got[key], order)
				}
			}
		})
	})
}

func TestAnEntryThatTakesItsRowsPlaceIsNotAdmittedAgain(t *testing.T) {
	s := &service{}
	w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.InFlight.MaxEntries = 1 })
	wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("a"), set("b"), set("a"), set("c"), set("a")}))
	if s.appliedTimes("a") != 3 || s.appliedTimes("b") != 1 || s.appliedTimes("c") != 1 {
		t.Errorf("%v", s.order)
	}
	if st := w.Stats(); st.InFlightEntries != 0 || st.RecordsSend != 5 {
		t.Errorf("%+v", st)
	}
}

func TestAfterAFailureTheRowsLaterEntriesAreNotSent(t *testing.T) {
	s := &service{mutate: statuses(map[string]codes.Code{"a": codes.PermissionDenied})}
	errs := start(t, s).Apply(within(t, time.Minute), []Entry{set("a"), set("a"), set("b"), set("a")})
	if errs[0] == nil || errs[1] == nil || errs[2] != nil || errs[3] == nil || s.count("MutateRows") != 1 {
		t.Errorf("%v after %d requests", errs, s.count("MutateRows"))
	}
	bad := set("a")
	bad.Row.Mutations = nil // refused alone: what follows is none of its fault
	errs = start(t, &service{}).Apply(within(t, time.Minute), []Entry{bad, set("a"), set("a")})
	if !retry.IsRejected(errs[0]) || errs[1] != nil || errs[2] != nil {
		t.Errorf("%v", errs)
	}
}

func TestTheSameKeyInTwoTablesIsTwoRows(t *testing.T) {
	other := orders
	other.Table = "other"
	s := &service{}
	wantApplied(t, start(t, s).Apply(within(t, time.Minute), []Entry{set("a"), setIn(other, "a")}))
	if s.count("MutateRows") != 2 || s.appliedTimes("a") != 2 {
		t.Errorf("%d requests", s.count("MutateRows"))
	}
}

func TestEntriesWithTokensGoLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(_ context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n == 1 {
				return nil, status.Error(codes.Unavailable, "down")
			}
			return nil, nil
		}}
		token := "0123456789abcdef"
		entries := []Entry{add("add-1", token), set("a"), add("add-2", token), set("b"), add("add-1", token)}
		wantApplied(t, start(t, s).Apply(within(t, time.Minute), entries))
		if len(s.order) != 5 || !slices.Contains(s.order[:2], "a") || !slices.Contains(s.order[:2], "b") {
			t.Errorf("%v", s.order)
		}
	})
	s := &service{mutate: statuses(map[string]codes.Code{"a": codes.InvalidArgument})}
	errs := start(t, s).Apply(within(t, time.Minute), []Entry{add("add", "0123456789abcdef"), set("a"), set("b"), add("add", "0123456789abcdef")})
	if !retry.IsRejected(errs[1]) || errs[2] != nil || !isHeld(errs[0]) || !isHeld(errs[3]) || s.appliedTimes("add") != 0 {
		t.Errorf("%v", errs)
	}
	wantApplied(t, start(t, &service{}).Apply(within(t, time.Minute), []Entry{add("add", "0123456789abcdef")}))
}

func TestConditionalEntriesGoAlone(t *testing.T) {
	var mu sync.Mutex
	var got []*bigtablepb.CheckAndMutateRowRequest
	s := &service{check: func(_ context.Context, _ int, r *bigtablepb.CheckAndMutateRowRequest) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
		if string(r.RowKey) == "bad" {
			return status.Error(codes.InvalidArgument, "no")
		}
		return nil
	}}
	unless := func(key string) Entry { e := add(key, ""); e.Unless = passAll(); return e }
	w := start(t, s)
	errs := w.Apply(within(t, time.Minute), []Entry{unless("a"), set("b"), unless("bad"), unless("c")})
	if errs[0] != nil || errs[1] != nil || !retry.IsRejected(errs[2]) || errs[3] != nil {
		t.Errorf("%v", errs)
	}
	if len(got) != 3 || s.count("MutateRows") != 1 {
		t.Errorf("%d conditional requests", len(got))
	}
}

func TestEntriesThatGoAloneDoNotHoldUpBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{check: func(context.Context, int, *bigtablepb.CheckAndMutateRowRequest) error {
			time.Sleep(time.Second)
			return nil
		}}
		w := start(t, s, func(c *Config) { c.Limits.Batch.Concurrency = 1 })
		var alone []Entry
		for i := range 50 {
			e := set(fmt.Sprint("alone-", i))
			e.Unless = passAll()
			alone = append(alone, e)
		}
		var wg sync.WaitGroup
		wg.Go(func() { wantApplied(t, w.Apply(within(t, 4*time.Minute), alone)) })
		synctest.Wait()
		begin := time.Now()
		wantApplied(t, w.Apply(within(t, time.Minute), sets(100)))
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("a batch waited %v", d)
		}
		wg.Wait()
	})
}
