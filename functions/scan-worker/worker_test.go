package scanworker_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const ids = "emit: {id: rowKey}, to: {pubsub: {topic: out}}"

// covers: SC-01, SC-03
func TestEverySplitIsReadAndTheLastOneAnnouncesTheScan(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(25)
	h.plan(0, []rowrange.Range{{End: key(10)}}, []rowrange.Range{{Start: key(10), End: key(12)}, {Start: key(15)}})
	h.run()
	want := append(wantKeys(0, 12), wantKeys(15, 25)...)
	if got := h.sink.bodies(); !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	s := h.scan()
	if s.State != ledger.ScanDone || s.Counts != (ledger.Counts{Rows: 22, Records: 22}) || !s.Published {
		t.Errorf("scan %+v", s)
	}
	if len(h.done) != 1 || h.done[0].State != "done" || h.done[0].Rows != 22 || h.done[0].Splits != 2 {
		t.Errorf("announced %+v", h.done)
	}
	for i, sum := range h.summaries {
		if sum.Outcome != scanworker.OutcomeDone || sum.Fence != 1 || sum.Bytes == 0 {
			t.Errorf("task %d: %+v", i, sum)
		}
	}
}

// covers: SC-06
func TestARecordsIdIsTheSameInAReplayAndOnlyThere(t *testing.T) {
	h := newHarness(t, "forEach: '[1, 2]', emit: {id: rowKey}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(3)
	down := true
	h.sink.before = func(_ context.Context, records []relay.Record) []error {
		if !down {
			return nil
		}
		down = false
		h.sink.records = append(h.sink.records, records...) // it took them, and says it did not
		return slices.Repeat([]error{errors.New("down")}, len(records))
	}
	h.plan(0, whole())
	for range 2 {
		h.deliver(h.task(0))
	}
	counts := map[string]int{}
	for _, r := range h.sink.records {
		counts[r.ID()]++
	}
	if len(counts) != 6 {
		t.Errorf("%d ids for 6 records", len(counts))
	}
	for id, n := range counts {
		if n != 2 || len(id) != 32 {
			t.Errorf("id %q was sent %d times, want twice", id, n)
		}
	}
}

func TestWhatATaskIsAnswered(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	lease, err := h.cfg.Ledger.Acquire(t.Context(), ledger.Task{Scan: "s", Attempt: h.scan().Attempt}, "another")
	if err != nil {
		t.Fatal(err)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeHeld {
		t.Errorf("held by another: %d, %s", code, s.Outcome)
	}
	if err := lease.Release(t.Context(), ledger.Progress{}, ledger.Cause{}); err != nil {
		t.Fatal(err)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeDone {
		t.Errorf("free: %d, %s", code, s.Outcome)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeVoid {
		t.Errorf("done: %d, %s", code, s.Outcome)
	}
	other := h.task(0)
	other.Attempt = "of a plan that was not selected"
	if code, s := h.deliver(other); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeVoid {
		t.Errorf("unknown: %d, %s", code, s.Outcome)
	}
	if code := h.post([]byte("secret")); code != http.StatusNoContent || strings.Contains(h.log.String(), "secret") {
		t.Errorf("no task: %d, log %s", code, h.log)
	}
	if n := len(h.sink.records); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

func TestAScanThatTheFileNoLongerHasFails(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.plan(0, whole())
	gone := h.task(0)
	gone.Name = "gone"
	if code, s := h.deliver(gone); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeFailed {
		t.Errorf("%d, %s", code, s.Outcome)
	}
	if s := h.scan(); s.State != ledger.ScanFailed || !strings.Contains(s.Error, "it has: all") {
		t.Errorf("%s: %s", s.State, s.Error)
	}
}

// A worker that dies between its last commit and its message is made up for by the
// same task.
func TestWhatFollowsASplitIsPublishedWhenItsTaskComesAgain(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	h.publish = errors.New("down")
	if code, _ := h.deliver(h.task(0)); code != http.StatusServiceUnavailable {
		t.Errorf("answer %d, want a refusal", code)
	}
	h.publish = nil
	for range 2 {
		if code, _ := h.deliver(h.task(0)); code != http.StatusNoContent {
			t.Errorf("answer %d", code)
		}
	}
	if len(h.done) != 1 || len(h.sink.records) != 3 {
		t.Errorf("announced %d times, %d records", len(h.done), len(h.sink.records))
	}
}

// covers: SC-05, SC-17, SC-23, TST-04
func TestAFailedSinkGivesTheSplitBackWhereItStands(t *testing.T) {
	h := newHarness(t, "when: row.cf.total >= 15, emit: {id: rowKey}, fetch: {maxRows: 10}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(30)
	h.plan(0, whole())
	calls := 0
	h.sink.before = func(_ context.Context, records []relay.Record) []error {
		if calls++; calls == 2 {
			return slices.Repeat([]error{errors.New("the sink is down")}, len(records))
		}
		return nil
	}
	code, s := h.deliver(h.task(0))
	if code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeReturned {
		t.Errorf("%d, %s", code, s.Outcome)
	}
	split := h.split(0)
	if split.Position != key(19) || split.Holder != "" || split.LastError != "the sink is down" || split.Rows != 20 || split.Records != 5 {
		t.Errorf("split %+v", split)
	}
	if rest := split.Remaining(); len(rest) != 1 || rest[0].String() != "(k00019, *)" {
		t.Errorf("left to read: %v", rest)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Rows != 10 {
		t.Errorf("%d, %+v", code, s)
	}
	if got := h.sink.bodies(); !slices.Equal(got, wantKeys(15, 30)) {
		t.Errorf("sent %v", got)
	}
}

// covers: SC-05
func TestRowsThatYieldNothingMoveThePosition(t *testing.T) {
	h := newHarness(t, "when: 'false', emit: {id: rowKey}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(30)
	h.plan(0, whole())
	h.emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Cut: true, CutAfter: 20, Code: codes.PermissionDenied})
	if code, _ := h.deliver(h.task(0)); code != http.StatusServiceUnavailable {
		t.Errorf("answer %d", code)
	}
	if s := h.split(0); s.Position != key(19) || s.Records != 0 || s.Rows != 20 {
		t.Errorf("split %+v", s)
	}
}

// A filter that hides every row for longer than a slice must not start over each time.
func TestWhatAFilterHidesMovesThePositionToo(t *testing.T) {
	h := newHarness(t, `cells: {filter: 'value_regex_filter: "nothing"'}, to: {pubsub: {topic: out}}`).withTable(emulator.Options{})
	h.putRows(2000)
	h.plan(0, whole())
	h.emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Cut: true, CutAfter: 2, Code: codes.PermissionDenied})
	if code, _ := h.deliver(h.task(0)); code != http.StatusServiceUnavailable {
		t.Errorf("answer %d", code)
	}
	if s := h.split(0); s.Position <= key(500) || s.Rows != 0 {
		t.Errorf("position %q after %d rows: want what the service has told", s.Position, s.Rows)
	}
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeDone || len(h.sink.records) != 0 {
		t.Errorf("%d, %s, %d records", code, s.Outcome, len(h.sink.records))
	}
}

// covers: SC-08, TST-04
func TestASplitWhoseRestIsEmptyFinishesWithoutAStream(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, []rowrange.Range{{Start: key(0), End: key(2) + "\x00"}})
	lease, err := h.cfg.Ledger.Acquire(t.Context(), ledger.Task{Scan: "s", Attempt: h.scan().Attempt}, "w")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context(), ledger.Progress{Position: key(2)}, ledger.Cause{}); err != nil {
		t.Fatal(err)
	}
	calls := h.calls("ReadRows")
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeDone {
		t.Errorf("%d, %s", code, s.Outcome)
	}
	if n := calls(); n != 0 || h.scan().State != ledger.ScanDone {
		t.Errorf("%d streams were opened; the scan is %s", n, h.scan().State)
	}
}

// covers: SC-22
// issue-row: 11
func TestARangeThatEndsJustAfterAKeyIsResumedAfterThatKey(t *testing.T) {
	for _, from := range []int{0, 2} {
		for cut := 1; cut <= 3; cut++ {
			h := newHarness(t, ids).withTable(emulator.Options{})
			h.putRows(5)
			h.plan(0, []rowrange.Range{{Start: key(from), End: key(2) + "\x00"}, {Start: key(4)}})
			h.emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Cut: true, CutAfter: cut})
			if code, s := h.deliver(h.task(0)); code != http.StatusNoContent {
				t.Errorf("from %d, cut after %d: %d, %v", from, cut, code, s.Reason)
			}
			if got, want := h.sink.bodies(), append(wantKeys(from, 3), wantKeys(4, 5)...); !slices.Equal(got, want) {
				t.Errorf("from %d, cut after %d: sent %v, want %v", from, cut, got, want)
			}
		}
	}
}

