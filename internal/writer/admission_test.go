package writer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func isHeld(err error) bool { return errors.Is(err, ErrHeld) }

// gate lets calls through when it is open; synctest may wait for it.
type gate struct{ open chan struct{} }

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) wait(ctx context.Context) error {
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// covers: SNK-24
func TestAnEntryLargerThanTheBoundIsAdmittedWhenNothingIsHeld(t *testing.T) {
	s := &service{}
	w := start(t, s, func(c *Config) { c.Limits.InFlight = pipeline.InFlight{MaxEntries: 10, MaxBytes: 100} })
	big := set("big")
	big.Row.Mutations[0].GetSetCell().Value = make([]byte, 1<<20)
	wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set("a"), big, set("b")}))
}

// covers: SNK-23, SNK-24, MET-05
func TestBytesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := &service{mutate: func(ctx context.Context, _ int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			return nil, g.wait(ctx)
		}}
		w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.InFlight.MaxBytes = 10_000 })
		entries := sets(100)
		for _, e := range entries {
			e.Row.Mutations[0].GetSetCell().Value = make([]byte, 1000)
		}
		var wg sync.WaitGroup
		wg.Go(func() { wantApplied(t, w.Apply(within(t, time.Minute), entries)) })
		synctest.Wait()
		if st := w.Stats(); st.InFlightBytes < 10_000 || st.InFlightBytes > 11_100 || st.Waiting != 1 {
			t.Errorf("%d bytes held, %d wait", st.InFlightBytes, st.Waiting)
		}
		close(g.open)
		wg.Wait()
	})
}

// covers: SNK-25
func TestWhoCannotBeAdmittedInTimeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := &service{mutate: func(ctx context.Context, _ int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			return nil, g.wait(ctx)
		}}
		w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.InFlight.MaxEntries = 10 })
		var wg sync.WaitGroup
		wg.Go(func() { wantApplied(t, w.Apply(within(t, time.Minute), sets(10))) })
		synctest.Wait()
		begin := time.Now()
		for _, err := range w.Apply(within(t, 40*time.Second), []Entry{set("x"), set("y")}) {
			if !errors.Is(err, ErrNotAdmitted) {
				t.Errorf("%v", err)
			}
		}
		if d := time.Since(begin); d > 21*time.Second { // half of its time
			t.Errorf("refused after %v", d)
		}
		close(g.open)
		wg.Wait()
		if s.appliedTimes("x") != 0 {
			t.Error("a refused entry was written")
		}
	})
}

func TestRequestsAreAdmittedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(context.Context, int, *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			time.Sleep(time.Second)
			return nil, nil
		}}
		w := start(t, s, func(c *Config) {
			c.SingleTable = true
			c.Limits.InFlight.MaxEntries = 10
			c.Limits.Batch.Concurrency = 1
		})
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range 10 {
			wg.Go(func() {
				wantApplied(t, w.Apply(within(t, time.Hour), sets(10)))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("%v", order)
			}
		}
	})
}

// covers: SNK-22, SNK-25
func TestATableThatDoesNotAnswerLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := pipeline.TableRef{Project: "p", Instance: "i", Table: "stuck"}
		g := newGate()
		s := &service{mutate: func(ctx context.Context, _ int, r *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if r.TableName == stuck.String() {
				return nil, g.wait(ctx)
			}
			return nil, nil
		}}
		w := start(t, s, func(c *Config) { c.Limits.InFlight.MaxEntries = 1000 })
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				entries := sets(300)
				for i := range entries {
					entries[i].Table = stuck
				}
				wantApplied(t, w.Apply(within(t, 250*time.Second), entries))
			})
		}
		synctest.Wait()
		if n := w.Stats().InFlightEntries; n != 500 {
			t.Errorf("the stuck table holds %d entries of 1000", n)
		}
		begin := time.Now()
		for range 20 {
			wantApplied(t, w.Apply(within(t, time.Minute), sets(600)))
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("another table waited %v", d)
		}
		time.Sleep(55 * time.Second)
		close(g.open)
		wg.Wait()
	})
}

func TestACallerThatLeavesGivesUpItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := &service{mutate: func(ctx context.Context, _ int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			return nil, g.wait(ctx)
		}}
		w := start(t, s, func(c *Config) { c.SingleTable = true; c.Limits.InFlight.MaxEntries = 2 })
		var wg sync.WaitGroup
		wg.Go(func() { wantApplied(t, w.Apply(within(t, time.Minute), sets(2))) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(within(t, time.Minute))
		wg.Go(func() {
			errs := w.Apply(ctx, []Entry{set("gone"), set("gone"), add("gone", "0123456789abcdef")})
			if !errors.Is(errs[0], ErrNotAdmitted) || errs[1] == nil || errs[2] == nil {
				t.Errorf("%v", errs)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := w.Stats().Waiting; n != 0 {
			t.Errorf("%d still wait", n)
		}
		close(g.open)
		wg.Wait()
		if s.appliedTimes("gone") != 0 {
			t.Error("what was withdrawn is written")
		}
	})
}
