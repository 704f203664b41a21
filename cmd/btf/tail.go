package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/tail"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

func tailCommand(env assemble.Env) *cobra.Command {
	t := tailing{env: env}
	cmd := &cobra.Command{
		Use:   "tail -f FILE [NAME]",
		Short: "Show the changes of a table as they come",
		Long: "Shows the changes of a change stream of the pipeline file, or of a table that NAME names instead,\n" +
			"until interrupted: each change once, those of one row in order, through splits and merges of the\n" +
			"table. The stream's own filter applies. Nothing is kept for a later run, and no ledger is needed.\n" +
			"If it must give up, the error says from which time on changes are missing.\n" +
			"BIGTABLE_EMULATOR_HOST is obeyed. The application profile must route to one cluster.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.stdout, t.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if len(args) > 0 {
				t.name = args[0]
			}
			return t.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&t.file, "file", "f", "", "the pipeline file (required)")
	f.StringVar(&t.from, "from", "", "show changes from then on: how long ago (-1h) or a time (RFC 3339); by default from now on")
	f.StringVar(&t.to, "to", "", "end with the changes of then: how long ago (-5m) or a time (RFC 3339)")
	f.StringSliceVar(&t.families, "family", nil, "only entries of this family; may be given more than once")
	f.StringVar(&t.prefix, "key-prefix", "", "only changes of row keys that begin with this")
	f.BoolVar(&t.json, "json", false, "print each change as one line of JSON, as the function changes publishes it")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// tailing is one run of btf tail.
type tailing struct {
	env                          assemble.Env
	file, name, from, to, prefix string
	families                     []string
	json                         bool
	stdout, stderr               io.Writer
	emit                         *mapping.Changes
}

// tailPool is how many connections are made, each of which carries 100 streams.
const tailPool = 1 + tail.MaxStreams/100

func (t *tailing) run(ctx context.Context) (err error) {
	p, err := setup.ParseFile(t.env, t.file)
	if err != nil {
		return err
	}
	change, err := tail.Choose(p, t.name)
	if err != nil {
		return err
	}
	if err := tail.Only(change, t.families); err != nil {
		return fmt.Errorf("--family: %w", err)
	}
	if t.emit, err = mapping.CompileChanges(change); err != nil {
		return err
	}
	cfg := tail.Config{
		Table: btrpc.NewTable(change.Table.Ref().String(), change.AppProfile), Prefix: t.prefix, MaxBytes: change.MaxRecordBytes,
		Notice: t.notice,
	}
	if cfg.Start, cfg.End, err = t.times(time.Now()); err != nil {
		return err
	}
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{
		Emulator: t.env.BigtableEmulator, CredentialsFile: p.CredentialsFile, UserAgent: "bigtable-functions", Pool: tailPool,
	})
	if err != nil {
		return err
	}
	conn, err := dialer.Data(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	cfg.Conn = conn
	out := t.stdout
	if t.json {
		out = terminal.DataTo(out)
	}
	cfg.Show = func(r *changestream.Record) error { return t.show(out, r) }
	// A pipe that nobody reads any more is an error of the write: the command then ends.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	t.notice(fmt.Sprintf("showing the changes of table %s from %s on", change.Table.Ref(), cfg.Start.UTC().Format(time.RFC3339Nano)))
	following, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { t.watchReader(following, cancel) })
	return t.outcome(ctx, tail.Run(following, cfg))
}

// watchReader ends the tail when nobody reads its output any more, which no write tells
// while there are no changes.
func (t *tailing) watchReader(ctx context.Context, cancel context.CancelCauseFunc) {
	for retry.Sleep(ctx, time.Second) == nil {
		if isUnread(t.stdout) {
			cancel(syscall.EPIPE)
		}
	}
}

// times are those from which and to which changes are shown; the second is zero if there is
// no end.
func (t *tailing) times(now time.Time) (from, to time.Time, err error) {
	from = now
	if t.from != "" {
		if from, err = tail.ParseTime(t.from, now); err != nil {
			return from, to, fmt.Errorf("--from %s: %w", t.from, err)
		}
	}
	if t.to != "" {
		if to, err = tail.ParseTime(t.to, now); err != nil {
			return from, to, fmt.Errorf("--to %s: %w", t.to, err)
		}
		if to.Before(from) {
			return from, to, fmt.Errorf("--to %s lies before the start, %s", t.to, from.UTC().Format(time.RFC3339))
		}
	}
	return from.Truncate(time.Microsecond), to.Truncate(time.Microsecond), nil
}

// show prints a change.
func (t *tailing) show(out io.Writer, r *changestream.Record) error {
	body, _, err := t.emit.Body(r)
	if err != nil {
		t.notice(fmt.Sprintf("a change of row %s at %s is not shown: %s", r.RowKey, r.CommitTime.UTC().Format(time.RFC3339Nano), err))
		return nil
	}
	if body == nil {
		return nil // the filter takes none of its entries
	}
	if t.json {
		if _, err := out.Write(append(body, '\n')); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	lines, err := tail.Lines(body)
	if err != nil {
		return err
	}
	to := terminal.Printer{Out: out}
	for _, line := range lines {
		to.Printf("%s\n", line)
	}
	return to.Err
}

func (t *tailing) notice(text string) {
	to := terminal.Printer{Out: t.stderr}
	to.Printf("btf: %s\n", text)
}

// outcome is the command's error: none if it was interrupted or if nobody reads its output.
func (t *tailing) outcome(ctx context.Context, err error) error {
	var gaveUp *tail.GaveUpError
	switch {
	case ctx.Err() != nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return nil
	case errors.As(err, &gaveUp):
		return fmt.Errorf("%w; --from %s goes on there", err, gaveUp.From.UTC().Format(time.RFC3339Nano))
	}
	return err
}
