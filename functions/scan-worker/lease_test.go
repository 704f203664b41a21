package scanworker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// slowTable has n rows and takes a while for each. It reads one range, (k, *) or all.
type slowTable struct {
	n    int
	each time.Duration
	err  error // instead of rows
}

func (s *slowTable) ReadRows(ctx context.Context, rows bigtable.RowSet, f func(bigtable.Row) bool, _ ...bigtable.ReadOption) error {
	if s.err != nil {
		return s.err
	}
	var ranges []bigtable.RowRange
	for _, r := range rows.(bigtable.RowRangeList) {
		ranges = append(ranges, r)
	}
	for i := range s.n {
		if !slices.ContainsFunc(ranges, func(r bigtable.RowRange) bool { return r.Contains(key(i)) }) {
			continue
		}
		select {
		case <-time.After(s.each):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		row := bigtable.Row{"cf": {{Row: key(i), Column: "cf:total", Value: []byte(number(i))}}}
		if !f(row) {
			return nil
		}
	}
	return nil
}

func (h *harness) withSlowTable(s *slowTable) *harness {
	h.cfg.Table = func(context.Context, *pipeline.Scan) (scanworker.Table, error) { return s, nil }
	h.start()
	return h
}

func TestASliceOf5SecondsFinishesARangeOf60ByContinuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 600, each: 100 * time.Millisecond})
		h.cfg.Slice = 5 * time.Second
		h.start()
		h.plan(0, whole())
		h.run()
		if got := h.sink.bodies(); !slices.Equal(got, wantKeys(0, 600)) {
			t.Errorf("%d records, want each of 600 rows once", len(got))
		}
		if n := len(h.summaries); n < 12 || n > 14 {
			t.Errorf("%d tasks, want about 60 s in slices of 5", n)
		}
		for _, s := range h.summaries {
			if s.Duration > 6*time.Second {
				t.Errorf("a task took %s", s.Duration)
			}
		}
		if s := h.scan(); s.State != ledger.ScanDone || s.Rows != 600 || len(h.done) != 1 {
			t.Errorf("%s with %d rows, announced %d times", s.State, s.Rows, len(h.done))
		}
	})
}

// covers: SC-06
func TestAWorkerPausedPastItsLeaseCannotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 20, each: time.Millisecond})
		h.plan(0, whole())
		h.tasks = nil
		paused := make(chan struct{})
		first := true
		h.sink.before = func(context.Context, []relay.Record) []error {
			if first {
				first = false
				close(paused)
				time.Sleep(3 * time.Minute) // the whole process, deaf to its context
			}
			return nil
		}
		var code int
		var waiting sync.WaitGroup
		waiting.Go(func() { code, _ = h.deliver(h.task(0)) })
		<-paused
		time.Sleep(time.Minute)
		if code, s := h.deliver(h.task(0)); code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeHeld {
			t.Errorf("after a minute: %d, %s: the lease is not over", code, s.Outcome)
		}
		time.Sleep(31 * time.Second)
		if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeDone || s.Rows != 20 {
			t.Errorf("after the lease: %d, %s, %d rows", code, s.Outcome, s.Rows)
		}
		before := *h.split(0)
		waiting.Wait()
		after := *h.split(0)
		if code != http.StatusServiceUnavailable {
			t.Errorf("the worker that was paused answers %d, want a refusal", code)
		}
		if fmt.Sprint(before) != fmt.Sprint(after) || after.Fence != 2 || after.Rows != 20 {
			t.Errorf("the split was %+v and became %+v", before, after)
		}
		if s := h.scan(); s.Rows != 20 || len(h.done) != 1 {
			t.Errorf("the scan counts %d rows, announced %d times", s.Rows, len(h.done))
		}
	})
}

// covers: SC-25
func TestASinkSlowerThanALeaseIsCutOffInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 20, each: time.Millisecond})
		h.plan(0, whole())
		began := time.Now()
		h.sink.before = func(ctx context.Context, records []relay.Record) []error {
			<-ctx.Done()
			return slices.Repeat([]error{context.Cause(ctx)}, len(records))
		}
		code, s := h.deliver(h.task(0))
		if code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeReturned || !errors.Is(s.Reason, relay.ErrOvertaken) {
			t.Errorf("%d, %s, %v", code, s.Outcome, s.Reason)
		}
		if took := time.Since(began); took != ledger.LeaseTime {
			t.Errorf("sending ended after %s, want the lease's %s", took, ledger.LeaseTime)
		}
		if s := h.split(0); s.Holder != "" || s.Position != "" {
			t.Errorf("split %+v", s)
		}
	})
}

func TestASplitThatNeverMovesFailsAfterTwentyTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{err: status.Error(codes.PermissionDenied, "secret")})
		h.plan(0, []rowrange.Range{{End: key(5)}}, []rowrange.Range{{Start: key(5)}})
		h.run()
		s := h.scan()
		if s.State != ledger.ScanFailed || s.Failed != 2 || !strings.Contains(s.Error, "leased 20 times without progress, last error: reading: reading table orders: PermissionDenied") {
			t.Errorf("%s, %d splits failed: %s", s.State, s.Failed, s.Error)
		}
		if len(h.done) != 1 || h.done[0].State != "failed" || strings.Contains(s.Error+h.log.String(), "secret") {
			t.Errorf("announced %+v; log %s", h.done, h.log)
		}
	})
}

// covers: SC-06, SC-23
func TestTasksRedeliveredReorderedAndDuplicatedMakeTheSameResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 200, each: 200 * time.Millisecond})
		h.cfg.Slice = 3 * time.Second
		h.start()
		var splits [][]rowrange.Range
		for i := range 10 {
			splits = append(splits, []rowrange.Range{{Start: key(20 * i), End: key(20 * (i + 1))}})
		}
		h.plan(0, splits...)
		// Every task three times, the last first, delivered by four workers.
		h.tasks = slices.Concat(h.tasks, h.tasks, h.tasks)
		slices.Reverse(h.tasks)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(h.run)
		}
		workers.Wait()
		h.run()
		if got := sorted(h.sink.bodies()); !slices.Equal(got, wantKeys(0, 200)) {
			t.Errorf("%d records, want each of 200 rows once: no worker died", len(got))
		}
		if s := h.scan(); s.State != ledger.ScanDone || s.Counts != (ledger.Counts{Rows: 200, Records: 200}) {
			t.Errorf("%s, %+v", s.State, s.Counts)
		}
		if len(h.done) < 1 {
			t.Error("the end was not announced")
		}
	})
}

// A finished split whose worker died before it told what follows: what follows cannot
// be told now either, so the task comes back, and is counted as such.
func TestAFinishedSplitIsVoidOnlyOnceWhatFollowsIsTold(t *testing.T) {
	h := newHarness(t, "to: {log: {}}")
	h.plan(0, nil)
	h.cfg.Done = publisherFunc(func() error { return errors.New("the topic is down") })
	h.start()
	if code, s := h.deliver(h.task(0)); code == http.StatusNoContent || s.Outcome != scanworker.OutcomeReturned {
		t.Fatalf("the last split: %d, %s", code, s.Outcome)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeReturned || s.Reason == nil {
		t.Errorf("its task again: %d, %s (%v)", code, s.Outcome, s.Reason)
	}
	h.cfg.Done = h
	h.start()
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeVoid || len(h.done) != 1 {
		t.Errorf("with the topic up: %d, %s, %d events", code, s.Outcome, len(h.done))
	}
}

// publisherFunc is a topic that answers every message alike.
type publisherFunc func() error

func (f publisherFunc) Publish(context.Context, ...any) error { return f() }
