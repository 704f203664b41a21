package scanrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// results is what planner and worker have said of the deliveries in this process.
type results struct {
	rows, records atomic.Int64 // read and delivered in this process
	stop          func()       // ends the deliveries

	mu        sync.Mutex
	refused   error     // why the planner has refused the request
	reason    error     // what a worker last met; nil once one went well
	fatal     error     // what ends the command: no other attempt is of use
	heldAt    time.Time // when another's lease has last kept a delivery off
	failures  []scanworker.Failure
	done      *task.ScanDone
	elsewhere bool // another process has told of the scan's end
}

// finish takes the end of the scan, which this process has told of.
func (r *results) finish(done *task.ScanDone) {
	r.mu.Lock()
	r.done = done
	r.mu.Unlock()
	r.stop()
}

// ended returns the end of the scan and the error that has ended the command; each is nil if
// there is none.
func (r *results) ended() (*task.ScanDone, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done, r.fatal
}

// refusal returns why the planner has refused the request, if it has.
func (r *results) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// end takes a scan that another process has finished.
func (r *results) end(scan *ledger.Scan) {
	r.mu.Lock()
	if r.done == nil {
		done := scanjob.Done(scan)
		r.done, r.elsewhere = &done, true
	}
	r.mu.Unlock()
	r.stop()
}

func (r *results) endedElsewhere() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.elsewhere
}

// planned takes the planner's reports.
func (r *results) planned(_ context.Context, s scanplanner.Summary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = s.Refused
}

// report takes the worker's reports.
func (r *results) report(_ context.Context, s scanworker.Summary) {
	r.rows.Add(s.Rows)
	r.records.Add(s.Records)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range s.Failures {
		r.addFailure(f)
	}
	switch s.Outcome {
	case scanworker.OutcomeHeld:
		r.heldAt = time.Now()
	case scanworker.OutcomeReturned:
		if r.reason = s.Reason; isFinal(s.Reason) {
			r.fatal = s.Reason
			r.stop()
		}
	case scanworker.OutcomeDone, scanworker.OutcomeContinued:
		r.reason = s.Reason // of a slice that is over: why it has not moved
	}
}

// addFailure adds up what the policy has taken, over all splits.
func (r *results) addFailure(f scanworker.Failure) {
	for i := range r.failures {
		if known := &r.failures[i]; known.What == f.What && known.Error == f.Error {
			known.Count += f.Count
			return
		}
	}
	r.failures = append(r.failures, f)
}

// mostFailures bounds the kinds of failures that are told.
const mostFailures = 10

// tellFailures says what the policy has taken, a line for each kind.
func (r *results) tellFailures(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.failures, func(a, b scanworker.Failure) int { return cmp.Compare(b.Count, a.Count) })
	for i, f := range r.failures {
		if i == mostFailures {
			fmt.Fprintf(out, "and %s of failures\n", terminal.Plural(len(r.failures)-i, "more kind"))
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

// obstacle says whether others' leases keep deliveries off, and what a worker last met.
func (r *results) obstacle() (keptOff bool, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.heldAt) < 2*redelivery.Max, r.reason
}

// failed returns the end of a scan that has failed, if it has.
func (r *results) failed() *task.ScanDone {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done != nil && r.done.State == string(ledger.ScanFailed) {
		return r.done
	}
	return nil
}