// covers: SC-22, TST-04
// issue-row: 22, 24
func TestABrokenStreamIsResumedWithoutLossOrRepetition(t *testing.T) {
	for name, fault := range map[string]emulator.Fault{
		"UNAVAILABLE":                {},
		"ABORTED":                    {Code: codes.Aborted},
		"INTERNAL with RST_STREAM":   {Code: codes.Internal, Message: "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"},
		"INTERNAL with an early end": {Code: codes.Internal, Message: "unexpected EOF"},
		"INTERNAL with another text": {Code: codes.Internal, Message: "Received unexpected EOS on DATA frame from server"},
	} {
		h := newHarness(t, ids).withTable(emulator.Options{})
		h.putRows(350)
		h.plan(0, whole())
		fault.Method, fault.Count, fault.Cut, fault.CutAfter = "ReadRows", 2, true, 100
		h.emulator.Inject(fault)
		deliveries := 1
		for ; deliveries < 5; deliveries++ {
			if code, _ := h.deliver(h.task(0)); code == http.StatusNoContent {
				break
			}
		}
		// What the client does not take for a cut stream, the task's next delivery resumes.
		if want := map[string]int{"INTERNAL with another text": 3}[name]; deliveries != max(1, want) {
			t.Errorf("%s: %d deliveries", name, deliveries)
		}
		if got := h.sink.bodies(); !slices.Equal(got, wantKeys(0, 350)) {
			t.Errorf("%s: %d records", name, len(got))
		}
	}
}

