package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/streamstatus"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// This file is the part of status that is about change streams, and its form in JSON.

const (
	// coverageWidth is how many letters the bar of a stream's keys has.
	coverageWidth = 60
	// mostPartitions is how many partitions are listed without --all.
	mostPartitions = 20
)

// readStream returns what the ledger knows of a change stream.
func readStream(ctx context.Context, l *ledger.Ledger, c *pipeline.Change) (streamstatus.Stream, error) {
	id := ledger.StreamID{Name: c.Name, Table: c.Table.Ref().String()}
	topology, err := l.Topology(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return streamstatus.Stream{Name: id.Name, Table: id.Table}, nil
	} else if err != nil {
		return streamstatus.Stream{}, err
	}
	return streamstatus.Of(topology), nil
}

// stream tells of one change stream.
func (s *statusReport) stream(ctx context.Context, l *ledger.Ledger, c *pipeline.Change, out *terminal.Printer) error {
	stream, err := readStream(ctx, l, c)
	if err != nil {
		return err
	}
	out.Printf("change stream %s of %s: ", stream.Name, stream.Table)
	if !stream.Begun {
		out.Printf("no tick has begun it yet\n")
		return out.Err
	}
	out.Printf("%s", terminal.Plural(len(stream.Partitions), "partition"))
	if len(stream.Partitions) > 0 {
		out.Printf(", the oldest position is from %s", age(s.now(), stream.Partitions[0].LowWatermark))
	}
	if stream.Initial {
		out.Printf(", not all keys are covered yet")
	}
	out.Printf("\n  keys [%s]  %s\n", streamstatus.Bar(stream.Coverage, coverageWidth), legend(stream.Coverage))
	for _, p := range stream.Pending {
		out.Printf("  %s waits for other parents, has the tokens of %s, the last came %s\n", p.Range, strings.Join(p.Tokens, " "), age(s.now(), p.UpdatedAt))
	}
	for _, m := range stream.Missing {
		out.Printf("  %s is in no partition, first missed %s, seen so %s\n", m.Range, age(s.now(), m.FirstSeen), terminal.Plural(m.Seen, "time"))
	}
	if out.Err != nil {
		return out.Err
	}
	return s.partitions(stream.Partitions, out)
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

func (s *statusReport) partitions(all []streamstatus.Partition, out *terminal.Printer) error {
	if len(all) == 0 {
		return nil
	}
	listed := all
	if !s.all {
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
		table.Printf("  %s\t%s\t%s\t%s\t%s\n", p.Range, age(s.now(), p.LowWatermark), age(s.now(), p.VisitedAt), holder, p.LastError)
	}
	if err := errors.Join(table.Err, w.Flush()); err != nil {
		return err
	}
	if n := len(all) - len(listed); n > 0 {
		out.Printf("  and %d more with younger positions: --all lists them\n", n)
	}
	return out.Err
}

// statusJSON is the object that --json prints. The names of its fields are a contract.
type statusJSON struct {
	Pipeline string       `json:"pipeline"`
	Ledgers  []ledgerJSON `json:"ledgers"` // that of a btf dev that runs here comes first
}

type ledgerJSON struct {
	Ledger  string                `json:"ledger"` // as LEDGER names it
	Exists  bool                  `json:"exists"`
	Scans   []scanJSON            `json:"scans"`   // the newest first
	Changes []streamstatus.Stream `json:"changes"` // in the order of the file
}

type scanJSON struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	State     string    `json:"state"`
	Splits    int       `json:"splits"`
	Done      int       `json:"done"` // of the splits
	Rows      int64     `json:"rows"`
	Records   int64     `json:"records"`
	Dropped   int64     `json:"dropped"`
	Error     string    `json:"error,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

func (s *statusReport) printJSON(ctx context.Context, p *pipeline.Pipeline, dev ledger.Location, stdout io.Writer) error {
	out := statusJSON{Pipeline: p.Name}
	reports := []*statusReport{s}
	if dev != (ledger.Location{}) {
		reports = []*statusReport{s.of(dev), s}
	}
	for _, r := range reports {
		l, err := r.ledgerJSON(ctx, p)
		if err != nil {
			return err
		}
		out.Ledgers = append(out.Ledgers, l)
	}
	if err := json.NewEncoder(terminal.DataTo(stdout)).Encode(out); err != nil {
		return fmt.Errorf("printing the status: %w", err)
	}
	return nil
}

func (s *statusReport) ledgerJSON(ctx context.Context, p *pipeline.Pipeline) (out ledgerJSON, err error) {
	out = ledgerJSON{Ledger: setup.LedgerPlace(s.env, p).String(), Scans: []scanJSON{}, Changes: []streamstatus.Stream{}}
	l, scans, closer, err := s.open(ctx, p)
	defer func() { err = errors.Join(err, closer()) }()
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return out, err
	}
	out.Exists = true
	for _, scan := range scans {
		state, err := s.read(ctx, l, scan)
		if err != nil {
			return out, err
		}
		out.Scans = append(out.Scans, scanJSON{
			ID: scan.ID, Name: scan.Name, State: state.name, Splits: scan.Splits, Done: state.done,
			Rows: state.total.Rows, Records: state.total.Records, Dropped: state.total.Dropped, Error: scan.Error, CreatedAt: scan.CreatedAt,
		})
	}
	for _, c := range p.Changes {
		stream, err := readStream(ctx, l, c)
		if err != nil {
			return out, err
		}
		out.Changes = append(out.Changes, stream)
	}
	return out, nil
}
