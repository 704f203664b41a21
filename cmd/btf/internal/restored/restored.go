// Package restored goes on with change streams after their ledger was restored from a backup, for btf
// restored. It guarantees that it makes no ledger.
package restored

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Config says of which change streams the ledger was restored.
type Config struct {
	Env    assemble.Env
	File   string // of the pipeline
	Name   string // of the change stream; empty: all of the file
	Stdout io.Writer
}

// Run begins an epoch of each change stream. It fails if the ledger has none of them.
func Run(ctx context.Context, cfg Config) (err error) {
	p, err := setup.ParseFile(cfg.Env, cfg.File)
	if err != nil {
		return err
	}
	streams := p.Changes
	if cfg.Name != "" {
		streams = slices.DeleteFunc(slices.Clone(streams), func(c *pipeline.Change) bool { return c.Name != cfg.Name })
	}
	if len(streams) == 0 {
		return fmt.Errorf("%s has no change stream %s", cfg.File, cfg.Name)
	}
	l, closer, err := open(ctx, cfg.Env, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer()) }()
	begun := 0
	for _, c := range streams {
		found, err := goOn(ctx, cfg.Stdout, l, c)
		if err != nil {
			return err
		}
		if found {
			begun++
		}
	}
	if begun == 0 {
		return fmt.Errorf("the ledger %s has no change stream of %s: is it the one that was restored?", setup.LedgerPlace(cfg.Env, p).String(), cfg.File)
	}
	return nil
}

// open opens the ledger, and makes none.
func open(ctx context.Context, env assemble.Env, p *pipeline.Pipeline) (*ledger.Ledger, func() error, error) {
	_, closer, err := setup.ReadLedger(ctx, env, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no ledger %s", setup.LedgerPlace(env, p).String())
	}
	if err == nil {
		err = closer()
	}
	if err != nil {
		return nil, nil, err
	}
	return setup.OpenLedger(ctx, env, p)
}

// goOn goes on with one change stream, and reports whether the ledger has it.
func goOn(ctx context.Context, stdout io.Writer, l *ledger.Ledger, c *pipeline.Change) (bool, error) {
	epoch, err := l.BeginEpoch(ctx, ledger.StreamID{Name: c.Name, Table: c.Table.Ref().String()}, process.Self())
	out := terminal.Printer{Out: stdout}
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
