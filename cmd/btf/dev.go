package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/devledger"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/filewatch"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func devCommand(env assemble.Env) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "dev -f FILE",
		Short: "Run a pipeline on this machine, and again whenever its file changes",
		Long: "Runs an embedded Bigtable with the file's tables, a Pub/Sub with its topics, and the functions\n" +
			"for its write section, its scans and its change streams behind push subscriptions, until\n" +
			"interrupted. Prints the variables that point clients to them. Scans with a schedule are started\n" +
			"when they are due. Tables whose changes are read have a change stream, with a tick every few seconds.\n" +
			"When the file changes it is loaded again: what the next delivery meets is the new version.\n" +
			"One that cannot be loaded is told of, and the version before stays. Data is gone when it\n" +
			"ends, and with it the ledger, which is one of its own (.btf/PIPELINE.dev.db).",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &dev{env: env, file: file, stdout: cmd.OutOrStdout(), tell: &teller{out: cmd.ErrOrStderr()}, clock: systemClock()}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the pipeline file")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // there is no such flag
	}
	return cmd
}

// dev is a pipeline that runs while its file is edited.
type dev struct {
	env      assemble.Env
	file     string
	stdout   io.Writer
	tell     *teller
	sums     *tally // of deliveries to write, and of warnings
	ends     splitEnds
	clock    clock
	name     string // of the pipeline
	local    *localdeploy.Deployment
	ledger   *devledger.Ledger // nil until the file has scans or changes
	placed   bool              // the place of the ledger was printed
	told     map[string]string // what was told of each scan; nil until the file has some
	streams  map[string]string // what was told of each change stream
	text     []byte            // as it was loaded or refused last
	pipeline atomic.Pointer[pipeline.Pipeline]
	reloaded chan struct{} // holds one; asks for a tick
}

func (d *dev) run(ctx context.Context) (err error) {
	w, err := filewatch.New(d.file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if d.text, err = os.ReadFile(d.file); err != nil {
		return fmt.Errorf("reading the pipeline file: %w", err)
	}
	loaded, err := d.load(d.text)
	if err != nil {
		return err
	}
	d.name = loaded.Pipeline.Name
	d.pipeline.Store(loaded.Pipeline)
	defer func() {
		if d.ledger != nil {
			err = errors.Join(err, d.ledger.Close())
		}
	}()
	d.reloaded = make(chan struct{}, 1)
	d.sums = newTally(d.tell.line)
	defer d.sums.close()
	if d.local, err = localdeploy.Start(ctx, loaded, d.options()); err != nil {
		return fmt.Errorf("starting %s: %w", d.file, err)
	}
	defer func() { err = errors.Join(err, d.local.Close()) }()
	if err := d.endpoints(loaded.Pipeline); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var scheduling sync.WaitGroup
	defer scheduling.Wait()
	defer cancel()
	scheduling.Go(func() { d.startScheduled(ctx) })
	scheduling.Go(func() { d.tick(ctx) })
	return w.Run(ctx, func() { d.reload(ctx) })
}

// load loads a text of the file and tells of its warnings.
func (d *dev) load(text []byte) (*lint.Loaded, error) {
	loaded, findings := loadPipeline(d.env, d.file, text)
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

// endpoints prints how to reach the parts: variables on stdout, to be sourced by a
// shell, and the rest for a reader.
func (d *dev) endpoints(file *pipeline.Pipeline) error {
	p := &terminal.Printer{Out: d.stdout}
	p.Printf("export BIGTABLE_EMULATOR_HOST=%s\n", d.local.Bigtable)
	p.Printf("export PUBSUB_EMULATOR_HOST=%s\n", d.local.Cloud.Addr())
	p.Printf("export PUBSUB_PROJECT=%s\n", localdeploy.Project)
	for _, table := range file.Tables {
		if table.IDFrom.IsZero() {
			d.tell.line("table %s", table.Ref())
		}
	}
	if url := d.local.ServiceURL(d.name + "-" + string(lint.Write)); url != "" {
		d.tell.line("topic %s, whose messages go to the function write at %s", localdeploy.TopicName(pipeline.TopicEvents.Of(d.name)), url)
	}
	err := errors.Join(p.Err, d.tellReads(file))
	d.tell.line("running %s; change it and save, or end with Ctrl-C", d.file)
	return err
}

// reload deploys the file's new text, or says why the version before stays.
func (d *dev) reload(ctx context.Context) {
	text, err := os.ReadFile(d.file)
	if err == nil && bytes.Equal(text, d.text) {
		return
	}
	if err == nil {
		d.text = text
		err = d.deploy(ctx, text)
	}
	if err == nil {
		d.tell.line("reloaded %s", d.file)
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		d.tell.line("%s", line)
	}
	d.tell.line("kept the version before, which still runs")
}

func (d *dev) deploy(ctx context.Context, text []byte) error {
	loaded, err := d.load(text)
	if err != nil {
		return err
	}
	p, before := loaded.Pipeline, d.pipeline.Load()
	switch {
	case p.Name != d.name:
		return fmt.Errorf("%s: the name is now %s: topics have the name they were made with, so start btf dev again", d.file, p.Name)
	case before.Write != nil && p.Write == nil, len(before.Scans) > 0 && len(p.Scans) == 0, len(before.Changes) > 0 && len(p.Changes) == 0:
		return fmt.Errorf("%s: the write section, the scans or the changes are gone: subscriptions stay as they were made, so start btf dev again", d.file)
	case before.Write != nil && p.Write.Ordered != before.Write.Ordered:
		return fmt.Errorf("%s: write.ordered changed: a subscription stays as it was made, so start btf dev again", d.file)
	}
	if err := d.local.Deploy(ctx, loaded); err != nil {
		return err
	}
	d.pipeline.Store(p)
	select {
	case d.reloaded <- struct{}{}:
	default: // a tick is about to be sent
	}
	return d.tellReads(p)
}
