package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func statusCommand(env assemble.Env) *cobra.Command {
	s := statusReport{env: env, now: time.Now}
	cmd := &cobra.Command{
		Use:   "status -f FILE",
		Short: "Show how far the scans and change streams of a pipeline are",
		Long: "Reads the ledger (LEDGER, or .btf/PIPELINE.db), also while something works on it, and makes none.\n" +
			"For each scan that is not done it lists the splits that are not either: how much is read, who\n" +
			"holds the lease and for how long, and why it was last given up. A scan of btf scan that no\n" +
			"process goes on with is stopped, and the command that goes on is shown. Of each change stream it\n" +
			"draws which keys are read, and lists the partitions with the oldest positions, those that wait and\n" +
			"the keys that no partition holds. If LEDGER is unset and a btf dev runs in this directory, its\n" +
			"ledger comes first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.stderr = cmd.ErrOrStderr()
			return s.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&s.file, "file", "f", "", "the pipeline file")
	cmd.Flags().BoolVar(&s.all, "all", false, "list every split of every scan, and every partition")
	cmd.Flags().BoolVar(&s.json, "json", false, "print one JSON object with everything but the splits")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

type statusReport struct {
	file     string
	all      bool
	json     bool
	env      assemble.Env
	now      func() time.Time
	stderr   io.Writer
	patience terminal.Patience // zero: that of all commands
}

func (s *statusReport) run(ctx context.Context, stdout io.Writer) error {
	p, err := setup.ParseFile(s.env, s.file)
	if err != nil {
		return err
	}
	var dev ledger.Location
	if s.env.Ledger == (ledger.Location{}) {
		if dev, err = runningDev(p.Name); err != nil {
			return err
		}
	}
	if s.json {
		return s.printJSON(ctx, p, dev, stdout)
	}
	if dev == (ledger.Location{}) {
		return s.ledger(ctx, p, stdout)
	}
	out := terminal.Printer{Out: stdout}
	out.Printf("of the btf dev that runs here, %s:\n", dev.String())
	if err := errors.Join(out.Err, s.of(dev).ledger(ctx, p, stdout)); err != nil {
		return err
	}
	out.Printf("\nof other commands:\n")
	return errors.Join(out.Err, s.ledger(ctx, p, stdout))
}

// of returns a report of the ledger at another place.
func (s *statusReport) of(place ledger.Location) *statusReport {
	its := *s
	its.env.Ledger = place
	return &its
}

// open opens the ledger, and lists its scans, the newest first. If there is none, the error
// is fs.ErrNotExist. The caller calls the function that is returned, also after an error.
func (s *statusReport) open(ctx context.Context, p *pipeline.Pipeline) (l *ledger.Ledger, scans []*ledger.Scan, closer func() error, err error) {
	closer = func() error { return nil }
	err = setup.AwaitLedger(ctx, s.patience, s.stderr, s.env, p, func(ctx context.Context) error {
		opened, closing, err := setup.ReadLedger(ctx, s.env, p)
		if err != nil {
			return err
		}
		l, closer = opened, closing
		scans, err = l.Scans(ctx)
		return err
	})
	slices.SortFunc(scans, func(a, b *ledger.Scan) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return l, scans, closer, err
}

// ledger tells of all that is in one ledger.
func (s *statusReport) ledger(ctx context.Context, p *pipeline.Pipeline, stdout io.Writer) (err error) {
	l, scans, closer, err := s.open(ctx, p)
	defer func() { err = errors.Join(err, closer()) }()
	if errors.Is(err, fs.ErrNotExist) {
		return s.nothing(p, stdout)
	} else if err != nil {
		return err
	}
	out := terminal.Printer{Out: stdout}
	if len(scans) == 0 && (len(p.Scans) > 0 || len(p.Changes) == 0) {
		out.Printf("pipeline %s has no scans in the ledger\n", p.Name)
	}
	for i, scan := range scans {
		if i > 0 {
			out.Printf("\n")
		}
		if err := s.scan(ctx, l, scan, &out); err != nil {
			return err
		}
	}
	for i, c := range p.Changes {
		if i+len(scans) > 0 {
			out.Printf("\n")
		}
		if err := s.stream(ctx, l, c, &out); err != nil {
			return err
		}
	}
	return out.Err
}

// nothing says that there is no ledger, and where it would be.
func (s *statusReport) nothing(p *pipeline.Pipeline, stdout io.Writer) error {
	out := terminal.Printer{Out: stdout}
	out.Printf("nothing of pipeline %s has run yet: there is no ledger %s\n", p.Name, setup.LedgerPlace(s.env, p).String())
	return out.Err
}

// scanState is one scan as of one moment.
type scanState struct {
	splits  []*ledger.Split // none of a scan that is finished, unless all are asked for
	total   ledger.Counts
	done    int // splits
	stopped bool
	name    string // of the state
}

func (s *statusReport) read(ctx context.Context, l *ledger.Ledger, scan *ledger.Scan) (scanState, error) {
	out := scanState{total: scan.Counts, done: scan.Splits - scan.Failed, name: string(scan.State)}
	if !scan.Finished() || s.all {
		err := l.Splits(ctx, scan, func(split *ledger.Split) error {
			out.splits = append(out.splits, split)
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	slices.SortFunc(out.splits, func(a, b *ledger.Split) int { return a.Index - b.Index })
	if !scan.Finished() {
		out.total, out.done = sum(out.splits)
	}
	if out.stopped = s.isStopped(scan, out.splits); out.stopped {
		out.name = "stopped"
	}
	return out, nil
}

// scan tells of one scan.
func (s *statusReport) scan(ctx context.Context, l *ledger.Ledger, scan *ledger.Scan, out *terminal.Printer) error {
	state, err := s.read(ctx, l, scan)
	if err != nil {
		return err
	}
	name := ""
	if scan.Name != "" { // else it was a request that named none
		name = " (" + scan.Name + ")"
	}
	out.Printf("scan %s%s: %s, %d of %d splits done, %s, %s, %d dropped, begun %s\n", scan.ID, name, state.name, state.done, scan.Splits,
		terminal.Plural(int(state.total.Rows), "row"), scanrun.Records(state.total.Records), state.total.Dropped, age(s.now(), scan.CreatedAt))
	if scan.Error != "" {
		out.Printf("  %s\n", scan.Error)
	}
	if state.stopped {
		if scan.Run.Ended != "" {
			out.Printf("  %s\n", scan.Run.Ended)
		}
		out.Printf("  to go on: %s\n", scanrun.Resumption(s.file, scan.Name, scan.ID))
	}
	if out.Err != nil {
		return out.Err
	}
	return s.splits(state.splits, out)
}

// isStopped reports whether a scan that a command has begun waits for one that goes on
// with it. Where the command runs elsewhere, this is known after the time of a lease.
func (s *statusReport) isStopped(scan *ledger.Scan, splits []*ledger.Split) bool {
	if scan.Finished() || scan.Run == nil {
		return false
	}
	moved := scan.CreatedAt
	for _, split := range splits {
		if split.Holder != "" && split.Until.After(s.now()) && !process.Died(split.Holder) {
			return false
		}
		if split.UpdatedAt.After(moved) {
			moved = split.UpdatedAt
		}
	}
	switch by := scan.Run.Holder; {
	case by == "" || process.Died(by):
		return true
	case process.Alive(by):
		return false
	}
	return s.now().Sub(moved) >= ledger.LeaseTime
}

// sum adds up splits and counts those that are done.
func sum(splits []*ledger.Split) (total ledger.Counts, done int) {
	for _, split := range splits {
		total.Rows += split.Rows
		total.Records += split.Records
		total.Dropped += split.Dropped
		if split.State == ledger.SplitDone {
			done++
		}
	}
	return total, done
}

func (s *statusReport) splits(splits []*ledger.Split, out *terminal.Printer) error {
	w := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
	table := terminal.Printer{Out: w}
	head := false
	perRow := scanrun.BytesPerRow(splits)
	for _, split := range splits {
		if split.State == ledger.SplitDone && !s.all {
			continue
		}
		if !head {
			head = true
			table.Printf("  SPLIT\tSTATE\tREAD\tROWS\tFENCE\tCHANGED\tHOLDER\tLAST ERROR\n")
		}
		read := "-"
		if share, known := scanrun.SplitShare(split, perRow); split.State == ledger.SplitDone {
			read = "100%"
		} else if known {
			read = fmt.Sprintf("%.0f%%", 100*min(0.99, share)) // it is an estimate
		}
		table.Printf("  %d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", split.Index, string(split.State), read, split.Rows,
			split.Fence, age(s.now(), split.UpdatedAt), s.leaseOf(split), split.LastError)
	}
	return errors.Join(table.Err, w.Flush())
}

// leaseOf names who holds a split's lease, and for how long if it commits nothing more.
func (s *statusReport) leaseOf(split *ledger.Split) string {
	if split.Holder == "" {
		return "-"
	}
	if left := split.Until.Sub(s.now()); left > 0 {
		return held(split.Holder, left)
	}
	return split.Holder.String() + " (its lease is over)"
}

// held names a holder, and says for how long it has its lease.
func held(holder ledger.Holder, left time.Duration) string {
	if process.Died(holder) {
		return holder.String() + " (has died)"
	}
	return fmt.Sprintf("%s (for %s)", holder.String(), max(time.Second, left.Round(time.Second)))
}

// age says how long ago a time was.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Minute)
	}
	return d.String() + " ago"
}
