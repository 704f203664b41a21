package scanrun

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// queue stands for the topics of a scan in one process: tasks that are published
// are delivered to the worker until it acknowledges them.
type queue struct {
	stopping context.Context // ends with the command, and when the scan is finished
	stop     context.CancelFunc
	*results               // what the functions say of the deliveries
	wake     chan struct{} // holds one; there is a task

	mu    sync.Mutex
	tasks [][]byte
	busy  int // tasks that workers have
}

func newQueue(ctx context.Context) *queue {
	q := &queue{wake: make(chan struct{}, 1)}
	q.stopping, q.stop = context.WithCancel(ctx)
	q.results = &results{stop: q.stop}
	return q
}

// Publish implements scanjob.Publisher.
func (q *queue) Publish(_ context.Context, messages ...any) error {
	for _, m := range messages {
		if done, ok := m.(task.ScanDone); ok {
			q.finish(&done)
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

func (q *queue) put(body []byte) {
	q.mu.Lock()
	q.tasks = append(q.tasks, body)
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// idle reports whether there is nothing to deliver, and nothing being delivered.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks) == 0 && q.busy == 0
}

// ask delivers a request to the planner, with the scan's id as the message's.
func (q *queue) ask(ctx context.Context, planner http.Handler, id string, r task.ScanRequest) error {
	body, err := task.Encode(r)
	if err != nil {
		return err
	}
	if status := deliverTo(ctx, planner, id, body); status != http.StatusNoContent {
		return fmt.Errorf("the scan could not be planned: %w", cmp.Or(q.refusal(), fmt.Errorf("status %d", status)))
	}
	return nil
}

// run delivers tasks to the worker, n at a time, until the scan is finished or the command stops,
// and calls tick several times a second. The error is the reason if something else ended it.
func (q *queue) run(n int, worker http.Handler, tick func(context.Context)) (*task.ScanDone, error) {
	defer q.stop()
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() { q.work(worker) })
	}
	ticker := time.NewTicker(terminal.BarPace)
	defer ticker.Stop()
	for q.stopping.Err() == nil {
		select {
		case <-ticker.C:
			tick(q.stopping)
		case <-q.stopping.Done():
		}
	}
	workers.Wait()
	return q.ended()
}

// redelivery is waited before a task that was refused is delivered again.
var redelivery = retry.Backoff{Initial: 200 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}

func (q *queue) work(worker http.Handler) {
	failures := 0
	for {
		body, ok := q.next()
		if !ok {
			return
		}
		// Not the command's context: a task that is under way commits and releases.
		status := deliverTo(context.Background(), worker, "task", body)
		again := status != http.StatusNoContent
		if again {
			q.put(body)
		}
		q.mu.Lock()
		q.busy--
		q.mu.Unlock()
		if !again {
			failures = 0
			continue
		}
		failures++
		_ = retry.Sleep(q.stopping, redelivery.Delay(failures, 0.5)) // next sees whether the queue stops
	}
}

// next waits for a task.
func (q *queue) next() ([]byte, bool) {
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
		q.busy++
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