// issue-row: 23
func TestAServerThatStallsDoesNotOutlastTheSlice(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	h.tasks = nil
	h.cfg.Slice = 100 * time.Millisecond
	h.start()
	h.emulator.Inject(emulator.Fault{Method: "ReadRows", Count: 1, Hang: true})
	code, s := h.deliver(h.task(0))
	if code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeReturned || len(h.tasks) != 0 {
		t.Errorf("%d, %s, %d tasks", code, s.Outcome, len(h.tasks))
	}
	if split := h.split(0); split.Holder != "" || !strings.Contains(split.LastError, "no row arrived within 100ms") {
		t.Errorf("split %+v", split)
	}
	h.cfg.Slice = scanworker.Slice
	h.start()
	h.tasks = append(h.tasks, h.task(0))
	if h.run(); !slices.Equal(h.sink.bodies(), wantKeys(0, 3)) {
		t.Errorf("sent %v", h.sink.bodies())
	}
}

// The official client tries again for as long as it may, and keeps why to itself.
func TestASliceInWhichBigtableIsDownSaysSo(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	h.cfg.Slice = 200 * time.Millisecond
	h.start()
	h.emulator.Inject(emulator.Fault{Method: "ReadRows", Code: codes.Unavailable, Message: "row k0000001 moves"})
	_, s := h.deliver(h.task(0))
	want := "no row arrived within 200ms: Bigtable last answered Unavailable"
	if s.Outcome != scanworker.OutcomeReturned || h.split(0).LastError != want {
		t.Errorf("%s, last error %q, want %q", s.Outcome, h.split(0).LastError, want)
	}
	if got := retry.Classify(s.Reason); got.Code != codes.Unavailable {
		t.Errorf("the reason is classified as %+v", got)
	}
}

func TestARefusedReadIsKnownByItsStatus(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.plan(0, whole())
	h.start()
	h.emulator.Inject(emulator.Fault{Method: "ReadRows", Code: codes.PermissionDenied, Message: "row k0000001"})
	_, s := h.deliver(h.task(0))
	if got := retry.Classify(s.Reason); s.Outcome != scanworker.OutcomeReturned || got.Code != codes.PermissionDenied || strings.Contains(s.Reason.Error(), "k0000001") {
		t.Errorf("%s: %v, classified as %+v", s.Outcome, s.Reason, got)
	}
}

