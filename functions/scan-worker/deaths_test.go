package scanworker_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// mortal is a process that can be killed: from then on it reaches neither ledger nor sink.
type mortal struct {
	h    *harness
	dead atomic.Bool
}

// reborn starts another process over the same ledger.
func (m *mortal) reborn(store ledger.Store) {
	m.dead.Store(false)
	life := &storetest.Faulty{Store: store, Next: func(bool) storetest.Fault {
		if m.dead.Load() {
			return storetest.FaultCrash
		}
		return storetest.FaultNone
	}}
	m.h.store = life
	m.h.start()
}

// An outage that lasts longer than all backoffs: nothing was decided about the rows.
func TestAnOutageOfAnHourFailsNoSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{n: 20, each: time.Millisecond, err: status.Error(codes.Unavailable, "secret")}
		h := newHarness(t, ids).withSlowTable(table)
		h.plan(0, whole())
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(10 * time.Second) {
			if code, s := h.deliver(h.task(0)); code != http.StatusServiceUnavailable || s.Outcome != scanworker.OutcomeReturned {
				t.Fatalf("%d, %s, %v", code, s.Outcome, s.Reason)
			}
		}
		if s := h.split(0); s.State != ledger.SplitOpen || s.LastError != "reading: reading table orders: Unavailable" {
			t.Errorf("%s, last error %q", s.State, s.LastError)
		}
		table.err = nil
		if h.run(); h.scan().State != ledger.ScanDone || !slices.Equal(h.sink.bodies(), wantKeys(0, 20)) {
			t.Errorf("%s, %v", h.scan().State, h.sink.bodies())
		}
	})
}

// The sink's outage is as little a verdict.
func TestAnOutageOfTheSinkFailsNoSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 20, each: time.Millisecond})
		h.plan(0, whole())
		down := true
		h.sink.before = func(_ context.Context, records []relay.Record) []error {
			if !down {
				return nil
			}
			return slices.Repeat([]error{status.Error(codes.Unavailable, "")}, len(records))
		}
		for range 3 * ledger.MaxFruitless {
			h.deliver(h.task(0))
		}
		down = false
		if h.run(); h.scan().State != ledger.ScanDone {
			t.Errorf("%s: %s", h.scan().State, h.scan().Error)
		}
	})
}

func TestAWorkerKilledAgainAndAgainGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 600, each: 100 * time.Millisecond})
		store := h.store
		m := &mortal{h: h}
		h.sink.before = func(_ context.Context, records []relay.Record) []error {
			if m.dead.Load() {
				return slices.Repeat([]error{storetest.ErrCrash}, len(records))
			}
			return nil
		}
		h.plan(0, whole())
		position := ""
		for i := range 25 {
			m.reborn(store)
			kill := time.AfterFunc(2*time.Second, func() { m.dead.Store(true) })
			h.deliver(h.task(0))
			kill.Stop()
			m.reborn(store)
			if s := h.split(0); s.State != ledger.SplitOpen || s.Position <= position {
				t.Fatalf("after kill %d the split is %s at %q, and was at %q: %s", i, s.State, s.Position, position, s.LastError)
			} else {
				position = s.Position
			}
			time.Sleep(ledger.LeaseTime)
		}
		if h.run(); h.scan().State != ledger.ScanDone {
			t.Errorf("%s: %s", h.scan().State, h.scan().Error)
		}
	})
}

// Killed before any row comes: that says nothing about the rows, however often it happens.
func TestKillsBeforeAnyRowComesFailNoSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 20, each: time.Hour})
		store := h.store
		m := &mortal{h: h}
		h.plan(0, whole())
		for range 40 {
			m.reborn(store)
			time.AfterFunc(time.Second, func() { m.dead.Store(true) })
			h.deliver(h.task(0))
			time.Sleep(ledger.LeaseTime)
		}
		m.reborn(store)
		if s := h.split(0); s.State != ledger.SplitOpen || s.Deaths != ledger.ManyDeaths {
			t.Errorf("the split is %s after %d deaths: %s", s.State, s.Deaths, s.LastError)
		}
	})
}

// killedBy delivers the task of one split until it is finished, to processes that die when
// too much comes at once, and returns how often one has died.
func killedBy(t *testing.T, h *harness, tooMuch func([]relay.Record) bool) (deaths int) {
	t.Helper()
	store := h.store
	m := &mortal{h: h}
	h.options.Lease = 20 * time.Millisecond
	h.sink.before = func(_ context.Context, records []relay.Record) []error {
		if tooMuch(records) {
			m.dead.Store(true)
		}
		if m.dead.Load() {
			return slices.Repeat([]error{storetest.ErrCrash}, len(records))
		}
		return nil
	}
	for range 100 {
		m.reborn(store)
		_, s := h.deliver(h.task(0))
		if m.dead.Load() {
			deaths++
		} else if s.Outcome == scanworker.OutcomeHeld { // by the dead one
			time.Sleep(h.options.Lease)
		} else if !errors.Is(s.Reason, relay.ErrOvertaken) {
			return deaths
		}
	}
	t.Fatal("it does not end")
	return 0
}

