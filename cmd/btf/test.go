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

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/filewatch"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipetest"
)

func testCommand(env assemble.Env) *cobra.Command {
	t := tester{env: env}
	cmd := &cobra.Command{
		Use:   "test FILE…",
		Short: "Run the tests of pipeline files",
		Long: "Runs each entry of tests: maps its message as the function write would and compares every\n" +
			"mutation of every row; of a scan, compares what emit makes of a row. Where they differ, lines\n" +
			"with - are expected and lines with + are what came. Exits 1 when a test fails or a file cannot\n" +
			"be loaded. BIGTABLE_PROJECT and BIGTABLE_INSTANCE replace the file's defaults.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			t.stdout = cmd.OutOrStdout()
			if t.watch {
				return t.follow(cmd.Context(), files)
			}
			return t.run(files)
		},
	}
	cmd.Flags().BoolVar(&t.watch, "watch", false, "run a file's tests again whenever it changes, until interrupted")
	return cmd
}

type tester struct {
	env    assemble.Env
	watch  bool
	stdout io.Writer
}

// testCounts says how the tests of a file went.
type testCounts struct{ run, failed int }

// run runs the tests of all files, and fails where one does.
func (t *tester) run(files []string) error {
	var sum testCounts
	var errs []error
	for _, file := range files {
		n, err := t.file(file)
		errs = append(errs, err)
		sum.run += n.run
		sum.failed += n.failed
	}
	if sum.failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %s failed", sum.failed, terminal.Plural(sum.run, "test")))
	}
	return errors.Join(errs...)
}

// file loads a file, runs its tests and tells of each.
func (t *tester) file(file string) (testCounts, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return testCounts{}, fmt.Errorf("reading the pipeline file: %w", err)
	}
	return t.text(file, text)
}

func (t *tester) text(file string, text []byte) (testCounts, error) {
	var n testCounts
	loaded, findings := loadPipeline(t.env, file, text)
	if loaded == nil {
		return n, findings.Err()
	}
	suite, err := suiteOf(loaded)
	if err != nil {
		return n, err
	}
	p := &terminal.Printer{Out: t.stdout}
	for _, test := range loaded.Pipeline.Tests {
		n.run++
		problems := suite.Run(test)
		if len(problems) == 0 {
			p.Printf("ok    %s: %s\n", file, test.Name)
			continue
		}
		n.failed++
		p.Printf("FAIL  %s: %s\n", test.Pos, test.Name)
		for _, problem := range problems {
			p.Printf("      %s: %s\n", problem.Pos, problem.Text)
			for _, line := range problem.Lines {
				p.Printf("        %s\n", line)
			}
		}
	}
	if n.run == 0 {
		p.Printf("      %s has no tests\n", file)
	}
	return n, p.Err
}

func suiteOf(l *lint.Loaded) (*pipetest.Suite, error) { return pipetest.New(l.Pipeline, l.Write) }

// follow runs the tests of all files, and those of a file again when its text changes.
func (t *tester) follow(ctx context.Context, files []string) (err error) {
	var all []*followed
	defer func() {
		for _, f := range all {
			err = errors.Join(err, f.watcher.Close())
		}
	}()
	var mu sync.Mutex
	for _, file := range files {
		w, err := filewatch.New(file)
		if err != nil {
			return err
		}
		all = append(all, &followed{tester: t, file: file, watcher: w, mu: &mu})
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range all {
		g.Go(func() error {
			f.again()
			return f.watcher.Run(ctx, f.again)
		})
	}
	return g.Wait()
}

// followed is one file that is watched.
type followed struct {
	*tester
	file    string
	watcher *filewatch.Watcher
	mu      *sync.Mutex // one file is told of at a time
	text    []byte      // as it was tested last
}

// again runs the tests unless the text is what it was. A terminal that is gone is no
// reason to stop.
func (f *followed) again() {
	text, err := os.ReadFile(f.file)
	if err == nil && f.text != nil && bytes.Equal(text, f.text) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &terminal.Printer{Out: f.stdout}
	var n testCounts
	if err == nil {
		f.text = text
		n, err = f.tester.text(f.file, text)
	}
	if err == nil {
		p.Printf("%s: %s, %d failed; waiting for a change\n", f.file, terminal.Plural(n.run, "test"), n.failed)
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p.Printf("%s\n", line)
	}
}
