// Package explain says what a pipeline would do with one message, for btf explain. It guarantees that
// nothing is written anywhere.
package explain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/pipetest"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// Explainer explains messages.
type Explainer struct {
	Env assemble.Env
	// AsTest prints an entry for the tests of the pipeline file instead, which passes.
	AsTest bool
	Stdin  io.Reader
	Stdout io.Writer
}

// Explain explains a message of the pipeline file at path. from is the file that has the message, or
// - for Stdin.
func (e *Explainer) Explain(path, from string) error {
	suite, file, err := e.load(path)
	if err != nil {
		return err
	}
	m, bare, err := e.message(from)
	if err != nil {
		return err
	}
	if e.AsTest {
		text, err := suite.AsTest(m)
		if err != nil {
			return fmt.Errorf("writing a test: %w", err)
		}
		// It is YAML with nothing unprintable in it; escaping it again would change it.
		if _, err := io.WriteString(e.Stdout, text); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	lines, err := suite.Explain(m, time.Now())
	if err != nil {
		return err
	}
	p := &terminal.Printer{Out: e.Stdout}
	kind := "a push body"
	if bare {
		kind = "a bare payload"
	}
	p.Printf("%s: message %q, published %s\n", kind, m.ID, terminal.PublishTime(m.PublishTime))
	for _, line := range lines {
		p.Printf("%s\n", line)
	}
	for _, m := range file.Write.Mappings {
		if m.Dedupe != pipeline.DedupeNone {
			p.Printf("note: %s\n", lint.Renaming(m.Name))
		}
	}
	return p.Err
}

func (e *Explainer) load(file string) (*pipetest.Suite, *pipeline.Pipeline, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the pipeline file: %w", err)
	}
	loaded, findings := lint.Load(text, e.Env.PipelineOptions(file))
	if loaded == nil {
		return nil, nil, findings.Err()
	}
	if loaded.Write == nil {
		return nil, nil, fmt.Errorf("%s: no write section, so that no message comes to it%s", file, scansHint(loaded.Pipeline))
	}
	suite, err := pipetest.New(loaded.Pipeline, loaded.Write)
	return suite, loaded.Pipeline, err
}

// message reads the message, and whether it is a bare payload.
func (e *Explainer) message(from string) (_ *push.Message, bare bool, err error) {
	var body []byte
	if from == "-" {
		body, err = io.ReadAll(e.Stdin)
	} else {
		body, err = os.ReadFile(from)
	}
	switch {
	case err != nil && looksLikeJSON(from):
		return nil, false, errors.New("MESSAGE is a file, or - for stdin, and not the message itself: write it to one, or pipe it in, as in echo '{…}' | btf explain FILE -")
	case err != nil:
		return nil, false, fmt.Errorf("reading the message: %w", err)
	}
	m, isPush, err := push.ParseBody(body)
	if err != nil {
		return nil, false, fmt.Errorf("the message: %w", err)
	}
	if !isPush {
		return pipetest.DefaultMessage(body), true, nil
	}
	return &m, false, nil
}

// looksLikeJSON reports whether a text begins as an object or a list does.
func looksLikeJSON(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
}

// scansHint says how to see what a scan makes of a row.
func scansHint(p *pipeline.Pipeline) string {
	if len(p.Scans) == 0 {
		return ""
	}
	return "; to see what scan " + p.Scans[0].Name + " makes of a row, write an entry of tests with row, and run btf test"
}
