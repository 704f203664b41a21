package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/deployment"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

func lintCommand(env assemble.Env) *cobra.Command {
	l := linter{env: env}
	cmd := &cobra.Command{
		Use:   "lint FILE…",
		Short: "Check pipeline files and say what a second delivery does to each mapping's rows",
		Long: "Reads, compiles and checks pipeline files without running them. Prints every fault, warning\n" +
			"and note with its place, and for each mapping what a second delivery of a message does.\n" +
			"Exits 1 where a file has an error; warnings and notes are for the reader to weigh.\n" +
			"BIGTABLE_PROJECT and BIGTABLE_INSTANCE replace the file's defaults, as in a deployment.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return l.run(files, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&l.json, "json", false, "print one JSON array with an object for each file, grants and resources included")
	cmd.Flags().BoolVar(&l.grants, "grants", false, "print the roles that the pipeline needs, by principal")
	cmd.Flags().BoolVar(&l.resources, "resources", false, "print the services, topics, subscriptions and schedules that it needs")
	return cmd
}

type linter struct {
	env                     assemble.Env
	json, grants, resources bool
}

// linted is what --json prints of a file. Its fields are a contract.
type linted struct {
	File      string          `json:"file"`
	Pipeline  string          `json:"pipeline,omitempty"` // absent where the file cannot be read
	Findings  []findingJSON   `json:"findings"`
	Replays   []replayJSON    `json:"replays,omitempty"`
	Grants    []lint.Grant    `json:"grants,omitempty"`
	Resources *lint.Resources `json:"resources,omitempty"`

	findings lint.Findings
	replays  []lint.Replay
}

type findingJSON struct {
	Severity lint.Severity `json:"severity"`
	Rule     lint.Rule     `json:"rule"`
	Line     int           `json:"line"`
	Column   int           `json:"column"`
	Place    string        `json:"place,omitempty"`
	Message  string        `json:"message"`
}

type replayJSON struct {
	Mapping   string         `json:"mapping"`
	Line      int            `json:"line"`
	Column    int            `json:"column"`
	Verdict   lint.Verdict   `json:"verdict"` // the worst of the mutations'
	Meaning   string         `json:"meaning"`
	Mutations []mutationJSON `json:"mutations"`
}

type mutationJSON struct {
	Kind    pipeline.MutationKind `json:"kind"`
	Line    int                   `json:"line"`
	Column  int                   `json:"column"`
	Verdict lint.Verdict          `json:"verdict"`
	Why     string                `json:"why"`
}

func (l *linter) run(files []string, stdout io.Writer) error {
	all := make([]linted, len(files))
	faulty, faults := 0, 0
	for i, file := range files {
		all[i] = l.file(file)
		if n := all[i].findings.Count(lint.Error); n > 0 {
			faulty++
			faults += n
		}
	}
	if err := l.print(all, stdout); err != nil {
		return err
	}
	if faults > 0 {
		return fmt.Errorf("%s in %d of %d files", terminal.Plural(faults, "error"), faulty, len(files))
	}
	return nil
}

// loadPipeline reads a pipeline file as a deployment would.
func loadPipeline(env assemble.Env, file string, data []byte) (*lint.Loaded, lint.Findings) {
	return lint.Load(data, env.PipelineOptions(file))
}

func (l *linter) file(file string) linted {
	out := linted{File: file, Findings: []findingJSON{}}
	data, err := os.ReadFile(file)
	if err != nil {
		out.findings = lint.Findings{{Severity: lint.Error, Rule: lint.RuleParse, Pos: pipeline.Pos{File: file, Line: 1, Column: 1}, Message: err.Error()}}
	} else {
		var loaded *lint.Loaded
		if loaded, out.findings = loadPipeline(l.env, file, data); loaded != nil {
			out.Pipeline, out.replays = loaded.Pipeline.Name, loaded.Report.Replays
			out.Grants, out.Resources = loaded.Report.Grants, &loaded.Report.Resources
		}
	}
	for _, f := range out.findings {
		out.Findings = append(out.Findings, findingJSON{f.Severity, f.Rule, f.Pos.Line, f.Pos.Column, f.Place, f.Message})
	}
	for _, r := range out.replays {
		mutations := make([]mutationJSON, len(r.Mutations))
		for i, m := range r.Mutations {
			mutations[i] = mutationJSON{m.Kind, m.Pos.Line, m.Pos.Column, m.Verdict, m.Why}
		}
		out.Replays = append(out.Replays, replayJSON{r.Mapping, r.Pos.Line, r.Pos.Column, r.Verdict, r.Verdict.Meaning(), mutations})
	}
	return out
}

func (l *linter) print(all []linted, stdout io.Writer) error {
	if l.json {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(all); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	p := &terminal.Printer{Out: stdout}
	for i := range all {
		f := &all[i]
		for _, finding := range f.findings {
			p.Printf("%s [%s]\n", finding, finding.Rule)
		}
		for _, r := range f.replays {
			p.Printf("%s: mapping %s: %s: %s\n", r.Pos, r.Mapping, r.Verdict, r.Verdict.Meaning())
		}
		if l.grants {
			deployment.PrintGrants(p, f.File, f.Grants)
		}
		if l.resources && f.Resources != nil {
			deployment.PrintResources(p, f.File, f.Resources)
		}
	}
	return p.Err
}
