package pipetest

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// runRow runs a test of what a scan emits for a row.
func runRow(t *pipeline.Test) []Problem {
	row, problems := readRow(t.Row)
	if len(problems) > 0 {
		return problems
	}
	emit, err := mapping.CompileEmit(t.Row.Scan)
	if err != nil {
		return []Problem{{Pos: t.Row.Scan.Pos, Text: err.Error()}}
	}
	outputs, err := emit.Row(row)
	return checkOutputs(t, "scans."+t.Row.Scan.Name, outputs, err)
}

// checkOutputs compares what was made of a row or a change, or why nothing could be made. within
// is the scan or the change stream: a place in the test is one in it.
func checkOutputs(t *pipeline.Test, within string, outputs []mapping.Output, err error) []Problem {
	if err == nil {
		return append(checkRecords(t, outputs), checkRejected(t, nil)...)
	}
	r := &mapping.OutputError{Err: err}
	errors.As(err, &r)
	place := strings.TrimPrefix(r.Place, within+".")
	return append(checkRecords(t, nil), checkRejected(t, []*mapping.Rejection{{Place: place, Err: r.Err}})...)
}

// readRow makes the row that a scan would read.
func readRow(r *pipeline.TestRow) (bigtable.Row, []Problem) {
	var problems []Problem
	key, err := encode(r.Scan.Table.Key, r.Key, "")
	if err != nil {
		problems = append(problems, Problem{Pos: r.Key.Pos, Text: "the row key: " + err.Error()})
	}
	row := bigtable.Row{}
	for _, c := range r.Cells {
		v, err := encode(c.Encoding, c.Value, r.Scan.Table.NullString)
		if err != nil {
			problems = append(problems, Problem{Pos: c.Value.Pos, Text: "the cell's value: " + err.Error()})
		}
		row[c.Family.Name] = append(row[c.Family.Name], bigtable.ReadItem{Row: string(key), Column: c.Family.Name + ":" + c.Qualifier, Value: v})
	}
	switch {
	case len(row) > 0:
	case r.Scan.Cells.KeysOnly: // the service sends one cell without its value
		family := r.Scan.Table.Families[0].Name
		row[family] = []bigtable.ReadItem{{Row: string(key), Column: family + ":"}}
	default:
		problems = append(problems, Problem{Pos: r.Key.Pos, Text: "the row has no cell, and a scan reads no such row: write cells"})
	}
	for _, items := range row {
		slices.SortFunc(items, func(a, b bigtable.ReadItem) int { return cmp.Compare(a.Column, b.Column) })
	}
	return row, problems
}

// checkRecords compares JSON by value: all records, in order.
func checkRecords(t *pipeline.Test, got []mapping.Output) []Problem {
	p := Problem{Pos: t.Expect.Pos, Text: "the records differ"}
	differ := len(got) != len(t.Expect.Records)
	for i := range max(len(got), len(t.Expect.Records)) {
		var want, body string
		equal := false
		if i < len(t.Expect.Records) {
			want = string(t.Expect.Records[i].JSON)
		}
		if i < len(got) {
			body = string(got[i].Body)
		}
		if want != "" && body != "" {
			x, err := value(t.Expect.Records[i])
			y, err2 := value(pipeline.Literal{JSON: got[i].Body})
			equal = err == nil && err2 == nil && reflect.DeepEqual(x, y)
		}
		if equal {
			p.Lines = append(p.Lines, "  "+body)
			continue
		}
		differ = true
		if want != "" {
			p.Lines = append(p.Lines, "- "+want)
		}
		if body != "" {
			p.Lines = append(p.Lines, "+ "+body)
		}
	}
	if !differ {
		return nil
	}
	return []Problem{p}
}
