// Package tailrun prints the changes of a table as they come, for btf tail. It guarantees that it ends
// without an error if it is interrupted or if nobody reads what it prints, and that an error says from
// which time on changes are missing.
package tailrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/tail"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// Config says what is shown, and how.
type Config struct {
	Env  assemble.Env
	File string // of the pipeline
	// Name is a change stream of the file or one of its tables. It may be empty if there is only one.
	Name string
	// From and To are the times from which and to which changes are shown, each as tail.ParseTime reads
	// it. By default they are shown from now on, and without an end.
	From, To string
	// Families are those whose entries are shown; none are all.
	Families []string
	// Prefix is what row keys begin with.
	Prefix string
	// JSON prints each change as one line of JSON.
	JSON           bool
	Stdout, Stderr io.Writer
}

// tailing is one run.
type tailing struct {
	Config
	emit *mapping.Changes
}

// tailPool is how many connections are made, each of which carries 100 streams.
const tailPool = 1 + tail.MaxStreams/100

// Run shows changes until the time at which they are to end, until ctx ends or until nobody reads
// what it prints.
func Run(ctx context.Context, config Config) (err error) {
	t := tailing{Config: config}
	p, err := setup.ParseFile(t.Env, t.File)
	if err != nil {
		return err
	}
	change, err := tail.Choose(p, t.Name)
	if err != nil {
		return err
	}
	if err := tail.Only(change, t.Families); err != nil {
		return fmt.Errorf("--family: %w", err)
	}
	if t.emit, err = mapping.CompileChanges(change); err != nil {
		return err
	}
	cfg := tail.Config{
		Table: btrpc.NewTable(change.Table.Ref().String(), change.AppProfile), Prefix: t.Prefix, MaxBytes: change.MaxRecordBytes,
		Notice: t.notice,
	}
	if cfg.Start, cfg.End, err = t.times(time.Now()); err != nil {
		return err
	}
	services, err := assemble.NewServices(assemble.ServicesConfig{Env: t.Env, Pipeline: p, UserAgent: "bigtable-functions", Pool: tailPool})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Close()) }()
	conn, err := services.Dialer.Data(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	cfg.Conn = conn
	out := t.Stdout
	if t.JSON {
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
		if isUnread(t.Stdout) {
			cancel(syscall.EPIPE)
		}
	}
}

// times are those from which and to which changes are shown; the second is zero if there is
// no end.
func (t *tailing) times(now time.Time) (from, to time.Time, err error) {
	from = now
	if t.From != "" {
		if from, err = tail.ParseTime(t.From, now); err != nil {
			return from, to, fmt.Errorf("--from %s: %w", t.From, err)
		}
	}
	if t.To != "" {
		if to, err = tail.ParseTime(t.To, now); err != nil {
			return from, to, fmt.Errorf("--to %s: %w", t.To, err)
		}
		if to.Before(from) {
			return from, to, fmt.Errorf("--to %s lies before the start, %s", t.To, from.UTC().Format(time.RFC3339))
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
	if t.JSON {
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
	to := terminal.Printer{Out: t.Stderr}
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
