package writer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// issue-row: 18
func TestAnExhaustedServiceGetsSmallerAndSlowerCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		var at []time.Time
		s := &service{}
		s.mutate = func(_ context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			mu.Lock()
			sizes, at = append(sizes, len(r.Entries)), append(at, time.Now())
			mu.Unlock()
			out := make([]*spb.Status, len(r.Entries))
			for i := range out {
				if len(r.Entries) > 60 {
					out[i] = code(codes.ResourceExhausted) // limit of total mutations in your queue
				}
			}
			return out, nil
		}
		w := start(t, s, func(c *Config) { c.Limits.Batch.Concurrency = 1; c.SingleTable = true })
		wantApplied(t, w.Apply(within(t, 4*time.Minute), sets(500)))
		if sizes[0] != 500 || sizes[1] != 250 || sizes[2] != 125 || sizes[3] != 62 || sizes[4] != 31 {
			t.Errorf("sizes %v", sizes)
		}
		for i := 1; i < 4; i++ {
			if at[i+1].Sub(at[i]) <= at[i].Sub(at[i-1]) {
				t.Errorf("no growing pause before request %d: %v", i+2, at)
			}
		}
		for _, e := range sets(500) {
			if n := s.appliedTimes(string(e.Row.RowKey)); n != 1 {
				t.Fatalf("%s applied %d times", e.Row.RowKey, n)
			}
		}
	})
}

func TestTheLoadComesBack(t *testing.T) {
	p := newPace(pipeline.Batch{MaxEntries: 500, Concurrency: 4})
	p.exhausted(500)
	p.exhausted(250)
	p.exhausted(125)
	if p.entries != 62 || p.slots != 1 {
		t.Fatalf("%d entries, %d slots", p.entries, p.slots)
	}
	one := newPace(pipeline.Batch{MaxEntries: 500, Concurrency: 4})
	if one.exhausted(1); one.entries != 125 {
		t.Errorf("one entry sent alone took the batch to %d", one.entries)
	}
	for range 40 {
		p.succeeded()
	}
	if p.entries != 500 || p.slots != 4 {
		t.Errorf("%d entries, %d slots", p.entries, p.slots)
	}
}

func TestShrinkingStopsAtOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPace(pipeline.Batch{MaxEntries: rapid.IntRange(1, 1000).Draw(t, "entries"), Concurrency: rapid.IntRange(1, 8).Draw(t, "slots")})
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 1000)).Draw(t, "calls") {
			if n == 0 {
				p.succeeded()
			} else {
				p.exhausted(n)
			}
			if p.entries < 1 || p.entries > p.maxEntries || p.slots < 1 || p.slots > p.maxSlots {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// at a load of 1,000 entries a second.
func loaded(now *time.Time) pace {
	p := newPace(pipeline.Batch{MaxEntries: 500, Concurrency: 4})
	for range 100 {
		p.sent(*now, 100)
		*now = now.Add(100 * time.Millisecond)
	}
	return p
}

func TestTheServicesRateIsObeyedWithinBounds(t *testing.T) {
	now := time.Unix(1000, 0)
	p := loaded(&now)
	ask := func(factor float64) { p.limit(now, &btrpc.RateLimit{Period: 10 * time.Second, Factor: factor}, false) }
	check := func(what string, want float64) {
		t.Helper()
		if p.rate < want*0.98 || p.rate > want*1.02 {
			t.Errorf("%s: %v entries/s, want %v", what, p.rate, want)
		}
	}
	ask(1.2)
	check("nothing to raise", 0)
	ask(0.8)
	check("a lower load", 800)
	ask(0.8)
	check("within the period", 800)
	now = now.Add(11 * time.Second)
	ask(0.1)
	check("clamped from below", 560)
	now = now.Add(11 * time.Second)
	ask(9)
	check("clamped from above", 728)
	now = now.Add(11 * time.Second)
	p.limit(now, nil, true)
	check("a failed call", 728*0.7)
	for range 100 {
		now = now.Add(11 * time.Second)
		ask(0.7)
	}
	check("the floor", leastRate)
	now = now.Add(11 * time.Second)
	p.limit(now, nil, false)
	check("lifted", 0)
}

func TestARateSpacesCalls(t *testing.T) {
	now := time.Unix(1000, 0)
	p := loaded(&now)
	p.limit(now, &btrpc.RateLimit{Period: time.Hour, Factor: 0.7}, false)
	begin, sent := now, 0
	for now.Sub(begin) < 10*time.Second {
		if p.next.After(now) {
			now = p.next
		}
		p.sent(now, 100)
		sent += 100
	}
	if rate := float64(sent) / 10; rate < 650 || rate > 780 {
		t.Errorf("%v entries/s under a limit of 700", rate)
	}
}

func TestTheWriterKeepsToTheServicesRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{stream: func(_ int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			time.Sleep(10 * time.Millisecond)
			resp := &bigtablepb.MutateRowsResponse{RateLimitInfo: &bigtablepb.RateLimitInfo{Period: durationpb.New(10 * time.Minute), Factor: 0.7}}
			for i := range r.Entries {
				resp.Entries = append(resp.Entries, &bigtablepb.MutateRowsResponse_Entry{Index: int64(i)})
			}
			return out.Send(resp)
		}}
		w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.Batch.Concurrency = 1 })
		begin := time.Now()
		wantApplied(t, w.Apply(within(t, 4*time.Minute), sets(5000))) // the first 500 make the load: 350 a second
		if d := time.Since(begin); d < 10*time.Second || d > 16*time.Second {
			t.Errorf("5,000 entries took %v", d)
		}
	})
}

// While a table fails only a probe is out, and its answer lets the rest go.
func TestAFailingTableIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &service{}
		s.mutate = func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if time.Since(begin) > time.Second && time.Since(begin) < time.Minute {
				s.mu.Lock()
				if s.inFlight > 1 {
					t.Errorf("%d calls at once to a table that fails", s.inFlight)
				}
				s.mu.Unlock()
			}
			time.Sleep(10 * time.Millisecond)
			if time.Since(begin) < time.Minute {
				return nil, status.Error(codes.Unavailable, "down")
			}
			return nil, nil
		}
		w := start(t, s, func(c *Config) { c.Limits.Batch.MaxEntries = 50 })
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { wantApplied(t, w.Apply(within(t, 4*time.Minute), sets(100))) })
		}
		wg.Wait()
		if n := s.count("MutateRows"); n > 40 {
			t.Errorf("%d requests in a minute of outage", n)
		}
		if d := time.Since(begin); d > time.Minute+10*time.Second { // one backoff after it answers
			t.Errorf("done after %v", d)
		}
		if s.count("Dial") != 1 {
			t.Errorf("%d connections", s.count("Dial"))
		}
	})
}

func TestOneTabletThatIsAwayHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &service{mutate: func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			out := make([]*spb.Status, len(r.Entries))
			for i, e := range r.Entries {
				if string(e.RowKey) == "row-00000" && time.Since(begin) < 30*time.Second {
					out[i] = code(codes.Unavailable)
				}
			}
			return out, nil
		}}
		w := start(t, s)
		var wg sync.WaitGroup
		wg.Go(func() { wantApplied(t, w.Apply(within(t, time.Minute), sets(2))) })
		for i := range 300 {
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("other")}))
			if d := time.Since(before); d != 0 {
				t.Fatalf("event %d waited %v", i, d)
			}
		}
		wg.Wait()
	})
}
