package main

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
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/replay"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

const (
	// replayApply bounds how long one message's entries may take.
	replayApply = 4 * time.Minute
	// replayClose bounds how long the writer may take to end.
	replayClose = 10 * time.Second
	// replayErrors bounds the messages whose failure is told one by one.
	replayErrors = 20
)

func replayCommand(env assemble.Env) *cobra.Command {
	r := replayRun{env: env}
	cmd := &cobra.Command{
		Use:   "replay -f FILE",
		Short: "Apply dead letters and undelivered messages as they were meant",
		Long: "Pulls what the function write gave up on (subscription NAME-dead-letter) and what Pub/Sub gave up on\n" +
			"(NAME-undelivered), applies it under the pipeline file with the ids and times of the original messages,\n" +
			"and acknowledges what is applied. Everything else stays where it is. Exits 0 only if nothing failed.\n" +
			"BIGTABLE_PROJECT, BIGTABLE_INSTANCE, PUBSUB_PROJECT and the emulators' variables mean what they mean\n" +
			"for the function.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.stdout, r.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&r.file, "file", "f", "", "the pipeline file (required)")
	f.StringVar(&r.table, "table", "", "only what is for this table, by its name in the file")
	f.StringVar(&r.errorText, "error", "", "only dead letters whose error contains this text")
	f.StringVar(&r.since, "since", "", "only what was given up since then: a time (RFC 3339) or how long ago (24h)")
	f.BoolVar(&r.dryRun, "dry-run", false, "print the mutations, apply and acknowledge nothing")
	f.BoolVar(&r.newIDs, "new-ids", false, "replay undelivered messages under the ids that Pub/Sub gave them, although something depends on message.id")
	// Not an error: the flag exists.
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

type replayRun struct {
	env                           assemble.Env
	file, table, errorText, since string
	dryRun, newIDs                bool
	stdout, stderr                io.Writer

	after  time.Time // what is older is left; zero: nothing is
	reader *replay.Reader
	writer *writer.Writer
	told   atomic.Int64 // failures printed

	mu     sync.Mutex // guards output and reader
	counts replayCounts
}

// replayCounts is what became of the messages.
type replayCounts struct{ replayed, filtered, failed int }

func (r *replayRun) run(ctx context.Context) (err error) {
	p, err := r.load()
	if err != nil {
		return err
	}
	if r.after, err = since(r.since, time.Now()); err != nil {
		return err
	}
	if r.table != "" && !slices.ContainsFunc(p.Tables, func(t *pipeline.Table) bool { return t.Name == r.table }) {
		return fmt.Errorf("--table %s: the pipeline file has no such table", r.table)
	}
	if r.reader, err = replay.NewReader(p, mapping.ServiceLimits(), r.newIDs); err != nil {
		return err
	}
	services, err := assemble.NewServices(assemble.ServicesConfig{Env: r.env, Pipeline: p, UserAgent: "bigtable-functions"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Close()) }()
	r.writer, err = write.NewWriter(p, services.Dialer, slog.New(telemetry.NewHandler(r.stderr, slog.LevelWarn, "")))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), replayClose)
		defer cancel()
		err = errors.Join(err, r.writer.Close(ctx))
	}()
	client, err := services.PubSub(ctx)
	if err != nil {
		return err
	}
	if err := r.drain(ctx, client, r.env.TopicsProject(p), p.Name); err != nil {
		return err
	}
	return r.tell()
}

func (r *replayRun) load() (*pipeline.Pipeline, error) {
	p, err := setup.ParseFile(r.env, r.file)
	if err != nil {
		return nil, err
	}
	if p.Write == nil {
		return nil, fmt.Errorf("%s has no write section: nothing of it can be replayed", r.file)
	}
	// What was rejected before may well be rejected again: that stops nothing here.
	p.Write.Limits.ConsecutiveRejections = 0
	return p, nil
}

// since reads the flag: a time, or a duration before now; zero where it is empty.
func since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since %s: neither a time as 2026-08-30T10:00:00Z nor a duration as 24h", text)
	}
	return t, nil
}

// drain replays both subscriptions, side by side.
func (r *replayRun) drain(ctx context.Context, client *pubsub.Client, project, name string) error {
	bar := terminal.NewCounter(r.stderr, "replayed", terminal.UnknownTotal)
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

func (r *replayRun) progress(bar *terminal.Counter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dryRun {
		bar.Set(r.counts.replayed)
	}
}

// one replays one message and reports whether it is done with.
func (r *replayRun) one(ctx context.Context, m *push.Message) bool {
	x, err := r.read(m)
	if !r.wanted(x) {
		r.count(func(n *replayCounts) { n.filtered++ })
		return false
	}
	if err == nil && r.dryRun {
		r.print(x)
	}
	if err == nil {
		err = r.apply(ctx, x)
	}
	if err != nil {
		r.count(func(n *replayCounts) { n.failed++ })
		if n := r.told.Add(1); n <= replayErrors {
			r.mu.Lock()
			fmt.Fprintf(r.stderr, "message %s: %s\n", terminal.Escape(m.ID), terminal.Escape(oneLine(err)))
			r.mu.Unlock()
		}
		return false
	}
	r.count(func(n *replayCounts) { n.replayed++ })
	return !r.dryRun
}

func (r *replayRun) read(m *push.Message) (*replay.Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reader.Read(m, time.Now())
}

func (r *replayRun) count(change func(*replayCounts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.counts)
}

// wanted holds a message against the filters.
func (r *replayRun) wanted(x *replay.Work) bool {
	return (r.table == "" || slices.Contains(x.Tables, r.table)) &&
		(r.errorText == "" || strings.Contains(x.Letter.Error, r.errorText)) &&
		!x.Since.Before(r.after)
}

// apply applies the rows, and fails where something of the message is not written.
func (r *replayRun) apply(ctx context.Context, x *replay.Work) error {
	if len(x.Rows) == 0 || r.dryRun {
		return firstOf(x.Refused)
	}
	ctx, cancel := context.WithTimeout(ctx, replayApply)
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
func (r *replayRun) print(x *replay.Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := cmp.Or(string(x.Letter.Kind), "undelivered")
	p := &terminal.Printer{Out: r.stdout}
	p.Printf("%s of message %s, published %s, given up %s", kind, x.Letter.MessageID,
		published(x.Letter.PublishTime), x.Since.Format(time.RFC3339))
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

// tell ends with the counts; an error where something failed.
func (r *replayRun) tell() error {
	n := r.counts
	did := "replayed and acknowledged"
	if r.dryRun {
		did = "would be replayed"
	}
	fmt.Fprintf(r.stderr, "%d messages %s, %d left because the filters exclude them, %d left because they cannot be applied\n", n.replayed, did, n.filtered, n.failed)
	if n.failed > 0 {
		return fmt.Errorf("%d messages cannot be applied and stay where they are", n.failed)
	}
	return nil
}

// oneLine joins the lines of an error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
