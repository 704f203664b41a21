package status

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanshare"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/streamstatus"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// coverageWidth is how many letters the bar of a stream's keys has.
	coverageWidth = 60
	// mostPartitions is how many partitions are listed unless all are asked for.
	mostPartitions = 20
)

// Print prints the report for a reader.
func (r *Report) Print(stdout io.Writer) error {
	out := &terminal.Printer{Out: stdout}
	for i := range r.Ledgers {
		if len(r.Ledgers) > 1 && i == 0 {
			out.Printf("of the btf dev that runs here, %s:\n", r.Ledgers[i].Place)
		} else if i > 0 {
			out.Printf("\nof other commands:\n")
		}
		if err := r.printLedger(out, &r.Ledgers[i]); err != nil {
			return err
		}
	}
	return out.Err
}

// printLedger prints all that is in one ledger.
func (r *Report) printLedger(out *terminal.Printer, l *Ledger) error {
	if !l.Exists {
		out.Printf("nothing of pipeline %s has run yet: there is no ledger %s\n", r.Pipeline, l.Place)
		return out.Err
	}
	if len(l.Scans) == 0 && (r.hasScans || len(l.Changes) == 0) {
		out.Printf("pipeline %s has no scans in the ledger\n", r.Pipeline)
	}
	for i := range l.Scans {
		if i > 0 {
			out.Printf("\n")
		}
		if err := r.printScan(out, &l.Scans[i], l.at); err != nil {
			return err
		}
	}
	for i := range l.Changes {
		if i+len(l.Scans) > 0 {
			out.Printf("\n")
		}
		if err := r.printStream(out, &l.Changes[i], l.at); err != nil {
			return err
		}
	}
	return out.Err
}

func (r *Report) printScan(out *terminal.Printer, scan *Scan, now time.Time) error {
	name := ""
	if scan.Name != "" {
		name = " (" + scan.Name + ")"
	}
	out.Printf("scan %s%s: %s, %d of %d splits done, %s, %s, %d dropped, begun %s\n", scan.ID, name, scan.State, scan.Done, scan.Splits,
		terminal.Plural(int(scan.Rows), "row"), terminal.Plural(int(scan.Records), "record"), scan.Dropped, terminal.Ago(now, scan.CreatedAt))
	if scan.Error != "" {
		out.Printf("  %s\n", scan.Error)
	}
	if scan.stopped {
		if scan.ended != "" {
			out.Printf("  %s\n", scan.ended)
		}
		out.Printf("  to go on: %s\n", scanrun.Resumption(r.file, scan.Name, scan.ID))
	}
	if out.Err != nil {
		return out.Err
	}
	return r.printSplits(out, scan.listed, now)
}

func (r *Report) printSplits(out *terminal.Printer, splits []*ledger.Split, now time.Time) error {
	w := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
	table := terminal.Printer{Out: w}
	head := false
	perRow := scanshare.BytesPerRow(splits)
	for _, split := range splits {
		if split.State == ledger.SplitDone && !r.all {
			continue
		}
		if !head {
			head = true
			table.Printf("  SPLIT\tSTATE\tREAD\tROWS\tFENCE\tCHANGED\tHOLDER\tLAST ERROR\n")
		}
		read := "-"
		if share, known := scanshare.OfSplit(split, perRow); split.State == ledger.SplitDone {
			read = "100%"
		} else if known {
			read = fmt.Sprintf("%.0f%%", 100*min(0.99, share)) // it is an estimate
		}
		table.Printf("  %d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", split.Index, string(split.State), read, split.Rows,
			split.Fence, terminal.Ago(now, split.UpdatedAt), leaseOf(split, now), split.LastError)
	}
	return errors.Join(table.Err, w.Flush())
}

// leaseOf names the holder of a split's lease, and for how long it has it if it commits nothing
// more.
func leaseOf(split *ledger.Split, now time.Time) string {
	if split.Holder == "" {
		return "-"
	}
	if left := split.Until.Sub(now); left > 0 {
		return held(split.Holder, left)
	}
	return split.Holder.String() + " (its lease is over)"
}

// held names a holder, and says for how long it has its lease.
func held(holder ledger.Holder, left time.Duration) string {
	if process.Died(holder) {
		return holder.String() + " (has died)"
	}
	return fmt.Sprintf("%s (for %s)", holder.String(), max(time.Second, left.Round(time.Second)))
}

func (r *Report) printStream(out *terminal.Printer, stream *streamstatus.Stream, now time.Time) error {
	out.Printf("change stream %s of %s: ", stream.Name, stream.Table)
	if !stream.Begun {
		out.Printf("no tick has begun it yet\n")
		return out.Err
	}
	out.Printf("%s", terminal.Plural(len(stream.Partitions), "partition"))
	if len(stream.Partitions) > 0 {
		out.Printf(", the oldest position is from %s", terminal.Ago(now, stream.Partitions[0].LowWatermark))
	}
	if stream.Initial {
		out.Printf(", not all keys are covered yet")
	}
	out.Printf("\n  keys [%s]  %s\n", streamstatus.Bar(stream.Coverage, coverageWidth), legend(stream.Coverage))
	for _, p := range stream.Pending {
		out.Printf("  %s waits for other parents, has the tokens of %s, the last came %s\n", p.Range, strings.Join(p.Tokens, " "), terminal.Ago(now, p.UpdatedAt))
	}
	for _, m := range stream.Missing {
		out.Printf("  %s is in no partition, first missed %s, seen so %s\n", m.Range, terminal.Ago(now, m.FirstSeen), terminal.Plural(m.Seen, "time"))
	}
	if out.Err != nil {
		return out.Err
	}
	return r.printPartitions(out, stream.Partitions, now)
}

// legend explains the letters of a bar that it has.
func legend(coverage string) string {
	var out []string
	for _, l := range []struct{ letter, text string }{{"#", "read"}, {"=", "read to the end"}, {"?", "waiting"}, {".", "in no partition"}} {
		if strings.Contains(coverage, l.letter) {
			out = append(out, l.letter+" "+l.text)
		}
	}
	return strings.Join(out, ", ")
}

func (r *Report) printPartitions(out *terminal.Printer, all []streamstatus.Partition, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	listed := all
	if !r.all {
		listed = all[:min(len(all), mostPartitions)]
	}
	w := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
	table := terminal.Printer{Out: w}
	table.Printf("  KEYS\tPOSITION\tVISITED\tHOLDER\tLAST ERROR\n")
	for _, p := range listed {
		holder := "-"
		if p.Holder != "" {
			holder = held(p.Holder, time.Duration(p.LeaseSeconds*float64(time.Second)))
		}
		table.Printf("  %s\t%s\t%s\t%s\t%s\n", p.Range, terminal.Ago(now, p.LowWatermark), terminal.Ago(now, p.VisitedAt), holder, p.LastError)
	}
	if err := errors.Join(table.Err, w.Flush()); err != nil {
		return err
	}
	if n := len(all) - len(listed); n > 0 {
		out.Printf("  and %d more with younger positions: --all lists them\n", n)
	}
	return out.Err
}
