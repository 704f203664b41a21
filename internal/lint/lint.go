// Package lint guarantees to say of a pipeline file, without running anything, what a
// second delivery does to each mapping's rows, which keys make hot spots, and which
// roles, topics, subscriptions and schedules the file needs.
//
// Findings quote nothing but the pipeline file.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Severity says how much a finding matters.
type Severity string

// Values of Severity. An error keeps a pipeline from being deployed.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Rule names what was checked.
type Rule string

// Values of Rule.
const (
	RuleParse    Rule = "parse"         // the file's form and references
	RuleCompile  Rule = "compile"       // its expressions
	RuleType     Rule = "type"          // a value that its place never takes
	RuleRecount  Rule = "counts-again"  // a second delivery adds a second time
	RuleNewer    Rule = "removes-newer" // a second delivery can remove newer data
	RuleLateSet  Rule = "late-set"      // a set that is late shows again after a delete
	RuleWindow   Rule = "window"        // what dedupe: window does not cover
	RuleMarker   Rule = "marker"        // what dedupe: marker needs
	RuleToken    Rule = "token"         // the tokens of dedupe
	RuleProfile  Rule = "profile"       // what an application profile must allow
	RuleView     Rule = "view"          // what is not known of an authorized view
	RuleID       Rule = "message-id"    // a replay from NAME-undelivered has new ids
	RuleHotKey   Rule = "hot-key"       // writes go to one place
	RuleDouble   Rule = "double-in-key" // a double becomes part of a key
	RuleMutation Rule = "mutation"      // format: mutation, of which nothing can be said
	RuleUnserved Rule = "not-served"    // what this version does not do

	RuleLeftOut    Rule = "left-out"          // an expression reads what cells leaves out
	RuleUndeclared Rule = "undeclared-column" // a column that its family does not declare
	RuleDecimal    Rule = "decimal-as-text"   // an order of decimals that is one of text
	RuleNull       Rule = "null"              // a null that is written as data
	RulePolicy     Rule = "policy"            // a policy that the file does not choose
	RuleNegative   Rule = "key-order"         // a key's encoding does not sort as its numbers do
	RuleName       Rule = "name"              // a name or pattern that probably means another
)

// Finding is one thing to know about a file.
type Finding struct {
	Severity Severity
	Rule     Rule
	Pos      pipeline.Pos
	Place    string // as in write.mappings[0].rowKey; empty for the file itself
	Message  string // what is so, and what to do
}

// String returns file:line:column: severity: place: message.
func (f *Finding) String() string {
	place := ""
	if f.Place != "" {
		place = f.Place + ": "
	}
	return fmt.Sprintf("%s: %s: %s%s", f.Pos, f.Severity, place, f.Message)
}

// Findings are in the order of their places in the file.
type Findings []*Finding

