package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// scanning is what the workers tell while the demo scans.
type scanning struct {
	done chan task.ScanDone // holds one

	mu      sync.Mutex
	workers map[int]bool // that have read
	rows    int64
	changed func(rows int) // nil where nobody looks
}

func (s *scanning) add(worker int, summary scanworker.Summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if summary.Fence > 0 {
		s.workers[worker] = true
	}
	s.rows += summary.Rows
	if s.changed != nil {
		s.changed(int(s.rows))
	}
}

func (s *scanning) finish(done task.ScanDone) {
	select {
	case s.done <- done:
	default: // said before
	}
}

func (s *scanning) begin(changed func(rows int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers, s.rows, s.changed = map[int]bool{}, 0, changed
}

// end has scans that come later, while the demo is held, change nothing.
func (s *scanning) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = nil
}

func (s *scanning) workersSeen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// cutKeys returns the keys that cut rows into n parts of about the same size.
func cutKeys(rows map[string]cells, n int) []string {
	keys := slices.Sorted(maps.Keys(rows))
	var cuts []string
	for i := 1; i < n; i++ {
		cuts = append(cuts, keys[i*len(keys)/n])
	}
	return cuts
}

// scanned is what has come of the scan.
type scanned struct {
	equal, splits, workers int
	took                   time.Duration // from the request to the completion event
}

// scan asks for the example's scan, waits until it is finished and compares what has
// arrived at its topic with the events.
func (d *Demo) scan(ctx context.Context) (out scanned, differences, err error) {
	p, events := d.flights.Pipeline, d.flights.events
	scan := p.Scans[0]
	bar := terminal.NewCounter(d.stderr, "scanned", len(d.flights.rows))
	d.scanning.begin(bar.Set)
	began := time.Now()
	id, err := request(ctx, d.local, p.Name, task.ScanRequest{Version: task.Version, Scan: scan.Name, Parallelism: workers * scanrun.SplitsPerWorker})
	if err != nil {
		return out, nil, err
	}
	var done task.ScanDone
	select {
	case done = <-d.scanning.done:
	case <-ctx.Done():
		return out, nil, fmt.Errorf("waiting for scan %s: %w", id, context.Cause(ctx))
	}
	// The last task tells of itself after it has published that event.
	if err := d.local.Push(pipeline.TopicScanTasks.Of(p.Name)).Idle(ctx); err != nil {
		return out, nil, err
	}
	d.scanning.end()
	bar.End()
	if done.Scan != id || done.State != string(ledger.ScanDone) {
		return out, nil, fmt.Errorf("scan %s of %s is %s: %s", done.Scan, id, done.State, done.Error)
	}
	out = scanned{splits: done.Splits, workers: d.scanning.workersSeen(), took: time.Since(began)}
	expected, err := expectedRecords(id, events)
	if err != nil {
		return out, nil, err
	}
	out.equal, differences = compareRecords(expected, d.local.Cloud.Published(localdeploy.TopicName(scan.To.PubSub.Topic)))
	return out, differences, nil
}

// request publishes a request and returns its message id, which is the scan's.
func request(ctx context.Context, l *localdeploy.Deployment, pipelineName string, r task.ScanRequest) (string, error) {
	body, err := task.Encode(r)
	if err != nil {
		return "", err
	}
	topic := l.Client.Publisher(pipeline.TopicScanRequests.Of(pipelineName))
	defer topic.Stop()
	id, err := topic.Publish(ctx, &pubsub.Message{Data: body}).Get(ctx)
	if err != nil {
		return "", fmt.Errorf("asking for scan %s: %w", r.Scan, err)
	}
	return id, nil
}

// fields are a record's, or an event's: texts, and numbers as they are written.
type fields map[string]any

func readFields(text []byte) (fields, error) {
	var f fields
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return f, d.Decode(&f)
}

// expectedRecords says, by its id, what record the scan makes of each event's row:
// nothing of the pipeline is asked.
func expectedRecords(scan string, events [][]byte) (map[string]fields, error) {
	records := map[string]fields{}
	for i, e := range events {
		f, err := readFields(e)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		key := fmt.Sprintf("%s#%s#%s", f["origin"], f["destination"], f["date"])
		delete(f, "date")
		f["flight"] = key
		record := relay.Record{Scope: scan, Key: key, Index: relay.Single}
		records[record.ID()] = f
	}
	return records, nil
}

// compareRecords counts the records that came once and as expected, and names ids of
// those that did not.
func compareRecords(expected map[string]fields, messages []push.Message) (equal int, differences error) {
	times := map[string]int{}
	for _, m := range messages {
		times[m.Attributes[sink.IDAttribute]]++
	}
	var wrong []string
	for _, m := range messages {
		id := m.Attributes[sink.IDAttribute]
		got, err := readFields(m.Data)
		if err == nil && times[id] == 1 && maps.Equal(got, expected[id]) {
			equal++
		} else if len(wrong) < maxTold {
			wrong = append(wrong, fmt.Sprintf("%s (%d times)", id, times[id]))
		}
	}
	if len(wrong) > 0 {
		differences = fmt.Errorf("%d of %d records differ from their events, or came again, as %s", len(messages)-equal, len(messages), wrong)
	}
	if len(times) != len(expected) {
		differences = errors.Join(differences, fmt.Errorf("%d records have arrived, and the events make %d", len(times), len(expected)))
	}
	return equal, differences
}
