package scanworker_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// A fault in the file is the same for row after row: a line when it is met, and one
// that counts.
func TestFailuresOfOneKindAreToldOnceAndCounted(t *testing.T) {
	h := newHarness(t, "emit: {id: 'row.cf.total < 50 ? row.cf.absent : row.cf.missing'}, onFailure: drop, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(60)
	h.plan(0, whole())
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Dropped != 60 || len(s.Failures) != 2 || s.Failures[0].Count != 50 || s.Failures[1].Count != 10 {
		t.Fatalf("%d, %d dropped: %+v", code, s.Dropped, s.Failures)
	}
	log := h.log.String()
	if n := strings.Count(log, "\n"); n != 4 || !strings.Contains(log, "no such key: missing") || !strings.Contains(log, "count=50") || !strings.Contains(log, "count=10") {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

func TestWhatEndsASplitIsNotLoggedRowByRow(t *testing.T) {
	h := newHarness(t, "emit: {id: row.cf.absent}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(60)
	h.plan(0, whole())
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeFailed || !strings.Contains(s.Reason.Error(), "no such key: absent") {
		t.Errorf("%d, %+v", code, s)
	}
	if h.log.String() != "" {
		t.Errorf("logged beside the task's own line:\n%s", h.log)
	}
}

// A plan is of one table's keys. The file's version that it was made for may come back,
// so the split is returned; it fails as any other that is leased and never moves.
func TestASplitOfAnotherTableIsReturnedUntilItsAttemptsAreUsedUp(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	moved := *h.cfg.Pipeline.Scans[0].Table
	moved.Instance = "other"
	h.cfg.Pipeline.Scans[0].Table = &moved
	h.start()
	want := "it was planned for table " + tableName + ", and the pipeline file (with BIGTABLE_PROJECT and BIGTABLE_INSTANCE) now says projects/my-project/instances/other/tables/orders"
	for i := range ledger.MaxFruitless {
		if code, s := h.deliver(h.task(0)); code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeReturned || !strings.Contains(s.Reason.Error(), want) {
			t.Fatalf("delivery %d: %d, %s, %v", i, code, s.Outcome, s.Reason)
		}
	}
	if s := h.split(0); !strings.Contains(s.LastError, want) || s.State != ledger.SplitOpen || len(h.sink.records) > 0 {
		t.Fatalf("%s, last error %q", s.State, s.LastError)
	}
	if code, _ := h.deliver(h.task(0)); code != http.StatusNoContent {
		t.Errorf("once more: %d", code)
	}
	if s := h.scan(); s.State != ledger.ScanFailed || !strings.Contains(s.Error, "leased 20 times without progress, last error: "+want) {
		t.Errorf("the scan is %s: %s", s.State, s.Error)
	}
}

func TestASplitGoesOnWhenItsTableIsTheFilesAgain(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	theirs := *h.cfg.Pipeline.Scans[0].Table
	moved := theirs
	moved.ID = "elsewhere"
	h.cfg.Pipeline.Scans[0].Table = &moved
	h.start()
	h.deliver(h.task(0))
	h.cfg.Pipeline.Scans[0].Table = &theirs
	h.start()
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeDone || len(h.sink.records) != 3 {
		t.Errorf("%d, %s, %d records", code, s.Outcome, len(h.sink.records))
	}
}

// Plans of before the table's name was kept.
func TestASplitWithoutATableGoesOn(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	if _, err := h.cfg.Ledger.Begin(t.Context(), "s", "all", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.cfg.Ledger.Plan(t.Context(), "s", ledger.Draft{Splits: [][]rowrange.Range{whole()}}); err != nil {
		t.Fatal(err)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeDone {
		t.Errorf("%d, %s, %v", code, s.Outcome, s.Reason)
	}
}

// A command that cancels does not publish the end: the next task of the scan does.
func TestAWorkerStopsAtItsNextCommitWhenItsScanIsCancelled(t *testing.T) {
	h := newHarness(t, "fetch: {maxRows: 1}, "+ids).withTable(emulator.Options{})
	h.cfg.CommitEvery = 1 // nanosecond: after each batch
	h.start()
	h.putRows(30)
	h.plan(0, whole())
	h.sink.before = func(ctx context.Context, records []relay.Record) []error {
		if records[0].Key == key(10) {
			if _, err := h.cfg.Ledger.Cancel(ctx, "s"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeVoid || len(h.sink.records) != 11 {
		t.Errorf("%d, %s, %v, after %d records", code, s.Outcome, s.Reason, len(h.sink.records))
	}
	if len(h.tasks) != 1 || len(h.done) != 1 || h.done[0].State != "failed" || h.done[0].Error != ledger.Cancelled {
		t.Errorf("%d tasks, announced %+v", len(h.tasks), h.done)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeVoid || len(h.done) != 1 {
		t.Errorf("its task again: %d, %s, announced %d times", code, s.Outcome, len(h.done))
	}
}
