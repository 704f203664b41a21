// Package replayrun applies dead letters and undelivered messages as they were meant, for btf replay.
// It guarantees that it acknowledges a message only if all that the message asks for is written, and
// gives every other message back.
package replayrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"golang.org/x/sync/errgroup"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/replay"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

const (
	// applyTimeout bounds how long one message's entries may take.
	applyTimeout = 4 * time.Minute
	// closeTimeout bounds how long the writer may take to end.
	closeTimeout = 10 * time.Second
	// mostErrors bounds the messages whose failure is told one by one.
	mostErrors = 20
)

// Config says what is replayed, and how.
type Config struct {
	Env  assemble.Env
	File string // of the pipeline
	// Table, if it is set, leaves messages that write nothing to the table of this name in the file.
	Table string
	// Error, if it is set, leaves messages whose error does not contain this text.
	Error string
	// After leaves messages that were given up before. Zero leaves none for that.
	After time.Time
	// DryRun prints the mutations instead of applying them, and acknowledges nothing.
	DryRun bool
	// NewIDs takes the ids that Pub/Sub gave to undelivered messages, although something depends on
	// message.id.
	NewIDs bool
	// Stdout takes the mutations of a dry run, and Stderr everything else.
	Stdout, Stderr io.Writer
}

// run is one replay at work.
type run struct {
	Config
	reader *replay.Reader
	writer *writer.Writer
	told   atomic.Int64 // failures printed

	mu     sync.Mutex // guards output and reader
	counts counts
}

// counts is what became of the messages.
type counts struct{ replayed, filtered, failed int }

// Run replays both subscriptions until no more messages come. It fails if any message cannot be
// applied.
func Run(ctx context.Context, cfg Config) (err error) {
	var open closers.Stack
	defer func() { err = errors.Join(err, open.Close()) }()
	p, err := load(cfg.Env, cfg.File)
	if err != nil {
		return err
	}
	if cfg.Table != "" && !slices.ContainsFunc(p.Tables, func(t *pipeline.Table) bool { return t.Name == cfg.Table }) {
		return fmt.Errorf("--table %s: the pipeline file has no such table", cfg.Table)
	}
	reader, err := replay.NewReader(p, mapping.ServiceLimits(), cfg.NewIDs)
	if err != nil {
		return err
	}
	services, err := assemble.NewServices(assemble.ServicesConfig{Env: cfg.Env, Pipeline: p, UserAgent: "bigtable-functions"})
	if err != nil {
		return err
	}
	open.Add(services.Close)
	w, err := write.NewWriter(p, services.Dialer, slog.New(telemetry.NewHandler(cfg.Stderr, slog.LevelWarn, "")))
	if err != nil {
		return err
	}
	open.Add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return w.Close(ctx)
	})
	client, err := services.PubSub(ctx)
	if err != nil {
		return err
	}
	r := &run{Config: cfg, reader: reader, writer: w}
	if err := r.drain(ctx, client, cfg.Env.TopicsProject(p), p.Name); err != nil {
		return err
	}
	return r.tell()
}

// load reads the pipeline file.
func load(env assemble.Env, file string) (*pipeline.Pipeline, error) {
	p, err := setup.ParseFile(env, file)
	if err != nil {
		return nil, err
	}
	if p.Write == nil {
		return nil, fmt.Errorf("%s has no write section: nothing of it can be replayed", file)
	}
	// What was rejected before may well be rejected again: that stops nothing here.
	p.Write.Limits.ConsecutiveRejections = 0
	return p, nil
}

// drain replays both subscriptions, side by side.
func (r *run) drain(ctx context.Context, client *pubsub.Client, project, name string) error {
	bar := terminal.NewCounter(r.Stderr, "replayed", terminal.UnknownTotal)
	defer bar.End()
	g, ctx := errgroup.WithContext(ctx)
	for _, id := range []string{pipeline.TopicDeadLetter.Of(name), pipeline.TopicUndelivered.Of(name)} {
		p := &puller{client: client.SubscriptionAdminClient, subscription: "projects/" + project + "/subscriptions/" + id}
		g.Go(func() error {
			err := p.run(ctx, func(m *push.Message) bool {
				done := r.one(ctx, m)
				r.progress(bar)
				return done
			})
			if err != nil {
				return fmt.Errorf("replaying %s: %w", id, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *run) progress(bar *terminal.Counter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.DryRun {
		bar.Set(r.counts.replayed)
	}
}

// one replays one message and reports whether it is done with.
func (r *run) one(ctx context.Context, m *push.Message) bool {
	x, err := r.read(m)
	if !r.wanted(x) {
		r.count(func(n *counts) { n.filtered++ })
		return false
	}
	if err == nil && r.DryRun {
		r.print(x)
	}
	if err == nil {
		err = r.apply(ctx, x)
	}
	if err != nil {
		r.count(func(n *counts) { n.failed++ })
		if n := r.told.Add(1); n <= mostErrors {
			r.mu.Lock()
			fmt.Fprintf(r.Stderr, "message %s: %s\n", terminal.Escape(m.ID), terminal.Escape(oneLine(err)))
			r.mu.Unlock()
		}
		return false
	}
	r.count(func(n *counts) { n.replayed++ })
	return !r.DryRun
}

func (r *run) read(m *push.Message) (*replay.Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reader.Read(m, time.Now())
}

func (r *run) count(change func(*counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.counts)
}

// wanted holds a message against the filters.
func (r *run) wanted(x *replay.Work) bool {
	return (r.Table == "" || slices.Contains(x.Tables, r.Table)) &&
		(r.Error == "" || strings.Contains(x.Letter.Error, r.Error)) &&
		!x.Since.Before(r.After)
}

// apply applies the rows, and fails if something of the message is not written.
func (r *run) apply(ctx context.Context, x *replay.Work) error {
	if len(x.Rows) == 0 || r.DryRun {
		return firstOf(x.Refused)
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	return firstOf(append([]error{x.Apply(ctx, r.writer)}, x.Refused...))
}

// firstOf stands for all errors by the first and the number of others; nil for none.
func firstOf(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
}

// print shows what a message would write.
func (r *run) print(x *replay.Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := cmp.Or(string(x.Letter.Kind), "undelivered")
	p := &terminal.Printer{Out: r.Stdout}
	p.Printf("%s of message %s, published %s, given up %s", kind, x.Letter.MessageID,
		terminal.PublishTime(x.Letter.PublishTime), x.Since.Format(time.RFC3339))
	if x.Letter.Error != "" {
		p.Printf(": %s", strconv.Quote(x.Letter.Error))
	}
	p.Printf("\n")
	for _, row := range x.Rows {
		p.Printf("  %s %s\n", row.Table.Table, mapping.Key(row.Schema, row.Entry.RowKey))
		for _, line := range mapping.Lines(row.Schema, row.Entry) {
			p.Printf("    %s\n", line)
		}
	}
	if x.Skipped > 0 {
		p.Printf("  %d records are skipped\n", x.Skipped)
	}
}

// tell ends with the counts; an error if something failed.
func (r *run) tell() error {
	n := r.counts
	did := "replayed and acknowledged"
	if r.DryRun {
		did = "would be replayed"
	}
	fmt.Fprintf(r.Stderr, "%d messages %s, %d left because the filters exclude them, %d left because they cannot be applied\n", n.replayed, did, n.filtered, n.failed)
	if n.failed > 0 {
		return fmt.Errorf("%d messages cannot be applied and stay where they are", n.failed)
	}
	return nil
}

// oneLine joins the lines of an error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
