package scanrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// outcome says what has become of the scan, and how to go on with it.
func (j *job) outcome(ctx context.Context, done *task.ScanDone, err error) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
	defer cancel()
	if done == nil { // perhaps it ended when the command did
		if scan, err := j.ledger.Scan(closing, j.id); err == nil && scan.Finished() {
			end := scanjob.Done(scan)
			done = &end
		}
	}
	switch {
	case done != nil && done.State != string(ledger.ScanDone):
		return fmt.Errorf("scan %s has failed: %s", j.id, done.Error)
	case j.output.isUnread(err):
		return j.ledger.EndRun(closing, j.id, process.Self(), nil)
	case done != nil:
		return err
	}
	cause := err
	if ctx.Err() != nil {
		err, cause = errors.New("stopped"), nil
	}
	if failed := j.ledger.EndRun(closing, j.id, process.Self(), cause); failed != nil {
		err = fmt.Errorf("%w; %w", err, failed)
	}
	return fmt.Errorf("%w; to go on: %s", err, Resumption(j.file, j.scan.Name, j.id))
}

// parting is how long the ledger may take when the command ends.
const parting = 5 * time.Second

// tellDone sums up a scan that is done, and says how much of it other processes delivered.
func (j *job) tellDone(done *task.ScanDone, q *queue, took time.Duration) {
	fmt.Fprintf(j.Stderr, "%s, %s, %d dropped, in %.1f s (%.0f rows/s)\n", terminal.Plural(int(done.Rows), "row"), Records(done.Records),
		done.Dropped, took.Seconds(), float64(q.rows.Load())/took.Seconds())
	if q.endedElsewhere() {
		fmt.Fprintln(j.Stderr, "another process has finished the scan")
	}
	here := j.expected + q.records.Load()
	if j.output.lines != nil && here < done.Records-j.before {
		fmt.Fprintf(j.Stderr, "%d of its %s went to %s, the others to the output of another process\n", here, Records(done.Records), terminal.Escape(describeOutput(j.to)))
	}
}

// Resumption is the command that goes on with a scan.
func Resumption(file, name, id string) string {
	return strings.Join([]string{"btf", "scan", "-f", terminal.ShellQuoted(file), terminal.ShellQuoted(name), "--resume", terminal.ShellQuoted(id)}, " ")
}
