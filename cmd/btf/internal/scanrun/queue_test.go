package scanrun

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func TestKindsOfFailuresAreAddedUpOverSplitsAndBounded(t *testing.T) {
	q := newQueue(t.Context())
	defer q.stop()
	for i := range 3 {
		var failures []scanworker.Failure
		for kind := range 12 {
			failures = append(failures, scanworker.Failure{What: "record cannot be delivered", Error: fmt.Sprintf("kind %d\x1b", kind), Count: int64(kind + i)})
		}
		q.report(t.Context(), scanworker.Summary{Outcome: scanworker.OutcomeDone, Failures: failures})
	}
	var out bytes.Buffer
	q.tellFailures(&out)
	told := out.String()
	if strings.Count(told, "\n") != mostFailures+1 || !strings.HasPrefix(told, `36 times: record cannot be delivered: kind 11\x1b`) || !strings.HasSuffix(told, "and 2 more kinds of failures\n") {
		t.Errorf("told\n%s", told)
	}
}

// If a scan has a limit, each split follows the one before. A process that dies between two
// splits takes the task of the next one along.
func TestWhatAProcessThatDiedHasLeftIsReadByTheOneThatWaits(t *testing.T) {
	watching(t, nil, func(w *watched) {
		if w.pass(2 * time.Second); w.queue.idle() {
			t.Error("nothing to deliver, and two splits are not finished")
		}
		w.queue.mu.Lock()
		n := len(w.queue.tasks)
		w.queue.mu.Unlock()
		if n != 2 {
			t.Errorf("%d tasks, want 2, each once", n)
		}
	})
	watching(t, nil, func(w *watched) {
		for i := range 2 {
			if _, err := w.lease(i, "elsewhere/12").Finish(t.Context(), ledger.Progress{Counts: ledger.Counts{Rows: 3}}); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(2 * time.Second)
		done, err := w.queue.run(1, nil, func(context.Context) {})
		if err != nil || done == nil || done.State != "done" || done.Rows != 6 || !w.queue.endedElsewhere() {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

func TestALedgerThatFallsSilentIsTold(t *testing.T) {
	watching(t, nil, func(w *watched) {
		w.ledger = ledger.New(downStore{}, "p", ledger.Options{})
		if told := w.pass(20 * time.Second); !strings.Contains(strings.Join(told, "\n"), "(the ledger does not answer: ") {
			t.Errorf("told %q", told)
		}
	})
}

// downStore never answers.
type downStore struct{ ledger.Store }

func (downStore) Get(ctx context.Context, _ ...ledger.Key) ([]ledger.Doc, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