func TestAScanThatTheServiceRefusesNamesTheFieldAndNoData(t *testing.T) {
	for text, want := range map[string]string{
		"Error in field 'cells_per_row_limit_filter' : argument must be > 0":    "InvalidArgument: the service refuses the scan: field cells_per_row_limit_filter: argument must be > 0",
		"Error in field 'row_ranges' : Error in element #0 : k0000001 is empty": "InvalidArgument: the service refuses the scan: field row_ranges: element 0",
		"row k0000001 is no row": "InvalidArgument: the service refuses the scan's filter or ranges",
	} {
		h := newHarness(t, ids).withTable(emulator.Options{})
		h.plan(0, whole())
		h.start()
		h.emulator.Inject(emulator.Fault{Method: "ReadRows", Code: codes.InvalidArgument, Message: text})
		_, s := h.deliver(h.task(0))
		if s.Outcome != scanworker.OutcomeFailed || !strings.HasSuffix(s.Reason.Error(), want) {
			t.Errorf("%s: %s: %v, want %s", text, s.Outcome, s.Reason, want)
		}
	}
}

// issue-row: 25
func TestARowThatCannotBeReadIsLeftOutOrFailsTheScan(t *testing.T) {
	for _, skip := range []bool{true, false} {
		policy := map[bool]string{true: "skip", false: "fail"}[skip]
		h := newHarness(t, "onLargeRow: "+policy+", "+ids).withTable(emulator.Options{Limits: emulator.Limits{RowBytes: 10_000}})
		h.putRows(9)
		for _, large := range []int{3, 4, 8} {
			h.put(key(large), "other:large", strings.Repeat("x", 20_000))
		}
		h.plan(0, whole())
		h.deliver(h.task(0))
		s := h.scan()
		if !skip {
			if s.State != ledger.ScanFailed || !strings.Contains(s.Error, "over the 256 MiB") || strings.Contains(s.Error, key(3)) {
				t.Errorf("%s: %s", s.State, s.Error)
			}
			if got := h.sink.bodies(); !slices.Equal(got, wantKeys(0, 3)) {
				t.Errorf("sent %v, want what comes before", got)
			}
			continue
		}
		if want := slices.Concat(wantKeys(0, 3), wantKeys(5, 8)); s.State != ledger.ScanDone || s.Dropped != 3 || !slices.Equal(h.sink.bodies(), want) {
			t.Errorf("%s, %+v, sent %v, want %v", s.State, s.Counts, h.sink.bodies(), want)
		}
		if log := h.log.String(); strings.Count(log, "row cannot be read") != 2 || !strings.Contains(log, "count=3") || strings.Contains(log, key(3)) {
			t.Errorf("log %s", log)
		}
	}
}

