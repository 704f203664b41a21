package scanrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// watched is a scan of two splits that is being watched, on a simulated clock.
type watched struct {
	*watch
	t   *testing.T
	out bytes.Buffer
}

// killed returns the name in leases of a process that was killed just now.
func killed(t *testing.T) ledger.Holder {
	t.Helper()
	if !process.IsCertain() {
		t.Skip("this system does not tell for certain whether a process has died")
	}
	return functest.Killed(t, process.Of)
}

// watching runs a test with a scan of two splits that nothing was done of.
func watching(t *testing.T, probe func(context.Context) error, test func(*watched)) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
		if _, err := l.Begin(t.Context(), "s", "ids", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: [][]rowrange.Range{{{Start: "a", End: "b"}}, {{Start: "b"}}}}); err != nil {
			t.Fatal(err)
		}
		w := &watched{t: t, watch: &watch{ledger: l, id: "s", local: true, queue: newQueue(t.Context()), probe: probe}}
		defer w.queue.stop()
		if err := w.begin(t.Context(), &w.out); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

func (w *watched) lease(index int, holder ledger.Holder) *ledger.Lease {
	w.t.Helper()
	scan, err := w.ledger.Scan(w.t.Context(), "s")
	if err != nil {
		w.t.Fatal(err)
	}
	lease, err := w.ledger.Acquire(w.t.Context(), ledger.Task{Scan: "s", Attempt: scan.Attempt, Index: index}, holder)
	if err != nil {
		w.t.Fatal(err)
	}
	return lease
}

// pass ticks for a time and returns the lines that were told meanwhile.
func (w *watched) pass(d time.Duration) []string {
	for range d / terminal.BarPace {
		time.Sleep(terminal.BarPace)
		w.tick(w.t.Context())
	}
	told := strings.Split(strings.TrimSuffix(w.out.String(), "\n"), "\n")
	w.out.Reset()
	return told
}

func TestWithoutATerminalALineComesEverMoreSeldom(t *testing.T) {
	watching(t, nil, func(w *watched) {
		lease := w.lease(0, process.Self())
		var at []time.Duration
		for began, row := time.Now(), 0; row < 600; row++ {
			if err := lease.Commit(t.Context(), ledger.Progress{Position: fmt.Sprintf("a%05d", row), Counts: ledger.Counts{Rows: int64(row)}}); err != nil {
				t.Fatal(err)
			}
			if told := w.pass(time.Second); told[0] != "" {
				at = append(at, time.Since(began))
			}
		}
		want := "[2s 6s 14s 30s 1m2s 2m2s 3m2s 4m2s 5m2s 6m2s 7m2s 8m2s 9m2s]"
		if got := fmt.Sprint(at); got != want {
			t.Errorf("told at %s, want %s", got, want)
		}
	})
}

func TestWhatWorkersMeetIsToldBesideTheProgress(t *testing.T) {
	watching(t, nil, func(w *watched) {
		w.pass(9 * time.Second) // the next line is due at 14 s
		w.queue.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeReturned, Reason: fmt.Errorf("reading table orders: Unavailable")})
		if told := w.pass(2 * time.Second); len(told) != 1 || !strings.HasSuffix(told[0], "0 of 2 splits  0 rows  0 rows/s  (reading table orders: Unavailable)") {
			t.Errorf("at once: %q", told)
		}
		w.queue.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeContinued, Reason: fmt.Errorf("no row arrived within 45s")})
		if told := w.pass(2 * time.Second); len(told) != 1 || !strings.HasSuffix(told[0], "(no row arrived within 45s)") {
			t.Errorf("of a slice that read nothing: %q", told)
		}
		w.queue.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeContinued})
		if told := w.pass(2 * time.Minute); strings.Contains(told[0], "45s") {
			t.Errorf("after it went well: %q", told)
		}
	})
}

func TestAScanThatStandsStillSaysHowBigtableIs(t *testing.T) {
	probes, answer := 0, status.Error(codes.Unavailable, "row k1 is secret")
	watching(t, func(context.Context) error { probes++; return answer }, func(w *watched) {
		told := strings.Join(w.pass(time.Minute), "\n")
		want := regexp.MustCompile(`\(nothing is delivered for 1\ds: Bigtable answers a probe with Unavailable\)`)
		if !want.MatchString(told) || strings.Contains(told, "secret") || strings.Contains(told, "left") {
			t.Errorf("told\n%s", told)
		}
		if probes < 2 || probes > 6 {
			t.Errorf("%d probes in a minute", probes)
		}
		answer = nil
		told = strings.Join(w.pass(time.Minute), "\n")
		if !strings.Contains(told, "(nothing is delivered for ") || strings.Contains(told, "probe") {
			t.Errorf("when Bigtable answers: told\n%s", told)
		}
	})
}

func TestSplitsOfTheDeadAreFreedAndThoseOfOthersTold(t *testing.T) {
	name := killed(t)
	watching(t, nil, func(w *watched) {
		w.lease(0, name)
		other := w.lease(1, "elsewhere/12")
		w.queue.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeHeld})
		told := w.pass(3 * time.Second)
		if !regexp.MustCompile(`\(split 1 is leased by elsewhere/12, for 1m2\ds more unless it commits\)$`).MatchString(told[0]) {
			t.Errorf("told %q", told)
		}
		if fence := w.lease(0, process.Self()).Fence(); fence != 3 {
			t.Errorf("the split of the dead is taken under fence %d, want 3: its lease was broken", fence)
		}
		if err := other.Commit(t.Context(), ledger.Progress{}); err != nil {
			t.Errorf("the other has lost its split: %v", err)
		}
	})
}

func TestALeaseInADatabaseIsWaitedFor(t *testing.T) {
	name := killed(t)
	watching(t, nil, func(w *watched) {
		w.local = false // its holder may be on any machine
		lease := w.lease(0, name)
		w.queue.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeHeld})
		w.pass(9 * time.Second)
		if err := lease.Commit(t.Context(), ledger.Progress{}); err != nil {
			t.Errorf("the lease was broken: %v", err)
		}
	})
}

func TestWhatCannotGetBetterEndsTheScan(t *testing.T) {
	for want, reasons := range map[bool][]error{
		true: {
			status.Error(codes.PermissionDenied, ""), status.Error(codes.Unauthenticated, ""),
			&fs.PathError{Op: "write", Path: "out", Err: syscall.ENOSPC},
		},
		false: {status.Error(codes.Unavailable, ""), errors.New("something"), ledger.ErrUnavailable},
	} {
		for _, reason := range reasons {
			q := newQueue(t.Context())
			q.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeReturned, Reason: fmt.Errorf("doing: %w", reason)})
			if ended := q.stopping.Err() != nil; ended != want {
				t.Errorf("%v ends the scan: %t, want %t", reason, ended, want)
			}
			q.stop()
			if _, err := q.run(1, nil, func(context.Context) {}); errors.Is(err, reason) != want {
				t.Errorf("%v: ended with %v", reason, err)
			}
		}
	}
}
