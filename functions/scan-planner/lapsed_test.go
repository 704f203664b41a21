package scanplanner_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// The worker was not deployed until its tasks had expired: the scan ends, and says why.
func TestASplitWhoseTaskHasExpiredFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlanner(t)
		p.ask("old", `{"scan": "all"}`)
		p.ask("local", `{"scan": "all"}`)
		local := p.scan("local")
		if _, err := p.ledger().BeginRun(t.Context(), "command", "all", nil, ledger.Run{Holder: "a"}, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.ledger().Plan(t.Context(), "command", ledger.Draft{Splits: [][]rowrange.Range{{{}}}}); err != nil {
			t.Fatal(err)
		}
		p.ask("limited", `{"scan": "some"}`)
		// One split of the second scan is read meanwhile.
		time.Sleep(10 * 24 * time.Hour)
		for i := range 3 {
			lease, err := p.ledger().Acquire(t.Context(), ledger.Task{Scan: "local", Attempt: local.Attempt, Index: i}, "worker")
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context(), ledger.Progress{}, ledger.Cause{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(scanplanner.Silence - 10*24*time.Hour - time.Minute)
		p.ask("early", `{"scan": "boosted"}`)
		if s := p.scan("old"); s.State != ledger.ScanRunning {
			t.Fatalf("before its time: %s, %s", s.State, s.Error)
		}
		// Who has looked does not look again for a day.
		time.Sleep(time.Hour)
		p.ask("sooner", `{"scan": "boosted"}`)
		if s := p.scan("old"); s.State != ledger.ScanRunning {
			t.Fatalf("looked twice in a day: %s", s.State)
		}
		time.Sleep(24 * time.Hour)
		p.done = nil
		if code := p.ask("new", `{"scan": "boosted"}`); code != http.StatusNoContent {
			t.Fatalf("answered %d", code)
		}
		want := "3 of 3 splits failed, the first of them split 0: its task has expired: for 14 days no worker has taken it"
		if s := p.scan("old"); s.State != ledger.ScanFailed || s.Error != want || !s.Published {
			t.Errorf("%s: %q, published: %t", s.State, s.Error, s.Published)
		}
		if s := p.scan("limited"); s.State != ledger.ScanFailed {
			t.Errorf("of the scan with a limit: %s", s.State)
		}
		for _, id := range []string{"local", "command", "early", "new"} {
			if s := p.scan(id); s.State != ledger.ScanRunning {
				t.Errorf("%s is %s: %s", id, s.State, s.Error)
			}
		}
		if s := p.summaries[len(p.summaries)-1]; s.Lapsed != 4 || len(p.done) != 2 {
			t.Errorf("%d splits failed, %d events", s.Lapsed, len(p.done))
		}
	})
}
