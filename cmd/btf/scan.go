package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/scans"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

func scanCommand() *cobra.Command {
	s := scanner{get: os.Getenv}
	cmd := &cobra.Command{
		Use:   "scan -f FILE NAME",
		Short: "Run a scan of a pipeline file here: plan it, read its splits in parallel, send its records",
		Long: "Plans the scan NAME and reads its splits with several workers in this process. Records go to\n" +
			"the scan's own sink or, with --to, as lines of JSON to a file or, with --to -, to stdout.\n" +
			"A file that holds data already is left alone unless --overwrite or --resume is given.\n\n" +
			"What is done is kept in the ledger (LEDGER, or .btf/PIPELINE.db). Ctrl-C commits and prints\n" +
			"the command that goes on; a second one ends at once. After that, kill -9 or a crash, --resume\n" +
			"goes on where the last commit was: up to five seconds of rows then come a second time, with\n" +
			"the same record id, which --ids puts into each line. Splits that another process holds are\n" +
			"waited for, 90 s at most if it has died, and not at all where this machine knows that it has.\n\n" +
			"Exits 0 only if every row that was asked for is delivered, or nobody reads stdout any more.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.name, s.stdout, s.stderr = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&s.file, "file", "f", "", "the pipeline file")
	cmd.Flags().StringVar(&s.to, "to", "", "where records go instead of the scan's sink: a file, or - for stdout")
	cmd.Flags().BoolVar(&s.overwrite, "overwrite", false, "empty the file of --to first, once the scan is planned")
	cmd.Flags().BoolVar(&s.ids, "ids", false, "put the record's id into each line of --to, as the first field, recordId")
	cmd.Flags().IntVar(&s.workers, "workers", 4, "how many splits are read at a time")
	cmd.Flags().StringVar(&s.resume, "resume", "", "the id of the scan to go on with")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// scanner is one run of the command.
type scanner struct {
	file, name, to, resume string
	overwrite, ids         bool
	workers                int
	stdout, stderr         io.Writer
	get                    func(string) string

	id      string
	ledger  *ledger.Ledger
	local   bool        // the ledger is a file
	output  *sink.File  // where --to names one
	lines   *sink.Lines // where --to says so
	dialer  *btrpc.Dialer
	probe   func(context.Context) error
	closers []func() error
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
	done, err := s.work(ctx, q)
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // nobody reads on
	case ctx.Err() != nil && done == nil:
		return fmt.Errorf("stopped; to go on: %s", s.resumption())
	case err != nil:
		return fmt.Errorf("%w; to go on: %s", err, s.resumption())
	case done.State != string(ledger.ScanDone):
		return fmt.Errorf("scan %s has failed: %s", s.id, done.Error)
	}
	return nil
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
	location, err := ledgerLocation(p.Name, s.get)
	if err != nil {
		return err
	}
	s.local = location.Path != ""
	var closer func() error
	if s.ledger, closer, err = openLedger(ctx, p.Name, s.get); err != nil {
		return err
	}
	s.onClose(closer)
	if s.id = s.resume; s.id == "" {
		s.id = s.name + "-" + strings.ToLower(rand.Text()[:8])
	}
	return nil
}

func (s *scanner) openOutput() error {
	switch s.to {
	case "":
		return nil
	case "-":
		s.lines = sink.NewLines(s.stdout)
	default:
		existing := sink.Refuse
		if s.overwrite {
			existing = sink.Empty
		} else if s.resume != "" {
			existing = sink.Continue
		}
		var err error
		if s.output, err = sink.Open(s.to, existing); errors.Is(err, sink.ErrHoldsData) {
			return fmt.Errorf("%w: --overwrite empties it, --resume ID goes on with it", err)
		} else if err != nil {
			return err
		}
		s.onClose(s.output.Close)
		s.lines = s.output.Lines
	}
	s.lines.IDs = s.ids
	return nil
}

// functions builds planner and worker around a queue that stands for their topics.
func (s *scanner) functions(ctx context.Context, p *pipeline.Pipeline) (*scanQueue, error) {
	q := newScanQueue(ctx)
	cfg := scans.Config{
		Pipeline: p, Ledger: s.ledger, Dialer: s.dialer, PubSub: s.connectPubSub(p), Tasks: q, Done: q,
		Records: slog.New(telemetry.NewHandler(s.stdout, slog.LevelInfo, "")),
		Logger:  s.logger(slog.LevelError), // that there are more workers than tablets is no news here
	}
	if s.lines != nil {
		cfg.Sink = s.lines
	}
	planner, err := scans.NewPlanner(cfg, q.planned)
	if err != nil {
		return nil, err
	}
	s.onClose(planner.Close)
	cfg.Logger = s.logger(slog.LevelWarn) // what a policy has dropped, and why
	worker, err := scans.NewWorker(q.stopping, cfg, holder(), func(ctx context.Context, summary scanworker.Summary) {
		q.report(ctx, summary)
		if s.lineError() != nil {
			q.stop() // no other attempt can write either
		}
	})
	if err != nil {
		return nil, err
	}
	s.onClose(worker.Close)
	q.planner, q.worker = planner, worker
	return q, nil
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

// connectPubSub returns what connects to Pub/Sub once something needs it.
func (s *scanner) connectPubSub(p *pipeline.Pipeline) func(context.Context) (*pubsub.Client, error) {
	var client *pubsub.Client
	s.onClose(func() error {
		if client == nil {
			return nil
		}
		return client.Close()
	})
	return func(ctx context.Context) (_ *pubsub.Client, err error) {
		if client == nil {
			client, err = pubsub.NewClient(context.WithoutCancel(ctx), pubsubProject(p, s.get))
		}
		return client, err
	}
}

// work asks for the scan and reads until it is finished, or ctx or the queue ends.
func (s *scanner) work(ctx context.Context, q *scanQueue) (*task.ScanDone, error) {
	fmt.Fprintf(s.stderr, "scan %s\n", s.id)
	began := time.Now()
	request := task.ScanRequest{Version: task.Version, Scan: s.name, Parallelism: s.workers}
	if err := q.ask(ctx, s.id, request); err != nil {
		return nil, err
	}
	if failed := q.failed(); failed != nil {
		return failed, nil
	}
	watch := &scanWatch{ledger: s.ledger, id: s.id, local: s.local, queue: q, probe: s.probe}
	if err := watch.begin(ctx, s.stderr); err != nil {
		return nil, err
	}
	if s.output != nil {
		if err := s.output.Start(); err != nil {
			return nil, err
		}
		if before := watch.show.first.rows; before > 0 && s.output.IsNew() {
			fmt.Fprintf(s.stderr, "%s is new: %d rows that the scan has delivered before are not in it\n", escaped(s.to), before)
		}
	}
	done, err := q.run(s.workers, watch.tick)
	isDone := done != nil && done.State == string(ledger.ScanDone)
	if broken := s.lineError(); broken != nil {
		err = fmt.Errorf("writing the output: %w", broken)
	}
	watch.end(!isDone && !errors.Is(err, syscall.EPIPE))
	if isDone && err == nil {
		took := time.Since(began)
		fmt.Fprintf(s.stderr, "%d rows, %d records, %d dropped, in %.1f s (%.0f rows/s)\n",
			done.Rows, done.Records, done.Dropped, took.Seconds(), float64(q.rows.Load())/took.Seconds())
	}
	return done, err
}

// resumption is the command that goes on.
func (s *scanner) resumption() string {
	args := []string{"btf", "scan", "-f", shellQuoted(s.file), shellQuoted(s.name)}
	if s.to != "" {
		args = append(args, "--to", shellQuoted(s.to))
	}
	if s.ids {
		args = append(args, "--ids")
	}
	return strings.Join(append(args, "--resume", shellQuoted(s.id)), " ")
}

// shellQuoted returns an argument as a shell takes it.
func shellQuoted(s string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("-_./@:", r) || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// pubsubProject is the project of the pipeline's topics.
func pubsubProject(p *pipeline.Pipeline, get func(string) string) string {
	for _, name := range []string{"PUBSUB_PROJECT", "BIGTABLE_PROJECT"} {
		if v := get(name); v != "" {
			return v
		}
	}
	return p.Tables[0].Project
}
