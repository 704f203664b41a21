package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/pipetest"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

func explainCommand(env assemble.Env) *cobra.Command {
	e := explainer{env: env}
	cmd := &cobra.Command{
		Use:   "explain FILE MESSAGE",
		Short: "Say what a pipeline would do with a message",
		Long: "Says for each record of a message which mappings take it and why others do not, and prints the\n" +
			"rows that they make, one mutation a line, in the order in which they would be applied. MESSAGE\n" +
			"is a file, or - for stdin: the body of a push request, or a bare payload, which then has the id\n" +
			"and publish time that a test without them has. Writes nothing.\n" +
			"BIGTABLE_PROJECT and BIGTABLE_INSTANCE replace the file's defaults.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.stdin, e.stdout = cmd.InOrStdin(), cmd.OutOrStdout()
			return e.run(args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&e.asTest, "as-test", false, "print an entry for the file's tests instead, which passes")
	return cmd
}

type explainer struct {
	env    assemble.Env
	asTest bool
	stdin  io.Reader
	stdout io.Writer
}

func (e *explainer) run(path, from string) error {
	suite, file, err := e.load(path)
	if err != nil {
		return err
	}
	m, bare, err := e.message(from)
	if err != nil {
		return err
	}
	if e.asTest {
		text, err := suite.AsTest(m)
		if err != nil {
			return fmt.Errorf("writing a test: %w", err)
		}
		// It is YAML with nothing unprintable in it; escaping it again would change it.
		if _, err := io.WriteString(e.stdout, text); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	lines, err := suite.Explain(m, time.Now())
	if err != nil {
		return err
	}
	p := &terminal.Printer{Out: e.stdout}
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

func (e *explainer) load(file string) (*pipetest.Suite, *pipeline.Pipeline, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the pipeline file: %w", err)
	}
	loaded, findings := loadPipeline(e.env, file, text)
	if loaded == nil {
		return nil, nil, findings.Err()
	}
	if loaded.Write == nil {
		return nil, nil, fmt.Errorf("%s: no write section, so that no message comes to it%s", file, scansHint(loaded.Pipeline))
	}
	suite, err := suiteOf(loaded)
	return suite, loaded.Pipeline, err
}

// message reads the message, and whether it is a bare payload.
func (e *explainer) message(from string) (_ *push.Message, bare bool, err error) {
	var body []byte
	if from == "-" {
		body, err = io.ReadAll(e.stdin)
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
