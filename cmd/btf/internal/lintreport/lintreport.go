// Package lintreport prints what lint finds in pipeline files, for btf lint. It guarantees that a file
// that cannot be read is a finding like any other.
package lintreport

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/resourcereport"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Report is what is found of several files, in their order.
type Report []File

// File is what is found of one file. As JSON its fields are a contract.
type File struct {
	Name      string          `json:"file"`
	Pipeline  string          `json:"pipeline,omitempty"` // absent if the file cannot be read
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

// Of checks the files.
func Of(env assemble.Env, files []string) Report {
	report := make(Report, len(files))
	for i, file := range files {
		report[i] = check(env, file)
	}
	return report
}

// Err says how many errors the files have, and is nil if they have none.
func (r Report) Err() error {
	faulty, faults := 0, 0
	for i := range r {
		if n := r[i].findings.Count(lint.Error); n > 0 {
			faulty++
			faults += n
		}
	}
	if faults == 0 {
		return nil
	}
	return fmt.Errorf("%s in %d of %d files", terminal.Plural(faults, "error"), faulty, len(r))
}

func check(env assemble.Env, file string) File {
	out := File{Name: file, Findings: []findingJSON{}}
	data, err := os.ReadFile(file)
	if err != nil {
		out.findings = lint.Findings{{Severity: lint.Error, Rule: lint.RuleParse, Pos: pipeline.Pos{File: file, Line: 1, Column: 1}, Message: err.Error()}}
	} else {
		var loaded *lint.Loaded
		if loaded, out.findings = lint.Load(data, env.PipelineOptions(file)); loaded != nil {
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

// PrintJSON prints the report as one array.
func (r Report) PrintJSON(stdout io.Writer) error {
	enc := json.NewEncoder(stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// Print prints the report for a reader, with the roles and resources that the pipelines need if
// they are asked for.
func (r Report) Print(stdout io.Writer, grants, resources bool) error {
	p := &terminal.Printer{Out: stdout}
	for i := range r {
		f := &r[i]
		for _, finding := range f.findings {
			p.Printf("%s [%s]\n", finding, finding.Rule)
		}
		for _, replay := range f.replays {
			p.Printf("%s: mapping %s: %s: %s\n", replay.Pos, replay.Mapping, replay.Verdict, replay.Verdict.Meaning())
		}
		if grants {
			resourcereport.PrintGrants(p, f.Name, f.Grants)
		}
		if resources && f.Resources != nil {
			resourcereport.PrintResources(p, f.Name, f.Resources)
		}
	}
	return p.Err
}
