package writer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// seenStates notes how entries go, and fails the test if one goes as the table does not say.
type seenStates struct {
	mu   sync.Mutex
	seen [states][states]bool
}

func (s *seenStates) moved(t testing.TB) func(from, to state) {
	return func(from, to state) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen[from][to] = true
		for _, tr := range transitions {
			if tr.from == from && tr.to == to {
				return
			}
		}
		t.Errorf("an entry goes from %s to %s, which the table of transitions does not have", from, to)
	}
}

// Each transition of the table occurs, and no other one. All other tests of this package check
// the second half too (see start).
func TestEntriesGoAsTheTableOfTransitionsSays(t *testing.T) {
	var seen seenStates
	for name, play := range map[string]func(t *testing.T, watched func(*Config)){
		"rows that follow one another": playFollowing,
		"outages and ends":             playOutage,
		"refusals":                     playRefusals,
		"what is missing":              playMissing,
		"calls that hang":              playHung,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play(t, func(c *Config) { c.moved = seen.moved(t) })
			})
		})
	}
	documented := map[[2]state]bool{}
	for _, tr := range transitions {
		if documented[[2]state{tr.from, tr.to}] {
			t.Errorf("the table has the way from %s to %s twice", tr.from, tr.to)
		}
		documented[[2]state{tr.from, tr.to}] = true
		if !seen.seen[tr.from][tr.to] {
			t.Errorf("no entry goes from %s to %s (%s)", tr.from, tr.to, tr.why)
		}
	}
}

func empty(key string) Entry {
	return Entry{Table: orders, Row: &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key)}}
}

func playFollowing(t *testing.T, watched func(*Config)) {
	s := &service{mutate: func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		if string(r.Entries[0].RowKey) == "denied" {
			return nil, status.Error(codes.PermissionDenied, "no")
		}
		return nil, nil
	}}
	w := start(t, s, watched)
	wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("a"), set("a"), set("b")}))
	if errs := w.Apply(within(t, time.Minute), []Entry{empty("a"), set("a")}); errs[0] == nil || errs[1] != nil {
		t.Errorf("%v", errs)
	}
	if errs := w.Apply(within(t, time.Minute), []Entry{set("denied"), set("denied")}); !errors.Is(errs[1], errAfter) {
		t.Errorf("%v", errs)
	}
}

func playOutage(t *testing.T, watched func(*Config)) {
	s := &service{mutate: func(ctx context.Context, n int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		switch {
		case n == 1:
			return nil, status.Error(codes.Unavailable, "down")
		case string(r.Entries[0].RowKey) == "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		case string(r.Entries[0].RowKey) == "down":
			return nil, status.Error(codes.Unavailable, "down")
		}
		return nil, nil
	}}
	one := func(c *Config) { c.Limits.Batch.MaxEntries, c.Limits.Batch.Concurrency = 1, 1 }
	w := start(t, s, watched, one)
	wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("again")}))
	for _, key := range []string{"down", "slow", "queued"} {
		go w.Apply(within(t, time.Minute), []Entry{set(key)})
		synctest.Wait()
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); err == nil {
		t.Error("nothing was left when the writer closed")
	}
}

func playRefusals(t *testing.T, watched func(*Config)) {
	s := &service{mutate: badRowsNaming(func(key string) bool { return key == "row-00002" }, unnamed)}
	w := start(t, s, watched)
	errs := w.Apply(within(t, time.Minute), sets(4))
	if errs[2] == nil || errs[0] != nil || errs[1] != nil || errs[3] != nil {
		t.Errorf("%v", errs)
	}
}

func playMissing(t *testing.T, watched func(*Config)) {
	// Repair makes the table.
	created := newCatalogue()
	wantApplied(t, start(t, &created.service, watched, schema(pipeline.CreateIfNeeded, "cf")).Apply(within(t, time.Minute), []Entry{set("a")}))
	// Repair may not make it.
	denied := newCatalogue()
	denied.create = func(int, *adminpb.CreateTableRequest) (*adminpb.Table, error) {
		return nil, status.Error(codes.PermissionDenied, "no")
	}
	if errs := start(t, &denied.service, watched, schema(pipeline.CreateIfNeeded, "cf")).Apply(within(t, time.Minute), []Entry{set("a")}); errs[0] == nil {
		t.Error("applied to a table that does not exist")
	}
	// One entry names an absent family, for which the whole call is refused.
	never := newCatalogue("cf")
	never.mutate = func(_ context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
		for _, e := range r.Entries {
			if _, absent := absentFamily(e, never.families); absent {
				return nil, status.Error(codes.NotFound, "family")
			}
		}
		return nil, nil
	}
	errs := start(t, &never.service, watched, schema(pipeline.CreateNever, "cf", "gone")).Apply(within(t, time.Minute), []Entry{in("cf", "a"), in("gone", "b")})
	if errs[0] != nil || errs[1] == nil {
		t.Errorf("%v", errs)
	}
	// The families cannot be read.
	unread := newCatalogue("cf")
	unread.mutate = never.mutate
	unread.get = func(int, *adminpb.GetTableRequest) (*adminpb.Table, error) {
		return nil, status.Error(codes.Unavailable, "down")
	}
	errs = start(t, &unread.service, watched, schema(pipeline.CreateNever, "cf", "gone")).Apply(within(t, time.Minute), []Entry{in("cf", "a"), in("gone", "b")})
	if errs[0] != nil || errs[1] == nil {
		t.Errorf("%v", errs)
	}
}

func playHung(t *testing.T, watched func(*Config)) {
	h := newHanging(5*time.Second, 0)
	w := start(t, &h.service, watched)
	to := func(value string) Entry {
		e := set("a")
		e.Row.Mutations[0].GetSetCell().Value = []byte(value)
		return e
	}
	ctx := within(t, 5*time.Minute)
	wantApplied(t, w.Apply(ctx, []Entry{to("old")}))
	// The call that hung may still write the old value.
	wantApplied(t, w.Apply(ctx, []Entry{to("new")}))
	other := set("a")
	other.Row.Mutations[0].GetSetCell().FamilyName = "other"
	h2 := newHanging(5*time.Second, 0)
	w2 := start(t, &h2.service, watched)
	wantApplied(t, w2.Apply(ctx, []Entry{to("old")}))
	wantApplied(t, w2.Apply(ctx, []Entry{other, to("new")}))
}
