package writer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// issue-row: 1, 4, 34, 38
// covers: FAIL-01, FAIL-02, FAIL-10, FAIL-11
func TestOneBadEntryOfAThousandIsIsolated(t *testing.T) {
	most := 1 + 2*math.Log2(1000) + 2
	for _, at := range []string{"row-00000", "row-00500", "row-00999", "row-00737"} {
		is := func(bad string) func(string) bool { return func(k string) bool { return k == bad } }
		for name, decide := range map[string]func(string) decision{
			"the call, named":    func(bad string) decision { return badRows(is(bad)) },
			"the call, misnamed": func(bad string) decision { return badRowsNaming(is(bad), misnamed) },
			"the call, unnamed":  func(bad string) decision { return badRowsNaming(is(bad), unnamed) },
			"every entry":        allFor,
			"the entry": func(bad string) decision {
				return statuses(map[string]codes.Code{bad: codes.InvalidArgument})
			},
		} {
			s := &service{mutate: decide(at)}
			w := start(t, s, func(c *Config) { c.Limits.Batch.MaxEntries = 1000 })
			entries := sets(1000)
			for i, err := range w.Apply(within(t, time.Minute), entries) {
				key := string(entries[i].Row.RowKey)
				if got := retry.IsRejected(err); got != (key == at) || !got && err != nil {
					t.Errorf("%s in %s: entry %s: %v", at, name, key, err)
				}
				if key != at && s.appliedTimes(key) != 1 {
					t.Errorf("%s: applied %d times", key, s.appliedTimes(key))
				}
			}
			if n := s.count("MutateRows"); name == "the call, named" && n > 3 {
				t.Errorf("%s: %d requests though it was named", at, n)
			}
			most := most
			if name == "the call, misnamed" { // a wrong hint costs two requests each time
				most *= 2.2
			}
			if n := float64(s.count("MutateRows")); n > most {
				t.Errorf("%s in %s: %v requests, at most %v", at, name, n, most)
			}
			if st := w.Stats(); st.Rejected != 1 || st.Errors[codes.InvalidArgument] != 1 || st.RecordsSend != 1000 {
				t.Errorf("%s in %s: %+v", at, name, st)
			}
		}
	}
}

// allFor reports the fault of one entry for every entry, as the API allows.
func allFor(bad string) decision {
	whole := badRows(func(k string) bool { return k == bad })
	return func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		if _, err := whole(ctx, n, r); err == nil {
			return nil, nil
		}
		out := make([]*spb.Status, len(r.Entries))
		for i := range out {
			out[i] = code(codes.InvalidArgument)
		}
		return out, nil
	}
}

// covers: FAIL-01, FAIL-05, FAIL-11
func TestIsolationFindsExactlyTheGuilty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 120).Draw(rt, "n")
		bad := map[string]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 12).Draw(rt, "bad") {
			bad[fmt.Sprintf("row-%05d", i)] = true
		}
		unavailable := rapid.SliceOfN(rapid.IntRange(1, 30), 0, 4).Draw(rt, "unavailable")
		text := rapid.SampledFrom([]func(int, *bigtablepb.MutateRowsRequest) string{nil, unnamed, misnamed}).Draw(rt, "text")
		synctest.Test(t, func(t *testing.T) {
			refuse := badRows(func(k string) bool { return bad[k] })
			if text != nil {
				refuse = badRowsNaming(func(k string) bool { return bad[k] }, text)
			}
			s := &service{mutate: func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
				for _, u := range unavailable {
					if n == u {
						return nil, status.Error(codes.Unavailable, "down")
					}
				}
				return refuse(ctx, n, r)
			}}
			w := start(t, s)
			entries := sets(n)
			for i, err := range w.Apply(within(t, 4*time.Minute), entries) {
				key := string(entries[i].Row.RowKey)
				if bad[key] != retry.IsRejected(err) || !bad[key] && err != nil {
					t.Errorf("%s: %v", key, err)
				}
				if want := 1; !bad[key] && s.appliedTimes(key) != want {
					t.Errorf("%s applied %d times", key, s.appliedTimes(key))
				}
			}
		})
	})
}

func TestARejectionCarriesTheServicesText(t *testing.T) {
	s := &service{mutate: badRows(func(string) bool { return true })}
	err := start(t, s).Apply(within(t, time.Minute), sets(1))[0]
	if !retry.IsRejected(err) || strings.Contains(err.Error(), "element") {
		t.Fatalf("%v", err)
	}
	if r := rejection(status.Error(codes.InvalidArgument, "Timestamps must be >= -1")); r.Detail != "Timestamps must be >= -1" || r.Code != codes.InvalidArgument {
		t.Errorf("%+v", r)
	}
}

// Where outcomes came before the call was refused, the one entry without any may be
// paying for another.
func TestOneEntryWithoutAnOutcomeIsNotGuiltyYet(t *testing.T) {
	s := (&service{}).started()
	s.stream = func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
		if n > 1 {
			return s.respond(r, nil, out)
		}
		if err := out.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 0}}}); err != nil {
			return err
		}
		return status.Error(codes.InvalidArgument, "one of them")
	}
	wantApplied(t, start(t, s).Apply(within(t, time.Minute), sets(2)))
}

