// Package diffreport prints for btf diff what a new version of a pipeline file changes.
package diffreport

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/filediff"
)

// PrintJSON prints the report as one object.
func PrintJSON(stdout io.Writer, r *filediff.Report) error {
	enc := json.NewEncoder(terminal.DataTo(stdout))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// Print prints the report for a reader: what does harm is marked with an exclamation mark.
func Print(stdout io.Writer, r *filediff.Report) error {
	p := &terminal.Printer{Out: stdout}
	if len(r.Differences)+len(r.Examples) == 0 {
		p.Printf("no difference\n")
		return p.Err
	}
	harms := 0
	for _, d := range r.Differences {
		mark := " "
		if d.Harm != "" {
			mark = "!"
			harms++
		}
		p.Printf("%s %s: %s\n", mark, d.Part, terminal.Escape(d.Place))
		if d.Old != "" {
			p.Printf("    - %s\n", terminal.Escape(d.Old))
		}
		if d.New != "" {
			p.Printf("    + %s\n", terminal.Escape(d.New))
		}
		if d.Harm != "" {
			p.Printf("    ! %s\n", d.Harm)
		}
	}
	for _, e := range r.Examples {
		p.Printf("  test %q\n", e.Test)
		for _, line := range e.Old {
			p.Printf("    - %s\n", terminal.Escape(line))
		}
		for _, line := range e.New {
			p.Printf("    + %s\n", terminal.Escape(line))
		}
	}
	p.Printf("%s, of which %d may harm what is on its way\n", terminal.Plural(len(r.Differences), "difference"), harms)
	return p.Err
}
