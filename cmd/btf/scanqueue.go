package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// scanQueue stands for the topics of a scan in one process: tasks that are published
// are delivered to the worker until it acknowledges them.
type scanQueue struct {
	planner, worker http.Handler
	stopping        context.Context // ends with the command, and when the scan is finished
	stop            context.CancelFunc
	rows            atomic.Int64 // read in this process
	held            atomic.Int64 // deliveries that another process's lease has kept off

	mu     sync.Mutex
	tasks  [][]byte
	wake   chan struct{} // holds one; there is a task
	reason error         // why a task was last returned; nil once one went well
	done   *task.ScanDone
}

func newScanQueue(ctx context.Context) *scanQueue {
	q := &scanQueue{wake: make(chan struct{}, 1)}
	q.stopping, q.stop = context.WithCancel(ctx)
	return q
}

// Publish implements scanjob.Publisher.
func (q *scanQueue) Publish(_ context.Context, messages ...any) error {
	for _, m := range messages {
		if done, ok := m.(task.ScanDone); ok {
			q.mu.Lock()
			q.done = &done
			q.mu.Unlock()
			q.stop()
			continue
		}
		body, err := task.Encode(m)
		if err != nil {
			return err
		}
		q.put(body)
	}
	return nil
}

func (q *scanQueue) put(body []byte) {
	q.mu.Lock()
	q.tasks = append(q.tasks, body)
	q.mu.Unlock()
	q.signal()
}

func (q *scanQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *scanQueue) report(_ context.Context, s scanworker.Summary) {
	q.rows.Add(s.Rows)
	if s.Outcome == scanworker.OutcomeHeld {
		q.held.Add(1)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch s.Outcome {
	case scanworker.OutcomeReturned:
		q.reason = s.Reason
	case scanworker.OutcomeDone, scanworker.OutcomeContinued:
		q.reason = nil
	}
}

// trouble says what the workers wait for, if something.
func (q *scanQueue) trouble() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.held.Swap(0); n > 0 && q.reason == nil {
		return errHeld
	}
	return q.reason
}

var errHeld = errors.New("another process has splits leased, for 90 s at most if it has died")

// ask delivers a request to the planner, with the scan's id as the message's.
func (q *scanQueue) ask(ctx context.Context, id string, r task.ScanRequest) error {
	body, err := task.Encode(r)
	if err != nil {
		return err
	}
	if status := deliverTo(context.WithoutCancel(ctx), q.planner, id, body); status != http.StatusNoContent {
		return fmt.Errorf("the scan could not be planned (status %d): is Bigtable reachable?", status)
	}
	return nil
}

// run delivers tasks with n workers until the scan is finished or the command stops,
// and tells show now and then.
func (q *scanQueue) run(n int, show func(trouble error)) *task.ScanDone {
	defer q.stop()
	var workers sync.WaitGroup
	for range n {
		workers.Go(q.work)
	}
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for q.stopping.Err() == nil {
		select {
		case <-ticker.C:
			show(q.trouble())
		case <-q.stopping.Done():
		}
	}
	workers.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done
}

// again is waited before a task that was refused is delivered again.
var again = retry.Backoff{Initial: 200 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}

func (q *scanQueue) work() {
	failures := 0
	for {
		body, ok := q.next()
		if !ok {
			return
		}
		// Not the command's context: a task that is under way commits and releases.
		status := deliverTo(context.Background(), q.worker, "task", body)
		if status == http.StatusNoContent {
			failures = 0
			continue
		}
		failures++
		q.put(body)
		timer := time.NewTimer(again.Delay(failures, 0.5))
		select {
		case <-timer.C:
		case <-q.stopping.Done():
			timer.Stop()
		}
	}
}

// next waits for a task.
func (q *scanQueue) next() ([]byte, bool) {
	for {
		select {
		case <-q.stopping.Done():
			return nil, false
		case <-q.wake:
		}
		q.mu.Lock()
		if len(q.tasks) == 0 {
			q.mu.Unlock()
			continue
		}
		body := q.tasks[0]
		q.tasks = q.tasks[1:]
		more := len(q.tasks) > 0
		q.mu.Unlock()
		if more {
			q.signal()
		}
		return body, q.stopping.Err() == nil
	}
}

// deliverTo sends one message to a function as Pub/Sub does, and returns its answer.
func deliverTo(ctx context.Context, h http.Handler, id string, data []byte) int {
	body, err := json.Marshal(map[string]any{
		"message":      map[string]any{"data": data, "messageId": id, "publishTime": time.Now().UTC().Format(time.RFC3339Nano)},
		"subscription": "projects/local/subscriptions/local",
	})
	if err != nil {
		return http.StatusInternalServerError
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://local/", io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return http.StatusInternalServerError
	}
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	w := &statusWriter{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(w, r)
	return w.status
}

// statusWriter keeps a response's status.
type statusWriter struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (w *statusWriter) Header() http.Header { return w.header }

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) { w.status = status }
