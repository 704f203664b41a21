// Package plan says for btf plan what a deployment of a pipeline file consists of and what it
// costs, and guarantees that each amount that it prints stands beside its arithmetic.
package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/resourcereport"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/bill"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/prices"
)

// Plan is what a deployment consists of and costs. As JSON its fields are a contract.
type Plan struct {
	File     string `json:"file"`
	Pipeline string `json:"pipeline"`
	lint.Resources
	Grants []lint.Grant `json:"grants"`
	Bill   *bill.Bill   `json:"bill"`
}

// Of returns the plan of a pipeline file for a load. pricesFile replaces the table of prices;
// it may be empty.
func Of(file string, loaded *lint.Loaded, load bill.Load, pricesFile string) (*Plan, error) {
	if err := load.Check(); err != nil {
		return nil, err
	}
	table, err := tableOf(pricesFile)
	if err != nil {
		return nil, err
	}
	month, err := bill.Month(loaded.Pipeline, &loaded.Report.Resources, load, table)
	if err != nil {
		return nil, err
	}
	return &Plan{file, loaded.Pipeline.Name, loaded.Report.Resources, loaded.Report.Grants, month}, nil
}

func tableOf(file string) (*prices.Table, error) {
	if file == "" {
		return prices.Default()
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the table of prices: %w", err)
	}
	table, err := prices.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return table, nil
}

// PrintJSON prints the plan as one object.
func (p *Plan) PrintJSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// Print prints the plan for a reader.
func (p *Plan) Print(stdout io.Writer) error {
	out := &terminal.Printer{Out: stdout}
	resourcereport.PrintResources(out, p.File, &p.Resources)
	resourcereport.PrintGrants(out, p.File, p.Grants)
	b := p.Bill
	out.Printf("\nA month at %s events/s, %s changes/s and %s for each change stream, and %s rows for each scheduled scan:\n",
		bill.Number(b.Load.EventsPerSecond), bill.Number(b.Load.ChangesPerSecond), terminal.Plural(b.Load.Partitions, "partition"), bill.Number(b.Load.RowsPerScan))
	printLines(out, b.Prices, b.Lines, "together", b.Dollars)
	if d := b.Dataflow; d.Jobs > 0 {
		out.Printf("\nDataflow, at least: %s that run all the time, one worker each, without their data:\n", terminal.Plural(d.Jobs, "streaming job"))
		printLines(out, b.Prices, d.Lines, "together", d.Dollars)
	}
	out.Printf("\nBeside either:\n")
	printLines(out, b.Prices, []bill.Line{b.Beside}, "", 0)
	out.Printf("\nPrices in %s of %s, %s: %s.\n", b.Prices.Currency, b.Prices.Region, dated(b.Prices), terminal.Escape(b.Prices.Source))
	out.Printf("It is assumed that\n")
	for _, a := range b.Assumptions {
		out.Printf("- %s\n", a)
	}
	out.Printf("Not in it:\n")
	for _, w := range b.Without {
		out.Printf("- %s\n", w)
	}
	return out.Err
}

func dated(t *prices.Table) string {
	if t.Verified {
		return "verified on " + t.Date
	}
	return "written down on " + t.Date + ", not verified"
}

// printLines prints amounts with their arithmetic, and their sum if it has a name.
func printLines(out *terminal.Printer, table *prices.Table, lines []bill.Line, sum string, dollars float64) {
	w := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintf(w, "  %s\t%s\t%s = %s %s × %s / %s\t%10.2f\n", l.Of, l.What, l.How, bill.Number(l.Quantity), l.Unit,
			strconv.FormatFloat(table.Prices[l.Price], 'f', -1, 64), l.Price.Unit().Bought, l.Dollars)
	}
	if sum != "" {
		fmt.Fprintf(w, "  %s\t\t\t%10.2f\n", sum, dollars)
	}
	if err := w.Flush(); err != nil && out.Err == nil {
		out.Err = fmt.Errorf("printing: %w", err)
	}
}
