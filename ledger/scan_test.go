package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

func TestARequestThatComesAgainFindsItsScan(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		request := json.RawMessage(`{"prefixes":["b3JkZXI="]}`)
		first, err := l.Begin(t.Context(), "s", "archive", request)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		again, err := l.Begin(t.Context(), "s", "archive", nil)
		if err != nil || again.State != ledger.ScanPlanning || string(again.Request) != string(request) || !again.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("%+v, %v, want %+v", again, err, first)
		}
		scan, err := l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(1, 1)})
		if err != nil || scan.PlannedAt.Sub(scan.CreatedAt) != time.Hour {
			t.Fatalf("planned %v after the request, %v, want an hour", scan.PlannedAt.Sub(scan.CreatedAt), err)
		}
		if again, err = l.Begin(t.Context(), "s", "archive", request); err != nil || again.Attempt != scan.Attempt {
			t.Errorf("the scan has plan %q, %v, want %q", again.Attempt, err, scan.Attempt)
		}
	})
}

func TestARejectedScanHasFailedAndSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		if _, err := l.Begin(t.Context(), "s", "archive", nil); err != nil {
			t.Fatal(err)
		}
		scan, err := l.Reject(t.Context(), "s", errors.New(strings.Repeat("é", 1000)))
		if err != nil || scan.State != ledger.ScanFailed || scan.Error != strings.Repeat("é", 512) || scan.FinishedAt.IsZero() {
			t.Fatalf("%+v, %v, want failed with the error cut to 1,024 bytes", scan, err)
		}
		if scan, err = l.Plan(t.Context(), "s", ledger.Draft{Splits: pieces(1, 1)}); err != nil || scan.State != ledger.ScanFailed || scan.Splits != 0 {
			t.Errorf("planned all the same: %+v, %v", scan, err)
		}
	})
}

func TestAScanWithAPlanIsNotRejected(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		planned(t, l, 1, 0)
		if scan, err := l.Reject(t.Context(), "s", errors.New("x")); err != nil || scan.State != ledger.ScanRunning {
			t.Errorf("%+v, %v, want running", scan, err)
		}
	})
}

// The store need not have deleted what is past its expiry.
func TestWhatIsKeptLongEnoughIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, l *ledger.Ledger) {
		scan := planned(t, l, 2, 0)
		time.Sleep(ledger.Retention - time.Hour)
		finish(t, l, task(scan, 0), 10)
		time.Sleep(time.Hour)
		if _, err := l.Scan(t.Context(), "s"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("the scan: %v, want %v", err, ledger.ErrNotFound)
		}
		if scans, err := l.Scans(t.Context()); err != nil || len(scans) != 0 {
			t.Errorf("%d scans, %v, want none", len(scans), err)
		}
		if err := acquireErr(t, l, task(scan, 1)); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("the split: %v, want %v", err, ledger.ErrNotFound)
		}
		seen := 0
		if err := l.Splits(t.Context(), scan, func(*ledger.Split) error { seen++; return nil }); err != nil || seen != 1 {
			t.Errorf("%d splits, %v, want the one that was changed since", seen, err)
		}
		if again, err := l.Begin(t.Context(), "s", "archive", nil); err != nil || again.State != ledger.ScanPlanning {
			t.Errorf("begun again: %+v, %v, want a new scan", again, err)
		}
	})
}

func TestScansAreListedWithTheirState(t *testing.T) {
	l := ledger.New(storetest.NewMemory(), "p", ledger.Options{})
	planned(t, l, 1, 0)
	if _, err := l.Begin(t.Context(), "other", "archive", nil); err != nil {
		t.Fatal(err)
	}
	scans, err := l.Scans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]ledger.ScanState)
	for _, s := range scans {
		states[s.ID] = s.State
	}
	if len(scans) != 2 || states["s"] != ledger.ScanRunning || states["other"] != ledger.ScanPlanning {
		t.Errorf("scans %v", states)
	}
}

func TestLogsShowNoRowKeys(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	log.Info("x", "scan", &ledger.Scan{ID: "s", Request: json.RawMessage(`"secret"`)},
		"split", &ledger.Split{Ranges: []rowrange.Range{rowrange.Prefix("secret")}, Position: "secret", Task: ledger.Task{Index: 7}})
	if text := out.String(); strings.Contains(text, "secret") || !strings.Contains(text, "split.index=7") || !strings.Contains(text, "scan.requestBytes=8") {
		t.Errorf("logged %q", text)
	}
}
