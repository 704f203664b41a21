// Package testrun runs the tests of pipeline files and prints how they went, for btf test. It
// guarantees that a file that cannot be loaded keeps no other file's tests from running.
package testrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/filewatch"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipetest"
)

// Tester runs tests.
type Tester struct {
	Env assemble.Env
	Out io.Writer // takes the results
}

// counts says how the tests of a file went.
type counts struct{ run, failed int }

// Run runs the tests of all files, and fails if one of them does.
func (t *Tester) Run(files []string) error {
	var sum counts
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
func (t *Tester) file(file string) (counts, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return counts{}, fmt.Errorf("reading the pipeline file: %w", err)
	}
	return t.text(file, text)
}

func (t *Tester) text(file string, text []byte) (counts, error) {
	var n counts
	loaded, findings := lint.Load(text, t.Env.PipelineOptions(file))
	if loaded == nil {
		return n, findings.Err()
	}
	suite, err := pipetest.New(loaded.Pipeline, loaded.Write)
	if err != nil {
		return n, err
	}
	p := &terminal.Printer{Out: t.Out}
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

// Follow runs the tests of all files, and those of a file again when its text changes, until ctx
// ends.
func (t *Tester) Follow(ctx context.Context, files []string) (err error) {
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
		all = append(all, &followed{Tester: t, file: file, watcher: w, mu: &mu})
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
	*Tester
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
	p := &terminal.Printer{Out: f.Out}
	var n counts
	if err == nil {
		f.text = text
		n, err = f.Tester.text(f.file, text)
	}
	if err == nil {
		p.Printf("%s: %s, %d failed; waiting for a change\n", f.file, terminal.Plural(n.run, "test"), n.failed)
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p.Printf("%s\n", line)
	}
}
