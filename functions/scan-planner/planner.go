// Package scanplanner guarantees that a scan request becomes one plan: splits that hold
// every row key asked for exactly once, written before any of them is told to a worker,
// and the same whenever the request comes again or its planner dies. A request that
// cannot be planned is a scan that has failed and says why.
package scanplanner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Budget is how long one delivery may take: under the service's timeout (290 s),
// which is under the subscription's ack deadline (300 s).
const Budget = 270 * time.Second

// Config is what the function needs. All of it is required.
type Config struct {
	Pipeline *pipeline.Pipeline
	Ledger   *ledger.Ledger
	// Sample makes one attempt to sample the keys of a scan's table.
	Sample func(ctx context.Context, scan *pipeline.Scan) ([]btrpc.Sample, error)
	Tasks  scanjob.Publisher // to the workers
	Done   scanjob.Publisher // completion events
	Budget time.Duration
	Logger *slog.Logger
	// Report is called once with the outcome of each delivery, also of one that is no request.
	Report func(context.Context, Summary)
}

// Summary says what became of one request.
type Summary struct {
	Scan    string // its id; empty where the delivery has none
	Name    string
	State   ledger.ScanState
	Samples int // calls that sampled keys: 1 for a plan that is made, 0 for one that was found
	Splits  int
	Tasks   int // published
	Lapsed  int // splits of any scan that were failed because no task will come for them
	// Malformed is why the delivery asks for no scan at all; it is acknowledged.
	Malformed error
	// Rejected is why the scan can never be planned as it is asked for: it has failed,
	// and the request is acknowledged.
	Rejected error
	Refused  error // nil: acknowledged
}

type function struct{ cfg Config }

// New returns the function as an HTTP handler of Pub/Sub deliveries. It fails if the pipeline
// has no scans.
func New(cfg Config) (http.Handler, error) {
	if len(cfg.Pipeline.Scans) == 0 {
		return nil, errors.New("the pipeline has no scans")
	}
	f := &function{cfg: cfg}
	return push.Handler(push.Config{Budget: cfg.Budget, Logger: cfg.Logger}, f.deliver), nil
}

// deliver is what happens to one delivery.
func (f *function) deliver(ctx context.Context, d *push.Delivery) error {
	var s Summary
	if s.Refused = f.handle(ctx, d, &s); s.Refused == nil {
		f.failLapsed(ctx, &s)
	}
	f.cfg.Report(ctx, s)
	return s.Refused
}

func (f *function) handle(ctx context.Context, d *push.Delivery, s *Summary) error {
	if d.Message.ID == "" {
		s.Malformed = cmp.Or(d.Malformed, errors.New("the delivery has no message id, which would be the scan's"))
		return nil
	}
	req, bad := request(d)
	s.Scan, s.Name = d.Message.ID, shorten(req.Scan)
	if bad == nil && req.Scheduled {
		s.Scan, bad = scheduledID(f.cfg.Pipeline, req.Scan, d.Message)
	}
	scan, err := f.cfg.Ledger.Begin(ctx, s.Scan, s.Name, keep(d.Message.Data))
	if err != nil {
		return err
	}
	// What the scan is, its first request has said.
	if first, err := task.DecodeScanRequest(scan.Request); err == nil {
		req = first
	}
	if scan.State == ledger.ScanPlanning {
		if scan, err = f.plan(ctx, scan, req, bad, s); err != nil {
			return err
		}
	} else if err := f.sameTable(scan, req); err != nil {
		return err
	}
	return f.publish(ctx, scan, req, s)
}

// sameTable refuses to tell workers of a plan for another table than the file's: the
// version of the file that it was made for may come back.
func (f *function) sameTable(scan *ledger.Scan, req task.ScanRequest) error {
	def, err := scanjob.Find(f.cfg.Pipeline, req.Scan, req.Options)
	if err != nil || scan.Finished() {
		return nil // the workers say what is wrong with it
	}
	if err := scanjob.SameTable(scan.Table, def); err != nil {
		return fmt.Errorf("scan %q: %w", scan.ID, err)
	}
	return nil
}

// request reads what is asked for. The error says why that can never be done.
func request(d *push.Delivery) (task.ScanRequest, error) {
	if d.Malformed != nil {
		return task.ScanRequest{}, d.Malformed
	}
	return task.DecodeScanRequest(d.Message.Data)
}

// shorten bounds what the ledger and the log are given of a name that need not be one.
func shorten(name string) string {
	const most = 63 // bytes; the file's are shorter
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return name
}

// keep returns what the ledger can hold of a request.
func keep(data []byte) json.RawMessage {
	const most = 64 << 10
	if len(data) > most || !json.Valid(data) {
		return nil
	}
	return data
}

// plan writes the splits, or why there are none. bad is why the request cannot be read.
func (f *function) plan(ctx context.Context, scan *ledger.Scan, req task.ScanRequest, bad error, s *Summary) (*ledger.Scan, error) {
	draft, err := f.draft(ctx, req, bad, s)
	switch {
	case retry.IsRejected(err):
		s.Rejected = err
		return f.cfg.Ledger.Reject(ctx, scan.ID, err)
	case err != nil:
		return nil, err
	}
	return f.cfg.Ledger.Plan(ctx, scan.ID, draft)
}