// Err returns the findings that are errors, one a line; nil where there are none.
func (fs Findings) Err() error {
	var errs []error
	for _, f := range fs {
		if f.Severity == Error {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return errors.Join(errs...)
}

// Count returns how many findings have a severity.
func (fs Findings) Count(s Severity) int {
	n := 0
	for _, f := range fs {
		if f.Severity == s {
			n++
		}
	}
	return n
}

func (fs Findings) sort() {
	slices.SortStableFunc(fs, func(a, b *Finding) int {
		return cmp.Or(
			strings.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column),
			strings.Compare(string(a.Rule), string(b.Rule)),
		)
	})
}

// Loaded is a pipeline file, read, compiled and checked.
type Loaded struct {
	Pipeline *pipeline.Pipeline
	Write    *mapping.Write // nil where the file has no write section
	Report   *Report
}

// Load reads, compiles and checks a pipeline file. Loaded is nil where it cannot be
// read or compiled; Findings then are all of its faults, those of its form and those of
// its expressions together, without what follows from others. Otherwise they are those of
// the report, errors included.
func Load(data []byte, o pipeline.Options) (*Loaded, Findings) {
	p, err := pipeline.Draft(data, o)
	found := faults(err, RuleParse)
	if p == nil {
		return nil, found
	}
	w, emits, err := compile(p)
	more := faults(err, RuleCompile)
	if len(found) > 0 { // a fault may have hidden the column that is meant
		more = slices.DeleteFunc(more, func(f *Finding) bool { return f.Rule == RuleType })
	}
	if found = found.with(more); len(found) > 0 {
		return nil, found
	}
	report := Check(p, w, emits)
	return &Loaded{Pipeline: p, Write: w, Report: report}, report.Findings
}

// compile compiles every expression and filter: emits are those of the scans, in the
// file's order. The error joins all faults.
func compile(p *pipeline.Pipeline) (w *mapping.Write, emits []*mapping.Emit, err error) {
	var errs []error
	if p.Write != nil {
		w, err = mapping.Compile(p, mapping.ServiceLimits())
		errs = append(errs, err)
	}
	for _, s := range p.Scans {
		emit, err := mapping.CompileEmit(s)
		emits, errs = append(emits, emit), append(errs, err)
		if _, err := mapping.ReadFilter(s); err != nil {
			errs = append(errs, filterError(s, err))
		}
	}
	for _, ch := range p.Changes {
		_, err := mapping.CompileChanges(ch)
		errs = append(errs, err)
	}
	return w, emits, errors.Join(errs...)
}

// filterError places what is wrong with a scan's cells.
func filterError(s *pipeline.Scan, err error) error {
	pos, place := s.Pos, "scans."+s.Name+".cells"
	if s.Cells.Filter != "" {
		pos, place = s.Cells.FilterPos, place+".filter"
	}
	return &pipeline.Error{Pos: pos, Place: place, Message: strings.TrimPrefix(err.Error(), pos.String()+": ")}
}

// with returns the findings with more of them, in order, but for those at a place that
// has one, and for second ones: an expression may be compiled for several mappings.
func (fs Findings) with(more Findings) Findings {
	seen, places := map[Finding]bool{}, map[string]bool{}
	for _, f := range fs {
		places[f.Place] = true
	}
	for _, f := range more {
		if !places[f.Place] && !seen[*f] {
			seen[*f] = true
			fs = append(fs, f)
		}
	}
	fs.sort()
	return fs
}

// faults takes apart what Draft or Compile returned.
func faults(err error, rule Rule) Findings {
	var out Findings
	add := func(pos pipeline.Pos, place, message string) {
		out = append(out, &Finding{Severity: Error, Rule: rule, Pos: pos, Place: place, Message: message})
	}
	var visit func(error)
	visit = func(err error) {
		switch err := err.(type) {
		case nil:
		case *pipeline.Error:
			add(err.Pos, err.Place, err.Message)
		case *mapping.FitError:
			out = append(out, &Finding{Severity: Error, Rule: RuleType, Pos: err.Fault.Pos, Place: err.Fault.Place, Message: err.Fault.Message})
		case expr.Errors:
			for _, e := range err {
				add(e.Pos, e.Place, e.Message)
			}
		case interface{ Unwrap() []error }:
			for _, e := range err.Unwrap() {
				visit(e)
			}
		default:
			add(pipeline.Pos{}, "", err.Error())
		}
	}
	visit(err)
	out.sort()
	return out
}

// Report is what is provable about a pipeline.
type Report struct {
	Findings  Findings
	Replays   []Replay // one for each mapping, in the file's order
	Grants    []Grant
	Resources Resources
}

// Check says what is provable about a compiled pipeline. w is nil where p has no
// write section; emits are those of p.Scans, one for each.
func Check(p *pipeline.Pipeline, w *mapping.Write, emits []*mapping.Emit) *Report {
	c := &checker{p: p}
	if w != nil {
		c.mappings = w.Static()
	}
	if p.Write != nil && p.Write.Format == pipeline.FormatMutation {
		c.add(Note, RuleMutation, p.Write.Pos, "write.format",
			"the messages hold the mutations, so what a second delivery does is theirs: an add in them without an idempotency token counts again")
	}
	for _, d := range p.Doubts {
		c.add(Warning, RuleName, d.Pos, d.Place, "%s", d.Message)
	}
	for _, t := range p.Tables {
		c.keyOrder(t)
		c.view(t)
	}
	c.policies()
	for _, ch := range p.Changes {
		c.patterns(ch)
	}
	for _, u := range p.Unserved() {
		c.add(Warning, RuleUnserved, u.Pos, u.Place, "%s", u.Message)
	}
	replays := make([]Replay, len(c.mappings))
	for i := range c.mappings {
		m := &c.mappings[i]
		replays[i] = c.replay(m)
		c.dedupe(m)
		c.newIDs(m)
		c.key(m)
		c.written(m)
	}
	for i, s := range p.Scans {
		c.reads(s, emits[i])
	}
	c.findings.sort()
	return &Report{Findings: c.findings, Replays: replays, Grants: grants(p), Resources: resources(p)}
}

// checker collects the findings of one pipeline.
type checker struct {
	p        *pipeline.Pipeline
	mappings []mapping.Static
	findings Findings
}

func (c *checker) add(s Severity, r Rule, pos pipeline.Pos, place, format string, args ...any) {
	c.findings = append(c.findings, &Finding{Severity: s, Rule: r, Pos: pos, Place: place, Message: fmt.Sprintf(format, args...)})
}

// placeOf names a part of a mapping.
func placeOf(m *mapping.Static, part string) string {
	place := m.Source.Place()
	if part == "" {
		return place
	}
	return place + "." + part
}
