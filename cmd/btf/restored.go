package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func restoredCommand(env assemble.Env) *cobra.Command {
	r := restoring{env: env}
	cmd := &cobra.Command{
		Use:   "restored -f FILE [NAME]",
		Short: "Go on with change streams after the ledger was restored from a backup",
		Long: "Call it once the ledger (LEDGER, or .btf/PIPELINE.db) was restored from a backup, before the function\n" +
			"changes uses it. All change streams of the file, or the one that NAME names, go on at their positions\n" +
			"in the backup, and what is still under way from before the restore cannot change them any more.\n" +
			"What has changed since the backup is delivered again. It may be called more than once.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.stdout, r.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if len(args) > 0 {
				r.name = args[0]
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&r.file, "file", "f", "", "the pipeline file (required)")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// restoring is one run of btf restored.
type restoring struct {
	env            assemble.Env
	file, name     string
	stdout, stderr io.Writer
}

func (r *restoring) run(ctx context.Context) (err error) {
	p, err := setup.ParseFile(r.env, r.file)
	if err != nil {
		return err
	}
	streams := p.Changes
	if r.name != "" {
		streams = slices.DeleteFunc(slices.Clone(streams), func(c *pipeline.Change) bool { return c.Name != r.name })
	}
	if len(streams) == 0 {
		return fmt.Errorf("%s has no change stream %s", r.file, r.name)
	}
	l, closer, err := r.open(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer()) }()
	begun := 0
	for _, c := range streams {
		found, err := r.stream(ctx, l, c)
		if err != nil {
			return err
		}
		if found {
			begun++
		}
	}
	if begun == 0 {
		return fmt.Errorf("the ledger %s has no change stream of %s: is it the one that was restored?", setup.LedgerPlace(r.env, p).String(), r.file)
	}
	return nil
}

// open opens the ledger, and makes none.
func (r *restoring) open(ctx context.Context, p *pipeline.Pipeline) (*ledger.Ledger, func() error, error) {
	_, closer, err := setup.ReadLedger(ctx, r.env, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no ledger %s", setup.LedgerPlace(r.env, p).String())
	}
	if err == nil {
		err = closer()
	}
	if err != nil {
		return nil, nil, err
	}
	return setup.OpenLedger(ctx, r.env, p)
}

// stream goes on with one change stream, and reports whether the ledger has it.
func (r *restoring) stream(ctx context.Context, l *ledger.Ledger, c *pipeline.Change) (bool, error) {
	epoch, err := l.BeginEpoch(ctx, ledger.StreamID{Name: c.Name, Table: c.Table.Ref().String()}, process.Self())
	out := terminal.Printer{Out: r.stdout}
	if errors.Is(err, ledger.ErrNotFound) {
		out.Printf("change stream %s is not in the backup: its next tick begins it anew, at its start\n", c.Name)
		return false, out.Err
	}
	if err != nil {
		return false, err
	}
	out.Printf("change stream %s goes on: %s", c.Name, terminal.Plural(epoch.Partitions, "partition"))
	if !epoch.LowWatermark.IsZero() {
		out.Printf(", the oldest position is from %s", terminal.Ago(time.Now(), epoch.LowWatermark))
	}
	out.Printf("\n")
	return true, out.Err
}
