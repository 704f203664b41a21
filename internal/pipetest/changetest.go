package pipetest

import (
	"errors"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// runChange runs a test of the record that a change stream makes of a change.
func runChange(t *pipeline.Test) []Problem {
	of := t.Change.Change
	err := of.Served()
	var compiled *mapping.Changes
	if err == nil {
		compiled, err = mapping.CompileChanges(of)
	}
	if err != nil {
		return []Problem{{Pos: t.Pos, Text: "this test cannot be run: " + err.Error()}}
	}
	change, problems := readChange(t.Change)
	if len(problems) > 0 {
		return problems
	}
	outputs, _, err := compiled.New().Change(change)
	return checkOutputs(t, "changes."+of.Name, outputs, err)
}

// readChange makes the change that the service would send.
func readChange(c *pipeline.TestChange) (*changestream.Record, []Problem) {
	var problems []Problem
	key, err := encode(c.Change.Table.Key, c.RowKey, "")
	if err != nil {
		problems = append(problems, Problem{Pos: c.RowKey.Pos, Text: "the row key: " + err.Error()})
	}
	r := &changestream.Record{
		RowKey: string(key), Type: changestream.User, Cluster: c.Cluster, CommitTime: c.CommitTime, TieBreaker: int32(c.TieBreaker),
		Position: changestream.Position{LowWatermark: c.LowWatermark}, Bytes: int64(len(key)),
	}
	if c.Type == changestream.GarbageCollection.String() {
		r.Type = changestream.GarbageCollection
	}
	for i := range c.Entries {
		e, err := readEntry(&c.Entries[i], c.Change.Table.NullString)
		if err != nil {
			problems = append(problems, Problem{Pos: c.Entries[i].Pos, Text: "the entry: " + err.Error()})
		}
		r.Bytes += int64(len(e.Family) + len(e.Qualifier) + len(e.Value))
		r.Entries = append(r.Entries, e)
	}
	r.Oversize = r.Bytes > c.Change.MaxRecordBytes
	return r, problems
}

func readEntry(t *pipeline.TestEntry, nullString string) (changestream.Entry, error) {
	kinds := []string{
		changestream.SetCell.String(), changestream.DeleteCells.String(), changestream.DeleteFamily.String(),
		changestream.AddToCell.String(), changestream.MergeToCell.String(),
	}
	e := changestream.Entry{Kind: changestream.Kind(slices.Index(kinds, t.Kind)), Family: t.FamilyName, Qualifier: t.Qualifier}
	var err error
	switch e.Kind {
	case changestream.SetCell:
		encoding := cell.Encoding{Kind: cell.Bytes}
		if t.Family != nil {
			encoding = t.Family.Encoding(t.Qualifier)
		}
		e.Value, err = encode(encoding, t.Value, nullString)
	case changestream.AddToCell:
		e.IsNumber = true
		e.Number, err = integer(t.Value)
	case changestream.MergeToCell:
		e.Value, err = accumulator(t.Value)
	case changestream.DeleteCells:
		e.Start, e.End = micros(t.From), micros(t.To)
		if e.Start < 0 || e.End < 0 || e.End != 0 && e.End < e.Start {
			err = errors.New("the range ends before it begins, or lies before 1970")
		}
	}
	if e.Kind != changestream.DeleteCells && !t.Timestamp.IsZero() {
		e.Timestamp = t.Timestamp.UnixMicro()
	}
	return e, err
}

// micros is a bound of deleted cell times; 0 is none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
