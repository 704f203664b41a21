package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/linefile"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func scanCommand(env assemble.Env) *cobra.Command {
	s := scanner{env: env}
	cmd := &cobra.Command{
		Use:   "scan -f FILE NAME",
		Short: "Run a scan of a pipeline file here: plan it, read its splits in parallel, send its records",
		Long: "Plans the scan NAME and reads its splits with several workers in this process. Records go to\n" +
			"the scan's own sink or, with --to, as lines of JSON to a file or, with --to -, to stdout.\n" +
			"A file that holds data already is left alone unless --overwrite or --resume is given.\n\n" +
			"What is done is kept in the ledger (LEDGER, or .btf/PIPELINE.db), and with it where the records\n" +
			"go and how. Ctrl-C commits and prints the command that goes on; a second one ends at once.\n" +
			"After that, kill -9 or a crash, --resume ID alone goes on with the same output, where the last\n" +
			"commit was: up to five seconds of rows then come a second time, with the same record id, which\n" +
			"--ids puts into each line. Splits that another process holds are waited for, 90 s at most if it\n" +
			"has died, and not at all where this machine knows that it has. --cancel ID ends a scan for good,\n" +
			"also one that deployed functions read, where LEDGER names their ledger.\n\n" +
			"Exits 0 only if every row that was asked for is delivered, or nobody reads stdout any more.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.name, s.stdout, s.stderr = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			s.idsGiven = cmd.Flags().Changed("ids")
			for _, name := range []string{"to", "resume", "cancel"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" { // a variable that is not set
					return fmt.Errorf("--%s is empty: leave it out, or say what it is", name)
				}
			}
			if cmd.Flags().Changed("workers") && s.workers < 1 {
				return errWorkers
			}
			if s.cancel != "" {
				return s.runCancel(cmd.Context())
			}
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&s.file, "file", "f", "", "the pipeline file")
	cmd.Flags().StringVar(&s.to, "to", "", "where records go instead of the scan's sink: a file, or - for stdout")
	cmd.Flags().BoolVar(&s.overwrite, "overwrite", false, "empty the file of --to first, once the scan is planned")
	cmd.Flags().BoolVar(&s.ids, "ids", false, "put the record's id into each line of --to, as the first field, recordId")
	cmd.Flags().IntVar(&s.workers, "workers", 0, fmt.Sprintf("how many splits are read at a time (default %d)", defaultWorkers))
	cmd.Flags().StringVar(&s.resume, "resume", "", "the id of the scan to go on with, where its records go now and as they are")
	cmd.Flags().BoolVar(&s.acceptChanges, "accept-changes", false, "go on with --resume though the scan has changed in the file since it was planned")
	cmd.Flags().StringVar(&s.cancel, "cancel", "", "the id of a scan to end for good: it has then failed")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// defaultWorkers is how many splits are read at a time where nobody says.
const defaultWorkers = 4

// splitsPerWorker are asked for, so that a worker that is done early finds another one.
const splitsPerWorker = 4

// scanner is one run of the command.
type scanner struct {
	file, name, to, resume, cancel          string
	overwrite, ids, idsGiven, acceptChanges bool
	workers                                 int // 0: as many as before, or defaultWorkers
	stdout, stderr                          io.Writer
	env                                     assemble.Env
	patience                                terminal.Patience // zero: forLedgers

	id     string
	ledger *ledger.Ledger
	local  bool // the ledger is a file

	// Of a scan that is resumed:
	seen       *known            // what was decided from
	fresh      bool              // the output has nothing of it
	before     int64             // records that are committed and not in this output
	expected   int64             // records that are committed and are
	changed    []string          // what of its definition has changed since it was planned
	definition map[string]string // as it is now, where it has

	output   *linefile.File  // where --to names one
	lines    *linefile.Lines // where --to says so
	services *assemble.Services
	probe    func(context.Context) error
	closers  []func() error
}

func (s *scanner) onClose(f func() error) { s.closers = append(s.closers, f) }

func (s *scanner) close() error {
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last]())
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}

// errFinished: there is nothing left to resume.
var errFinished = errors.New("the scan is done already")

func (s *scanner) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	p, err := s.check(ctx)
	if errors.Is(err, errFinished) {
		fmt.Fprintf(s.stderr, "scan %s is done already\n", s.id)
		return nil
	} else if err != nil {
		return err
	}
	if err := s.open(ctx, p); err != nil {
		return err
	}
	// A closed pipe is an error of the write, not the end of the process: what is
	// done must be committed.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	q, err := s.functions(ctx, p)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, p); err != nil {
		return err // there is nothing to go on with
	}
	done, err := s.work(ctx, q)
	return s.outcome(ctx, done, err)
}

// begin records the scan, and how it is run.
func (s *scanner) begin(ctx context.Context, p *pipeline.Pipeline) error {
	request, err := task.Encode(s.request())
	if err != nil {
		return err
	}
	run := ledger.Run{IDs: s.ids, Overwrite: s.overwrite, Workers: s.workers, Before: s.before, Holder: holder()}
	if run.To, err = absolute(s.to); err != nil {
		return err
	}
	var seen *ledger.Run
	if s.seen != nil {
		seen = s.seen.Run
	}
	return s.await(ctx, p, func(ctx context.Context) error {
		_, err := s.ledger.BeginRun(ctx, s.id, s.name, request, seen, run, s.definition)
		return err
	})
}

func (s *scanner) request() task.ScanRequest {
	return task.ScanRequest{Version: task.Version, Scan: s.name, Parallelism: s.workers * splitsPerWorker}
}

// await makes the first of several calls to the ledger.
func (s *scanner) await(ctx context.Context, p *pipeline.Pipeline, call func(context.Context) error) error {
	return awaitLedger(ctx, s.patience, s.stderr, s.env.Ledger, p.Name, call)
}