func TestRowsThatDoNotFitTogetherAreReadInSmallerSteps(t *testing.T) {
	h := newHarness(t, "fetch: {maxRows: 64}, "+ids).withTable(emulator.Options{})
	h.putRows(64)
	h.plan(0, whole())
	deaths := killedBy(t, h, func(records []relay.Record) bool { return len(records) > 10 })
	// Three at 64 rows, then 32 and 16; 8 fit.
	if s := h.scan(); deaths != 5 || s.State != ledger.ScanDone || !slices.Equal(h.sink.bodies(), wantKeys(0, 64)) {
		t.Errorf("%d deaths; the scan is %s with %d records: %s", deaths, s.State, len(h.sink.records), s.Error)
	}
}

func TestARowThatFitsIntoNoWorkerFailsTheScanAndSaysWhy(t *testing.T) {
	h := newHarness(t, "fetch: {maxRows: 64}, "+ids).withTable(emulator.Options{})
	h.putRows(64)
	h.plan(0, whole())
	deaths := killedBy(t, h, func(records []relay.Record) bool {
		return slices.ContainsFunc(records, func(r relay.Record) bool { return r.Key == key(0) })
	})
	// Three at 64 rows, then 32, 16, 8, 4, 2, and three times 1.
	s := h.scan()
	if deaths != 11 || s.State != ledger.ScanFailed || !strings.Contains(s.Error, "11 workers died while they read the same rows, the last 3 of them one row at a time") ||
		!strings.Contains(s.Error, "memory") || len(h.done) != 1 {
		t.Errorf("%d deaths; the scan is %s, announced %d times: %s", deaths, s.State, len(h.done), s.Error)
	}
}

// A slice ends in the middle of a read that yields no row: the next begins where the
// service has said that this one has come.
func TestAFilterThatHidesMoreThanASliceEndsTheScan(t *testing.T) {
	h := newHarness(t, `cells: {filter: 'value_regex_filter: "nothing"'}, to: {pubsub: {topic: out}}`).withTable(emulator.Options{})
	h.putRows(5000)
	h.plan(0, whole())
	h.cfg.Slice = 500 * time.Millisecond
	h.start()
	h.emulator.Inject(emulator.Fault{Method: "ReadRows", Cut: true, CutAfter: 2, Hang: true}) // 1,024 rows
	for i := 0; ; i++ {
		_, s := h.deliver(h.task(0))
		if s.Outcome == scanworker.OutcomeDone {
			break
		}
		if i == 20 || s.Outcome != scanworker.OutcomeContinued && s.Outcome != scanworker.OutcomeReturned {
			t.Fatalf("slice %d: %s, %v, at %q", i, s.Outcome, s.Reason, h.split(0).Position)
		}
	}
	if s := h.scan(); s.State != ledger.ScanDone {
		t.Errorf("%s: %s", s.State, s.Error)
	}
}

// While two versions are rolled out, or after one was rolled back, a task may be one that
// only the other understands: it must come again.
func TestATaskOfAnotherVersionIsRefused(t *testing.T) {
	h := newHarness(t, ids)
	for _, body := range []string{
		`{"v":2,"scan":"s","name":"all","attempt":"a","split":0}`,
		`{"v":1,"scan":"s","name":"all","attempt":"a","split":0,"region":"eu"}`,
	} {
		if code := h.post([]byte(body)); code != http.StatusServiceUnavailable {
			t.Errorf("%s is answered %d, want a refusal", body, code)
		}
		if s := h.summaries[len(h.summaries)-1]; s.Outcome != scanworker.OutcomeReturned || s.Reason == nil {
			t.Errorf("%s: reported as %+v", body, s)
		}
	}
	if code := h.post([]byte(`no task`)); code != http.StatusNoContent {
		t.Errorf("what is no task of any version is answered %d", code)
	}
	var log functest.Log
	s := h.summaries[len(h.summaries)-1]
	scanworker.Log(slog.New(slog.NewTextHandler(&log, nil)), "orders")(t.Context(), s)
	if s.Outcome != scanworker.OutcomeMalformed || s.Message != "m" || s.Reason == nil ||
		!strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "messageId=m") || strings.Contains(log.String(), "no task") {
		t.Errorf("reported as %+v, logged as %s", s, &log)
	}
}

// Tasks at once share what the process may hold, and none waits for ever.
func TestTasksAtOnceShareTheMemoryOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, ids).withSlowTable(&slowTable{n: 80, each: time.Millisecond})
		h.cfg.Memory = relay.NewMemory(1) // byte: one row at a time, of all tasks
		h.start()
		var splits [][]rowrange.Range
		for i := range 4 {
			splits = append(splits, []rowrange.Range{{Start: key(20 * i), End: key(20 * (i + 1))}})
		}
		most := 0
		h.sink.before = func(_ context.Context, records []relay.Record) []error {
			most = max(most, len(records))
			return nil
		}
		h.plan(0, splits...)
		var tasks sync.WaitGroup
		for i := range splits {
			tasks.Go(func() { h.deliver(h.task(i)) })
		}
		tasks.Wait()
		if h.scan().State != ledger.ScanDone || len(h.sink.records) != 80 || most != 1 {
			t.Errorf("%s, %d records, %d at most at a time", h.scan().State, len(h.sink.records), most)
		}
	})
}