// issue-row: 26
func TestALargeCellIsReadBack(t *testing.T) {
	h := newHarness(t, "emit: {size: 'size(row.other.blob)'}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.put("k", "other:blob", strings.Repeat("x", 5<<20))
	h.plan(0, whole())
	h.deliver(h.task(0))
	if got := h.sink.bodies(); !slices.Equal(got, []string{`{"size":5242880}`}) {
		t.Errorf("sent %v", got)
	}
}

// covers: SC-16, SQL-13
func TestAFamilyThatDoesNotExistFailsTheScan(t *testing.T) {
	h := newHarness(t, "cells: {families: [cf, absent]}, "+ids).withTable(emulator.Options{})
	h.putRows(3)
	h.plan(0, whole())
	code, s := h.deliver(h.task(0))
	if code != http.StatusNoContent || s.Outcome != scanworker.OutcomeFailed {
		t.Errorf("%d, %s, %v", code, s.Outcome, s.Reason)
	}
	if scan := h.scan(); scan.State != ledger.ScanFailed || !strings.Contains(scan.Error, "NotFound") || len(h.done) != 1 {
		t.Errorf("%s: %s, announced %+v", scan.State, scan.Error, h.done)
	}
	// Keys alone ask for no family.
	h = newHarness(t, "cells: {keysOnly: true}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.put("a", "cf:x", "1", "a", "other:y", "2", "b", "other:y", "3")
	h.plan(0, whole())
	h.deliver(h.task(0))
	if got := h.sink.bodies(); !slices.Equal(got, []string{`{"rowKey":"a"}`, `{"rowKey":"b"}`}) {
		t.Errorf("sent %v", got)
	}
}

// covers: SQL-10, SQL-11, LKP-05
func TestARowIsVisibleOnlyByTheFamiliesThatAreRead(t *testing.T) {
	h := newHarness(t, "cells: {families: [cf]}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.put("a", "cf:status", "PAID", "a", "other:x", "hidden", "b", "other:x", "hidden")
	h.plan(0, whole())
	h.deliver(h.task(0))
	want := []string{`{"rowKey":"a","cells":[{"family":"cf","qualifier":"status","timestamp":"1970-01-01T00:00:00.001Z","value":"PAID"}]}`}
	if got := h.sink.bodies(); !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// covers: SC-20
func TestTheScansOwnProfileIsReadUnder(t *testing.T) {
	h := newHarness(t, "appProfile: boost, "+ids).withTable(emulator.Options{})
	h.putRows(1)
	h.plan(0, whole())
	// The emulator knows no profile of that name, and says so of it alone.
	if _, s := h.deliver(h.task(0)); s.Outcome != scanworker.OutcomeFailed || s.Reason == nil {
		t.Errorf("%s, %v: the profile was not asked for", s.Outcome, s.Reason)
	}
}

// covers: SC-21
func TestALimitCountsRowsOverSplitsInKeyOrder(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.putRows(9)
	h.plan(5, []rowrange.Range{{End: key(3)}}, []rowrange.Range{{Start: key(3), End: key(6)}}, []rowrange.Range{{Start: key(6)}})
	if code, s := h.deliver(h.task(2)); code != http.StatusNoContent || s.Outcome != scanworker.OutcomeVoid {
		t.Errorf("out of turn: %d, %s", code, s.Outcome)
	}
	h.run()
	if got := h.sink.bodies(); !slices.Equal(got, wantKeys(0, 5)) {
		t.Errorf("sent %v", got)
	}
	if s := h.scan(); s.State != ledger.ScanDone || s.Rows != 5 {
		t.Errorf("%s with %d rows", s.State, s.Rows)
	}
}

func TestAnEmptyTableIsAnEmptyResult(t *testing.T) {
	h := newHarness(t, ids).withTable(emulator.Options{})
	h.plan(0, whole())
	h.run()
	if s := h.scan(); s.State != ledger.ScanDone || s.Rows != 0 || len(h.done) != 1 {
		t.Errorf("%s with %d rows, announced %+v", s.State, s.Rows, h.done)
	}
}

func TestAnInstanceThatStopsHandsItsSplitOn(t *testing.T) {
	h := newHarness(t, "emit: {id: rowKey}, fetch: {maxRows: 10}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(1000)
	h.plan(0, whole())
	h.tasks = nil
	stopping, stop := context.WithCancel(t.Context())
	h.cfg.Stopping = stopping
	h.start()
	h.sink.before = func(context.Context, []relay.Record) []error { stop(); return nil }
	code, s := h.deliver(h.task(0))
	if code != http.StatusNoContent || s.Outcome != scanworker.OutcomeContinued || len(h.tasks) != 1 || s.Rows == 0 || s.Rows == 1000 {
		t.Errorf("%d, %s after %d rows, %d tasks", code, s.Outcome, s.Rows, len(h.tasks))
	}
	if split := h.split(0); split.Holder != "" || split.Rows != s.Rows || split.LastError != "" {
		t.Errorf("split %+v", split)
	}
	h.cfg.Stopping = t.Context()
	h.start()
	if h.run(); !slices.Equal(h.sink.bodies(), wantKeys(0, 1000)) {
		t.Errorf("%d records", len(h.sink.bodies()))
	}
}

// covers: SC-18
func TestPoliciesForRecordsThatCannotBeDelivered(t *testing.T) {
	for policy, want := range map[string]struct {
		state   ledger.ScanState
		bodies  []string
		dropped int64
		letters int
	}{
		"fail":        {ledger.ScanFailed, wantKeys(0, 2), 0, 0},
		"drop":        {ledger.ScanDone, append(wantKeys(0, 2), wantKeys(4, 5)...), 2, 0},
		"dead-letter": {ledger.ScanDone, append(wantKeys(0, 2), wantKeys(4, 5)...), 2, 2},
	} {
		h := newHarness(t, "onFailure: "+policy+", emit: {id: 'row.cf.total < 0 ? rowKey : rowKey'}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
		h.putRows(2)
		h.put(key(2), "cf:total", "bad", key(3), "cf:total", number(3), key(4), "cf:total", number(4))
		h.sink.before = func(_ context.Context, records []relay.Record) []error {
			errs := make([]error, len(records))
			for i, r := range records {
				if string(r.Body) == wantKeys(3, 4)[0] {
					errs[i] = &retry.Rejected{Reason: "too large"}
				}
			}
			return errs
		}
		h.plan(0, whole())
		if code, s := h.deliver(h.task(0)); code != http.StatusNoContent {
			t.Errorf("%s: %d, %v", policy, code, s.Reason)
		}
		s := h.scan()
		if s.State != want.state || s.Dropped != want.dropped || len(h.letters) != want.letters {
			t.Errorf("%s: %s (%s), %+v, %d letters", policy, s.State, s.Error, s.Counts, len(h.letters))
		}
		if got := h.sink.bodies(); policy != "fail" && !slices.Equal(got, want.bodies) {
			t.Errorf("%s: sent %v, want %v", policy, got, want.bodies)
		}
		if policy == "fail" && (!strings.Contains(s.Error, `scans.all.emit.id: cf:"total": the cell has 3 bytes`) || h.split(0).Rows != 2) {
			t.Errorf("fail: %s after %d rows", s.Error, h.split(0).Rows)
		}
		if want.letters == 2 {
			if a, b := h.letters[0], h.letters[1]; string(a.Data) != `{"rowKey":"k00002"}` || string(b.Data) != wantKeys(3, 4)[0] || a.Kind != "output" || a.Mapping != "all" || b.Table != tableName {
				t.Errorf("letters %s and %s", a.Data, b.Data)
			}
		}
	}
}

// covers: MET-12, MET-14
func TestTheInstrumentsAreTheReferencesAndNoMore(t *testing.T) {
	reader := sdk.NewManualReader()
	m, err := scanworker.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, "onFailure: drop, emit: {id: row.cf.total}, fetch: {maxRows: 10}, to: {pubsub: {topic: out}}").withTable(emulator.Options{})
	h.putRows(30)
	h.put(key(30), "cf:total", "bad")
	calls := 0
	h.sink.before = func(_ context.Context, records []relay.Record) []error {
		if calls++; calls == 2 {
			return slices.Repeat([]error{errors.New("down")}, len(records))
		}
		return nil
	}
	h.plan(0, whole())
	for range 3 {
		h.deliver(h.task(0))
	}
	for _, s := range h.summaries {
		m.Report(t.Context(), s)
	}
	want := map[string]int64{
		"btf.scan.rows.read{scan=all}": 31, "btf.scan.records.sent{scan=all}": 30, "btf.scan.records.dropped{scan=all}": 1,
		"btf.scan.splits.started{scan=all}": 1, "btf.scan.splits.assigned{scan=all}": 2, "btf.scan.splits.returned{scan=all}": 1,
	}
	if got := functest.Readings(t, reader); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Rows that cannot be read are met while records that cannot be sent are given up: a
// line for each kind, and one that counts. (With -race.)
func TestFailuresOfReadingAndOfSendingAreNotedSideBySide(t *testing.T) {
	h := newHarness(t, "onLargeRow: skip, onFailure: drop, fetch: {maxRows: 2}, "+ids).withTable(emulator.Options{Limits: emulator.Limits{RowBytes: 10_000}})
	h.putRows(60)
	for i := 1; i < 60; i += 2 {
		h.put(key(i), "other:large", strings.Repeat("x", 20_000))
	}
	h.sink.before = func(_ context.Context, records []relay.Record) []error {
		return slices.Repeat([]error{&retry.Rejected{Reason: "no"}}, len(records))
	}
	h.plan(0, whole())
	if code, s := h.deliver(h.task(0)); code != http.StatusNoContent || s.Dropped != 60 {
		t.Errorf("%d, %d of 60 dropped, %v", code, s.Dropped, s.Reason)
	}
	if log := h.log.String(); strings.Count(log, "cannot be") != 4 || strings.Count(log, "count=30") != 2 {
		t.Errorf("want two lines for each kind:\n%s", log)
	}
}