func (s *scanner) lineError() error {
	if s.lines == nil {
		return nil
	}
	return s.lines.Err()
}

// open opens the output and the ledger, and names the scan. Until something is sent, a
// file that is there keeps what it holds, and one that is not there is made for the time.
func (s *scanner) open(ctx context.Context, p *pipeline.Pipeline) error {
	if err := s.openOutput(); err != nil {
		return err
	}
	s.local = ledgerPlace(s.env.Ledger, p.Name).Path != ""
	if err := s.openLedger(ctx, p); err != nil {
		return err
	}
	if s.id = s.resume; s.id == "" {
		s.id = s.name + "-" + strings.ToLower(rand.Text()[:8])
		return nil
	}
	return s.checkUnmoved(ctx, p)
}

func (s *scanner) openLedger(ctx context.Context, p *pipeline.Pipeline) error {
	return s.await(ctx, p, func(ctx context.Context) error {
		l, closer, err := openLedger(ctx, s.env.Ledger, p.Name)
		if err == nil {
			s.ledger = l
			s.onClose(closer)
		}
		return err
	})
}

func (s *scanner) openOutput() error {
	switch s.to {
	case "":
		return nil
	case "-":
		s.lines = linefile.NewLines(terminal.DataTo(s.stdout))
	default:
		existing := linefile.Refuse
		if s.overwrite {
			existing = linefile.Empty
		} else if s.resume != "" {
			existing = linefile.Continue
		}
		var err error
		if s.output, err = linefile.Open(s.to, existing); errors.Is(err, linefile.ErrHoldsData) {
			return fmt.Errorf("%w: --overwrite empties it, --resume ID goes on with it", err)
		} else if err != nil {
			return err
		}
		s.onClose(s.output.Close)
		s.lines = s.output.Lines
		if err := s.checkKept(); err != nil {
			return err
		}
	}
	s.lines.IDs = s.ids
	return nil
}

// functions builds planner and worker around a queue that stands for their topics.
func (s *scanner) functions(ctx context.Context, p *pipeline.Pipeline) (*scanQueue, error) {
	q := newScanQueue(ctx)
	cfg := assemble.Config{
		Pipeline: only(p, s.name), Dialer: s.services.Dialer, PubSub: s.services.PubSub,
		Ledger:   func(context.Context) (*ledger.Ledger, error) { return s.ledger, nil },
		Stopping: q.stopping, Holder: holder(), Now: time.Now, Tasks: q, Done: q,
		Records: slog.New(telemetry.NewHandler(terminal.DataTo(s.stdout), slog.LevelInfo, "")),
		Reports: assemble.Reports{ScanPlanner: q.planned, ScanWorker: func(ctx context.Context, summary scanworker.Summary) {
			q.report(ctx, summary)
			if s.lineError() != nil {
				q.stop() // no other attempt can write either
			}
		}},
		// That there are more workers than tablets is no news here, and what a policy has
		// dropped the queue is told.
		Logger: s.logger(slog.LevelError),
	}
	if s.lines != nil {
		cfg.Sink = s.lines
	}
	planner, err := assemble.ScanPlanner(cfg)
	if err != nil {
		return nil, err
	}
	s.onClose(planner.Close)
	worker, err := assemble.ScanWorker(cfg)
	if err != nil {
		return nil, err
	}
	s.onClose(worker.Close)
	q.planner, q.worker = planner, worker
	return q, nil
}

// only returns the pipeline with one of its scans: what the others need is nothing to
// this command.
func only(p *pipeline.Pipeline, name string) *pipeline.Pipeline {
	one := *p
	one.Scans = slices.DeleteFunc(slices.Clone(p.Scans), func(s *pipeline.Scan) bool { return s.Name != name })
	return &one
}

// logger logs for people.
func (s *scanner) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// work asks for the scan and reads until it is finished, or ctx or the queue ends.
func (s *scanner) work(ctx context.Context, q *scanQueue) (*task.ScanDone, error) {
	fmt.Fprintf(s.stderr, "scan %s\n", s.id)
	began := time.Now()
	if err := q.ask(ctx, s.id, s.request()); err != nil {
		return nil, err
	}
	if failed := q.failed(); failed != nil {
		return failed, nil
	}
	watch := &scanWatch{ledger: s.ledger, id: s.id, local: s.local, queue: q, probe: s.probe}
	if err := watch.begin(ctx, s.stderr); err != nil {
		return nil, err
	}
	if err := s.start(watch.show.first.rows); err != nil {
		return nil, err
	}
	done, err := q.run(s.workers, watch.tick)
	isDone := done != nil && done.State == string(ledger.ScanDone)
	if broken := s.lineError(); broken != nil {
		err = fmt.Errorf("writing the output: %w", broken)
	}
	watch.end(!isDone && !s.isUnread(err))
	q.tellFailures(s.stderr)
	if isDone && err == nil {
		s.tellDone(done, q, time.Since(began))
	}
	return done, err
}

// start makes the output ready, and says what will not be in it.
func (s *scanner) start(before int64) error {
	if len(s.changed) > 0 {
		fmt.Fprintf(s.stderr, "the file has changed since the scan was planned (%s): it goes on as the file says now, over the rows of its plan\n",
			strings.Join(s.changed, ", "))
	}
	if s.output == nil {
		return nil
	}
	if err := s.output.Start(); err != nil {
		return err
	}
	if before > 0 && (s.fresh || s.output.IsNew()) {
		fmt.Fprintf(s.stderr, "%s is new: %s that the scan has delivered before are not in it\n", terminal.Escape(s.to), terminal.Plural(int(before), "row"))
	}
	return nil
}
