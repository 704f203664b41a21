package scanrun

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// queue stands for the topics of a scan in one process: tasks that are published
// are delivered to the worker until it acknowledges them.
type queue struct {
	planner, worker http.Handler
	stopping        context.Context // ends with the command, and when the scan is finished
	stop            context.CancelFunc
	rows, records   atomic.Int64 // read and delivered in this process

	mu        sync.Mutex
	tasks     [][]byte
	busy      int           // tasks that workers have
	wake      chan struct{} // holds one; there is a task
	refused   error         // why the planner has refused the request
	reason    error         // what a worker last met; nil once one went well
	fatal     error         // what ends the command: no other attempt is of use
	heldAt    time.Time     // when another's lease has last kept a delivery off
	failures  []scanworker.Failure
	done      *task.ScanDone
	elsewhere bool // another process has told of the scan's end
}

func newQueue(ctx context.Context) *queue {
	q := &queue{wake: make(chan struct{}, 1)}
	q.stopping, q.stop = context.WithCancel(ctx)
	return q
}

// Publish implements scanjob.Publisher.
func (q *queue) Publish(_ context.Context, messages ...any) error {
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

// end takes a scan that another process has finished.
func (q *queue) end(scan *ledger.Scan) {
	q.mu.Lock()
	if q.done == nil {
		done := scanjob.Done(scan)
		q.done, q.elsewhere = &done, true
	}
	q.mu.Unlock()
	q.stop()
}

func (q *queue) endedElsewhere() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.elsewhere
}

// planned takes the planner's reports.
func (q *queue) planned(_ context.Context, s scanplanner.Summary) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = s.Refused
}

// report takes the worker's reports.
func (q *queue) report(_ context.Context, s scanworker.Summary) {
	q.rows.Add(s.Rows)
	q.records.Add(s.Records)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range s.Failures {
		q.addFailure(f)
	}
	switch s.Outcome {
	case scanworker.OutcomeHeld:
		q.heldAt = time.Now()
	case scanworker.OutcomeReturned:
		if q.reason = s.Reason; isFinal(s.Reason) {
			q.fatal = s.Reason
			q.stop()
		}
	case scanworker.OutcomeDone, scanworker.OutcomeContinued:
		q.reason = s.Reason // of a slice that is over: why it has not moved
	}
}

// addFailure adds up what the policy has taken, over all splits.
func (q *queue) addFailure(f scanworker.Failure) {
	for i := range q.failures {
		if known := &q.failures[i]; known.What == f.What && known.Error == f.Error {
			known.Count += f.Count
			return
		}
	}
	q.failures = append(q.failures, f)
}

// mostFailures bounds the kinds of failures that are told.
const mostFailures = 10

// tellFailures says what the policy has taken, a line for each kind.
func (q *queue) tellFailures(out io.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	slices.SortStableFunc(q.failures, func(a, b scanworker.Failure) int { return cmp.Compare(b.Count, a.Count) })
	for i, f := range q.failures {
		if i == mostFailures {
			fmt.Fprintf(out, "and %s of failures more\n", terminal.Plural(len(q.failures)-i, "kind"))
			return
		}
		fmt.Fprintf(out, "%d times: %s: %s\n", f.Count, f.What, terminal.Escape(f.Error))
	}
}

// isFinal reports whether an error is one that asking again does not better: a service
// has said that it will not serve this caller or that there is no such thing (a table
// that is missing fails its scan, so this is a topic), or a file of this machine cannot
// be written. It would only use up the attempts after which a split has failed.
func isFinal(err error) bool {
	var file *fs.PathError
	code := retry.Classify(err).Code
	return code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.NotFound || errors.As(err, &file)
}

// trouble says whether others' leases keep deliveries off, and what a worker last met.
func (q *queue) trouble() (keptOff bool, reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.heldAt) < 2*redelivery.Max, q.reason
}

// ask delivers a request to the planner, with the scan's id as the message's.
func (q *queue) ask(ctx context.Context, id string, r task.ScanRequest) error {
	body, err := task.Encode(r)
	if err != nil {
		return err
	}
	if status := deliverTo(ctx, q.planner, id, body); status != http.StatusNoContent {
		q.mu.Lock()
		defer q.mu.Unlock()
		return fmt.Errorf("the scan could not be planned: %w", cmp.Or(q.refused, fmt.Errorf("status %d", status)))
	}
	return nil
}

// failed returns the end of a scan that has failed, if it has.
func (q *queue) failed() *task.ScanDone {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done != nil && q.done.State == string(ledger.ScanFailed) {
		return q.done
	}
	return nil
}

// run delivers tasks with n workers until the scan is finished or the command stops,
// and calls tick several times a second. The error is what has ended it, if something.
func (q *queue) run(n int, tick func(context.Context)) (*task.ScanDone, error) {
	defer q.stop()
	var workers sync.WaitGroup
	for range n {
		workers.Go(q.work)
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
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done, q.fatal
}

// redelivery is waited before a task that was refused is delivered again.
var redelivery = retry.Backoff{Initial: 200 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}

func (q *queue) work() {
	failures := 0
	for {
		body, ok := q.next()
		if !ok {
			return
		}
		// Not the command's context: a task that is under way commits and releases.
		status := deliverTo(context.Background(), q.worker, "task", body)
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
