// Package dev runs a pipeline on this machine while its file is edited, for btf dev. It guarantees
// that deliveries meet the newest version of the file that can be loaded, and that a version that
// cannot be loaded changes nothing.
package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/devledger"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/filewatch"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Config says what is run, and where that is told.
type Config struct {
	Env  assemble.Env
	File string // of the pipeline
	// Stdout takes the variables that point clients to what runs, for a shell.
	Stdout io.Writer
	// Stderr takes everything else.
	Stderr io.Writer
	// Clock is the time by which scans with a schedule are started.
	Clock Clock
}

// Dev is a pipeline that runs while its file is edited.
type Dev struct {
	// Local is what runs.
	Local *localdeploy.Deployment

	cfg       Config
	name      string // of the pipeline
	tell      *teller
	reports   *reports
	announced announcements
	watcher   *filewatch.Watcher
	open      closers.Stack
	text      []byte // of the file, as it was loaded or refused last
	running   atomic.Pointer[lint.Loaded]
	reloaded  chan struct{} // holds one; asks for a tick
}

// Start runs the pipeline, and prints how to reach its parts. The caller closes what it returns.
func Start(ctx context.Context, cfg Config) (_ *Dev, err error) {
	d := &Dev{cfg: cfg, tell: &teller{out: cfg.Stderr}, reloaded: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.watcher, err = filewatch.New(cfg.File); err != nil {
		return nil, err
	}
	d.open.Add(d.watcher.Close)
	if d.text, err = os.ReadFile(cfg.File); err != nil {
		return nil, fmt.Errorf("reading the pipeline file: %w", err)
	}
	loaded, err := d.load(d.text)
	if err != nil {
		return nil, err
	}
	d.name = loaded.Pipeline.Name
	d.running.Store(loaded)
	own := &ownLedger{pipelineName: d.name}
	d.open.Add(own.close)
	d.reports = newReports(d.tell)
	d.open.Add(d.reports.close)
	if d.Local, err = localdeploy.Start(ctx, loaded, d.reports.options(own)); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cfg.File, err)
	}
	d.open.Add(d.Local.Close)
	d.announced = announcements{tell: d.tell, stdout: cfg.Stdout, file: cfg.File, pipelineName: d.name, local: d.Local, ledger: own}
	return d, d.announced.start(loaded.Pipeline)
}

// Run runs the pipeline anew whenever its file changes, starts scans that are due and sends ticks,
// until ctx ends.
func (d *Dev) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var scheduling sync.WaitGroup
	defer scheduling.Wait()
	defer cancel()
	scheduling.Go(func() { d.startScheduled(ctx) })
	scheduling.Go(func() { d.tick(ctx) })
	return d.watcher.Run(ctx, func() { d.reload(ctx) })
}

// Close ends what runs.
func (d *Dev) Close() error { return d.open.Close() }

// ownLedger is the ledger of a btf dev, which is made when the file first has scans or changes.
type ownLedger struct {
	pipelineName string
	made         *devledger.Ledger // nil before
}

func (o *ownLedger) open(ctx context.Context) (*ledger.Ledger, error) {
	l, err := devledger.Create(ctx, o.pipelineName)
	if err != nil {
		return nil, err
	}
	o.made = l
	return l.Ledger, nil
}

func (o *ownLedger) close() error {
	if o.made == nil {
		return nil
	}
	return o.made.Close()
}

// load loads a text of the file and tells of its warnings.
func (d *Dev) load(text []byte) (*lint.Loaded, error) {
	loaded, findings := lint.Load(text, d.cfg.Env.PipelineOptions(d.cfg.File))
	if err := findings.Err(); err != nil {
		return nil, err
	}
	for _, f := range findings {
		if f.Severity == lint.Warning {
			d.tell.line("%s", f)
		}
	}
	return loaded, nil
}

// reload deploys the file's new text, or says why the version before stays.
func (d *Dev) reload(ctx context.Context) {
	text, err := os.ReadFile(d.cfg.File)
	if err == nil && bytes.Equal(text, d.text) {
		return
	}
	if err == nil {
		d.text = text
		err = d.deploy(ctx, text)
	}
	if err == nil {
		d.tell.line("reloaded %s", d.cfg.File)
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		d.tell.line("%s", line)
	}
	d.tell.line("kept the version before, which still runs")
}

func (d *Dev) deploy(ctx context.Context, text []byte) error {
	loaded, err := d.load(text)
	if err != nil {
		return err
	}
	p, before := loaded.Pipeline, d.running.Load()
	switch {
	case p.Name != d.name:
		return fmt.Errorf("%s: the name is now %s: topics have the name they were made with, so start btf dev again", d.cfg.File, p.Name)
	case lacksService(loaded, before):
		return fmt.Errorf("%s: the write section, the scans or the changes are gone: subscriptions stay as they were made, so start btf dev again", d.cfg.File)
	case before.Pipeline.Write != nil && p.Write.Ordered != before.Pipeline.Write.Ordered:
		return fmt.Errorf("%s: write.ordered changed: a subscription stays as it was made, so start btf dev again", d.cfg.File)
	}
	if err := d.Local.Deploy(ctx, loaded); err != nil {
		return err
	}
	d.running.Store(loaded)
	select {
	case d.reloaded <- struct{}{}:
	default: // a tick is about to be sent
	}
	return d.announced.reads(p)
}

// lacksService reports whether a function that was deployed for the version before has no work in
// the new one.
func lacksService(loaded, before *lint.Loaded) bool {
	return slices.ContainsFunc(before.Report.Resources.Services, func(s lint.Service) bool {
		return !slices.Contains(loaded.Report.Resources.Services, s)
	})
}