// draft decides what to read in which parts. Its error is a *retry.Rejected if the scan can
// never be planned as it is asked for.
func (f *function) draft(ctx context.Context, req task.ScanRequest, bad error, s *Summary) (ledger.Draft, error) {
	if bad != nil {
		return ledger.Draft{}, &retry.Rejected{Err: bad}
	}
	def, err := scanjob.Find(f.cfg.Pipeline, req.Scan, req.Options)
	if err != nil {
		return ledger.Draft{}, &retry.Rejected{Err: err}
	}
	d := ledger.Draft{Limit: def.Limit, Table: scanjob.TableOf(def), Definition: scanjob.Definition(def)}
	if req.Limit > 0 {
		d.Limit = req.Limit
	}
	ranges, err := readable(def, req)
	if err != nil {
		return d, &retry.Rejected{Err: err}
	}
	if len(ranges) > 0 {
		bundles, err := f.splits(ctx, def, ranges, req, s)
		if err != nil {
			return d, err
		}
		for _, b := range bundles {
			b.sections[len(b.sections)-1].End = "" // the split's: a long key need not stand there twice
			d.Splits, d.Sections = append(d.Splits, b.ranges), append(d.Sections, b.sections)
		}
	}
	return d, nil
}

// readable returns the ranges to read of a scan that can be read.
func readable(def *pipeline.Scan, req task.ScanRequest) ([]rowrange.Range, error) {
	ranges, err := rowsOf(def, req.Rows)
	if err != nil {
		return nil, err
	}
	if _, err := mapping.ReadFilter(def); err != nil {
		return nil, err
	}
	if _, err := mapping.CompileEmit(def); err != nil {
		return nil, err
	}
	return ranges, nil
}

// splits cuts the ranges where the table's tablets are.
func (f *function) splits(ctx context.Context, def *pipeline.Scan, ranges []rowrange.Range, req task.ScanRequest, s *Summary) ([]*bundle, error) {
	samples, err := f.sample(ctx, def, s)
	if err != nil {
		return nil, err
	}
	groups := group(cut(ranges, samples), req.Parallelism)
	if req.Parallelism > len(groups) {
		f.cfg.Logger.WarnContext(ctx, "more parallelism is asked for than the table's tablets allow: a tablet cannot be split",
			"scan", req.Scan, "parallelism", req.Parallelism, "splits", len(groups))
	}
	return groups, nil
}

// sampling is waited between two attempts to sample.
var sampling = retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}

const sampleAttempts = 5

// sample asks for the table's tablets. What the table or the application profile is
// refused for is the request's fault; a missing permission is not, and can be given.
func (f *function) sample(ctx context.Context, def *pipeline.Scan, s *Summary) ([]btrpc.Sample, error) {
	for failures := 1; ; failures++ {
		samples, err := f.cfg.Sample(ctx, def)
		if err == nil {
			s.Samples++
			return samples, nil
		}
		err = fmt.Errorf("sampling the keys of table %s: %w", def.Table.Name, err)
		class := retry.Classify(err)
		switch {
		case class.Verdict == retry.VerdictMissing || class.Verdict == retry.VerdictRejected:
			return nil, &retry.Rejected{Err: unreadable(def, class.Code)}
		case class.Verdict != retry.VerdictTransient || failures == sampleAttempts:
			return nil, err
		}
		if err := retry.Sleep(ctx, max(class.Delay, sampling.Delay(failures, 0.5))); err != nil {
			return nil, err
		}
	}
}

// unreadable says that the service refuses the table or the profile that it is asked for.
func unreadable(def *pipeline.Scan, code codes.Code) error {
	if def.AppProfile == "" {
		return fmt.Errorf("sampling the keys of table %s (%s): %s; check its name, project and instance", def.Table.Name, scanjob.TableOf(def), code)
	}
	return fmt.Errorf("sampling the keys of table %s (%s), application profile %q: %s; check both in the pipeline file",
		def.Table.Name, scanjob.TableOf(def), def.AppProfile, code)
}

// unfinished returns the splits that workers are to be told of. Where there are none, it
// reads the scan again: one that was cancelled just now has no task that would tell of it.
func (f *function) unfinished(ctx context.Context, scan *ledger.Scan) (*ledger.Scan, []ledger.Task, error) {
	if scan.Finished() {
		return scan, nil, nil
	}
	tasks, err := f.cfg.Ledger.Unfinished(ctx, scan)
	if err == nil && len(tasks) == 0 {
		scan, err = f.cfg.Ledger.Scan(ctx, scan.ID)
	}
	return scan, tasks, err
}

// publishedAtOnce bounds the messages of one call.
const publishedAtOnce = 1000

// publish sends the task of each split that is not finished. If all are, it announces the
// end of the scan.
func (f *function) publish(ctx context.Context, scan *ledger.Scan, req task.ScanRequest, s *Summary) error {
	scan, tasks, err := f.unfinished(ctx, scan)
	if err != nil {
		return err
	}
	s.State, s.Splits = scan.State, scan.Splits
	switch {
	case scan.CompletionDue():
		return scanjob.Announce(ctx, f.cfg.Ledger, f.cfg.Done, scan)
	case scan.Finished():
		return nil
	}
	messages := make([]any, len(tasks))
	for i, t := range tasks {
		messages[i] = scanjob.Task(t, scan.Name, req.Options)
	}
	for len(messages) > 0 {
		n := min(publishedAtOnce, len(messages))
		if err := f.cfg.Tasks.Publish(ctx, messages[:n]...); err != nil {
			return err
		}
		s.Tasks += n
		messages = messages[n:]
	}
	return nil
}