// An outage while entries are told apart is nobody's fault.
// covers: FAIL-05
func TestNoVerdictDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := badRows(func(k string) bool { return k == "row-00003" })
		s := &service{mutate: func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n > 1 {
				return nil, status.Error(codes.Unavailable, "down")
			}
			return refuse(ctx, n, r)
		}}
		for i, err := range start(t, s).Apply(within(t, 30*time.Second), sets(8)) {
			if err == nil || retry.IsRejected(err) {
				t.Errorf("entry %d: %v", i, err)
			}
		}
	})
}

// covers: FAIL-12
func TestABreakerHoldsBackAStreamOfRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		bad := true
		var mu sync.Mutex
		s := &service{mutate: badRows(func(string) bool { mu.Lock(); defer mu.Unlock(); return bad })}
		w := start(t, s, func(c *Config) { c.Limits.ConsecutiveRejections = 10; c.Logger = log.logger() })
		one := func() error { return w.Apply(within(t, time.Minute), sets(1))[0] }
		for i := range 10 {
			if err := one(); !retry.IsRejected(err) {
				t.Fatalf("rejection %d, the one that trips it included: %v", i, err)
			}
		}
		requests := s.count("MutateRows")
		for range 50 {
			if err := one(); !errors.Is(err, ErrBreakerOpen) || retry.IsRejected(err) {
				t.Fatalf("%v", err)
			}
		}
		if n := s.count("MutateRows"); n != requests {
			t.Errorf("%d requests through an open breaker", n-requests)
		}
		time.Sleep(1100 * time.Millisecond)
		if err := one(); !errors.Is(err, ErrBreakerOpen) { // the probe
			t.Errorf("the probe's rejection reached the policy: %v", err)
		}
		if n := s.count("MutateRows"); n != requests+1 {
			t.Errorf("%d probes", n-requests)
		}
		for range 300 { // ten minutes
			time.Sleep(2 * time.Second)
			if err := one(); !errors.Is(err, ErrBreakerOpen) {
				t.Fatalf("%v", err)
			}
		}
		if n := s.count("MutateRows") - requests; n < 10 || n > 25 {
			t.Errorf("%d probes in ten minutes", n)
		}
		if n := log.lines("limits.consecutiveRejections"); n < 9 || n > 11 || log.lines("InvalidArgument") != n || log.lines("limit=10") != n {
			t.Errorf("%d log lines in ten minutes", n)
		}
		mu.Lock()
		bad = false
		mu.Unlock()
		time.Sleep(76 * time.Second)
		wantApplied(t, []error{one(), one()})
		if w.Stats().BreakerOpen {
			t.Error("still open")
		}
	})
}

// covers: FAIL-12
func TestAnythingAppliedResetsTheBreaker(t *testing.T) {
	s := &service{mutate: badRows(func(k string) bool { return strings.HasPrefix(k, "bad") })}
	w := start(t, s, func(c *Config) { c.Limits.ConsecutiveRejections = 4 }) // the three of a round may come before its good one
	for i := range 20 {
		for j, err := range w.Apply(within(t, time.Minute), []Entry{set("bad"), set("bad"), set("good"), set("bad")}) {
			if retry.IsRejected(err) != (j != 2) {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		wantApplied(t, w.Apply(within(t, time.Minute), sets(1)))
	}
}

// covers: FAIL-12
func TestOversizeEntriesDoNotCountForTheBreaker(t *testing.T) {
	w := start(t, &service{}, func(c *Config) { c.Limits.ConsecutiveRejections = 3; c.MaxEntryBytes = 10 })
	for range 20 {
		if err := w.Apply(within(t, time.Minute), sets(1))[0]; !retry.IsRejected(err) {
			t.Fatalf("%v", err)
		}
	}
}

func TestAnUnlimitedBreakerNeverOpens(t *testing.T) {
	s := &service{mutate: badRows(func(string) bool { return true })}
	w := start(t, s, func(c *Config) { c.Limits.ConsecutiveRejections = 0 })
	for i, err := range w.Apply(within(t, time.Minute), sets(400)) {
		if !retry.IsRejected(err) {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
}

// A batch that is all bad must not cost two requests an entry once the breaker is open.
func TestAnOpenBreakerEndsIsolation(t *testing.T) {
	s := &service{mutate: badRows(func(string) bool { return true })}
	w := start(t, s, func(c *Config) { c.Limits.ConsecutiveRejections = 5 })
	rejected, refused := 0, 0
	for _, err := range w.Apply(within(t, time.Minute), sets(500)) {
		switch {
		case retry.IsRejected(err):
			rejected++
		case errors.Is(err, ErrBreakerOpen):
			refused++
		}
	}
	if rejected != 5 || refused != 495 || s.count("MutateRows") > 40 {
		t.Errorf("%d rejected, %d refused, %d requests", rejected, refused, s.count("MutateRows"))
	}
}
