// Package scanrun guarantees that a scan that btf scan reads in its own process delivers every row
// that was asked for, or ends with an error and, if it can go on, the command for that: what was
// delivered is in the ledger, with the way in which the scan was run.
package scanrun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Request is what the command line asks for.
type Request struct {
	File, Name string // the pipeline file, and the scan's name in it
	// To is where the records go: a file, "-" for stdout, or empty for the scan's own sink or, of a
	// scan that is resumed, for where they went before.
	To string
	// Resume is the id of the scan to go on with. If it is empty, a new scan begins.
	Resume string
	// Overwrite empties the file first, once the scan is planned.
	Overwrite bool
	// IDs puts the record's id into each line. A scan that is resumed keeps what it had, unless
	// IDs or IDsGiven is set.
	IDs, IDsGiven bool
	// AcceptChanges goes on though the scan has changed in the file since it was planned.
	AcceptChanges bool
	// Workers is how many splits are read at a time. 0 is as many as before, or DefaultWorkers.
	Workers int
}

// Console is what a command runs in.
type Console struct {
	Env            assemble.Env
	Stdout, Stderr io.Writer
	// Patience is how long the ledger may take to answer first. Zero is the time of all commands.
	Patience terminal.Patience
}

const (
	// DefaultWorkers is how many splits are read at a time if nothing else is said.
	DefaultWorkers = 4
	// SplitsPerWorker are asked for, so that a worker that is done early finds another one.
	SplitsPerWorker = 4
)

// job is a scan with all that it takes to read it. It does not change.
type job struct {
	*target
	*decision
	Console
	output *output
	ledger *ledger.Ledger
}

// Run runs a scan, or goes on with one, until it is finished or ctx ends.
func Run(ctx context.Context, c Console, r Request) (err error) {
	var open closers.Stack
	defer func() { err = errors.Join(err, open.Close()) }()
	t, d, err := prepare(ctx, c, r)
	if errors.Is(err, errFinished) {
		fmt.Fprintf(c.Stderr, "scan %s is done already\n", r.Resume)
		return nil
	} else if err != nil {
		return err
	}
	conn, err := connect(c.Env, t, d, &open)
	if err != nil {
		return err
	}
	j, err := openJob(ctx, c, t, d, &open)
	if err != nil {
		return err
	}
	// A closed pipe is an error of the write, not the end of the process: what is
	// done must be committed.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	q := newQueue(ctx)
	f, err := j.build(conn.services, q, &open)
	if err != nil {
		return err
	}
	if err := j.begin(ctx); err != nil {
		return err // there is nothing to go on with
	}
	done, err := j.work(ctx, q, f, conn.probe)
	return j.outcome(ctx, done, err)
}

// prepare finds what can be known to be wrong before anything is written or connected to, and
// decides how the scan is run. The error is errFinished if there is nothing to do.
func prepare(ctx context.Context, c Console, r Request) (*target, *decision, error) {
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	t, err := load(c.Env, r.File, r.Name)
	if err != nil {
		return nil, nil, err
	}
	d, err := decide(ctx, c, t, r)
	if err != nil {
		return nil, nil, err
	}
	return t, d, d.check(t.scan)
}

// openJob opens the output and the ledger, and names the scan. Until something is sent, a
// file that is there keeps what it holds, and one that is not there is made for the time.
func openJob(ctx context.Context, c Console, t *target, d *decision, open *closers.Stack) (*job, error) {
	out, err := openOutput(c, d, open)
	if err != nil {
		return nil, err
	}
	l, err := openLedger(ctx, c, t.pipeline, open)
	if err != nil {
		return nil, err
	}
	j := &job{target: t, decision: d, Console: c, output: out, ledger: l}
	if d.seen == nil {
		return j, nil
	}
	return j, j.checkUnmoved(ctx)
}

func openLedger(ctx context.Context, c Console, p *pipeline.Pipeline, open *closers.Stack) (l *ledger.Ledger, err error) {
	err = c.await(ctx, p, func(ctx context.Context) error {
		opened, closer, err := setup.OpenLedger(ctx, c.Env, p)
		if err == nil {
			l = opened
			open.Add(closer)
		}
		return err
	})
	return l, err
}

// await makes the first of several calls to the ledger.
func (c *Console) await(ctx context.Context, p *pipeline.Pipeline, call func(context.Context) error) error {
	return setup.AwaitLedger(ctx, c.Patience, c.Stderr, c.Env, p, call)
}

// newID names a new scan.
func newID(name string) string { return name + "-" + strings.ToLower(rand.Text()[:8]) }

// begin records the scan, and how it is run.
func (j *job) begin(ctx context.Context) error {
	request, err := task.Encode(j.request())
	if err != nil {
		return err
	}
	kept := settings{IDs: j.ids, Overwrite: j.overwrite, Workers: j.workers, Before: j.before}
	if kept.To, err = absolute(j.to); err != nil {
		return err
	}
	run, err := kept.run(process.Self())
	if err != nil {
		return err
	}
	var seen ledger.Holder
	if j.seen != nil && j.seen.Run != nil {
		seen = j.seen.Run.Holder
	}
	return j.await(ctx, j.pipeline, func(ctx context.Context) error {
		_, err := j.ledger.BeginRun(ctx, j.id, j.scan.Name, request, run, j.definition, kept.begins(run.Holder, seen))
		return err
	})
}

func (j *job) request() task.ScanRequest {
	return task.ScanRequest{Version: task.Version, Scan: j.scan.Name, Parallelism: j.workers * SplitsPerWorker}
}

// work asks for the scan and reads until it is finished, or ctx or the queue ends.
func (j *job) work(ctx context.Context, q *queue, f functions, probe func(context.Context) error) (*task.ScanDone, error) {
	fmt.Fprintf(j.Stderr, "scan %s\n", j.id)
	began := time.Now()
	if err := q.ask(ctx, f.planner, j.id, j.request()); err != nil {
		return nil, err
	}
	if failed := q.failed(); failed != nil {
		return failed, nil
	}
	// The holders of a ledger that is a file may be processes of this machine.
	local := setup.LedgerPlace(j.Env, j.pipeline).Path != ""
	w := &watch{ledger: j.ledger, id: j.id, local: local, queue: q, probe: probe}
	if err := w.begin(ctx, j.Stderr); err != nil {
		return nil, err
	}
	if err := j.start(w.show.first.rows); err != nil {
		return nil, err
	}
	done, err := q.run(j.workers, f.worker, w.tick)
	isDone := done != nil && done.State == string(ledger.ScanDone)
	if broken := j.output.err(); broken != nil {
		err = fmt.Errorf("writing the output: %w", broken)
	}
	w.end(!isDone && !j.output.isUnread(err))
	q.tellFailures(j.Stderr)
	if isDone && err == nil {
		j.tellDone(done, q, time.Since(began))
	}
	return done, err
}

// start makes the output ready, and says what will not be in it.
func (j *job) start(before int64) error {
	if len(j.changed) > 0 {
		fmt.Fprintf(j.Stderr, "the file has changed since the scan was planned (%s): it goes on as the file says now, over the rows of its plan\n",
			strings.Join(j.changed, ", "))
	}
	if j.output.file == nil {
		return nil
	}
	if err := j.output.file.Start(); err != nil {
		return err
	}
	if before > 0 && (j.fresh || j.output.file.IsNew()) {
		fmt.Fprintf(j.Stderr, "%s is new: %s that the scan has delivered before are not in it\n", terminal.Escape(j.to), terminal.Plural(int(before), "row"))
	}
	return nil
}
