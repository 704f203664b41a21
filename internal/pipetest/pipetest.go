// Package pipetest guarantees that a test of the pipeline file passes only where the
// compiled pipeline makes exactly what the test expects, and that what it says of one
// message is what the function would write: both run the code that the function runs.
// It does no I/O. Its texts hold the data of tests and messages: they are for the
// user's eyes, unescaped, and for no log.
package pipetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// Suite runs the tests of one pipeline file.
type Suite struct {
	p      *pipeline.Pipeline
	write  *mapping.Write // nil where the file has no write section
	decode record.Decode
}

// New returns the suite of a file and its compiled write section, nil where it has none.
func New(p *pipeline.Pipeline, w *mapping.Write) (*Suite, error) {
	s := &Suite{p: p, write: w}
	if p.Write == nil {
		return s, nil
	}
	var err error
	s.decode, err = record.ByFormat(string(p.Write.Format))
	return s, err
}

// Problem is one way in which a test fails: a place in the file, a sentence, and lines
// that show the difference, where "-" is expected and "+" is what came.
type Problem struct {
	Pos   pipeline.Pos
	Text  string
	Lines []string
}

// Run runs one test and returns what is wrong; nothing where it passes.
func (s *Suite) Run(t *pipeline.Test) []Problem {
	switch {
	case t.Row != nil:
		return runRow(t)
	case t.Change != nil:
		return runChange(t)
	case s.write == nil:
		return []Problem{{Pos: t.Pos, Text: "a test with a message, and the file has no write section"}}
	}
	m := &push.Message{
		ID: t.Message.ID, PublishTime: t.Message.PublishTime, OrderingKey: t.Message.OrderingKey,
		Attributes: t.Message.Attributes, Subscription: t.Message.Subscription, Data: t.Message.Data,
	}
	return s.check(t, s.outcome(m, delivered()))
}

// delivered is when the message of a test is delivered: so late that no time of a cell lies
// ahead, since a test is to have one result whenever it is run.
func delivered() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }

// outcome is what becomes of a message.
type outcome struct {
	records  []record.Record
	result   *mapping.Result
	rows     []*mapping.Row // in the order in which they are applied
	rejected []*mapping.Rejection
	skipped  int // by skip and, where the file says so, by onUnmatched
}

func (s *Suite) outcome(m *push.Message, now time.Time) *outcome {
	o := &outcome{records: slices.Collect(s.decode(m.Data, m.Attributes))}
	o.result = s.write.Map(message(m), o.records, now)
	o.rows = slices.Concat(o.result.Rows, o.result.Last)
	o.rejected, o.skipped = slices.Clone(o.result.Rejected), o.result.Skipped
	if s.p.Write.OnUnmatched == pipeline.PolicySkip {
		o.skipped += len(o.result.Unmatched)
		return o
	}
	for _, i := range o.result.Unmatched {
		o.rejected = append(o.rejected, &mapping.Rejection{Record: i, Err: mapping.ErrUnmatched})
	}
	return o
}

func message(m *push.Message) *expr.Message {
	return &expr.Message{ID: m.ID, PublishTime: m.PublishTime, OrderingKey: m.OrderingKey, Attributes: m.Attributes, Subscription: m.Subscription}
}

func (s *Suite) check(t *pipeline.Test, o *outcome) []Problem {
	if t.Expect.Skipped {
		return checkSkipped(t, o)
	}
	problems := checkRows(t, o.rows)
	return append(problems, checkRejected(t, o.rejected)...)
}

func checkSkipped(t *pipeline.Test, o *outcome) []Problem {
	if o.skipped > 0 && len(o.rows)+len(o.rejected) == 0 {
		return nil
	}
	p := Problem{Pos: t.Expect.Pos, Text: "not skipped"}
	for _, r := range o.rows {
		p.Lines = append(p.Lines, rowLines("+ ", r)...)
	}
	for _, r := range o.rejected {
		p.Lines = append(p.Lines, "+ rejected: "+r.Error())
	}
	if o.skipped == 0 && len(o.records) == 0 {
		p.Text = "not skipped: the message holds no record"
	}
	return []Problem{p}
}

// checkRejected pairs each expected rejection with one that came, the first that fits.
func checkRejected(t *pipeline.Test, got []*mapping.Rejection) []Problem {
	var problems []Problem
	left := slices.Clone(got)
	for _, want := range t.Expect.Rejected {
		i := slices.IndexFunc(left, func(r *mapping.Rejection) bool { return fits(&want, r) })
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		problems = append(problems, Problem{Pos: want.Pos, Text: "no such rejection", Lines: []string{"- rejected: " + wanted(&want)}})
	}
	for _, r := range left {
		line := "+ rejected: " + r.Error()
		if len(problems) > 0 && problems[len(problems)-1].Text == "no such rejection" {
			problems[len(problems)-1].Lines = append(problems[len(problems)-1].Lines, line)
			continue
		}
		problems = append(problems, Problem{Pos: t.Expect.Pos, Text: "a rejection that the test does not expect", Lines: []string{line}})
	}
	return problems
}

func fits(want *pipeline.ExpectRejected, r *mapping.Rejection) bool {
	return want.Mapping == r.Mapping && (want.Place == "" || want.Place == r.Place) && strings.Contains(r.Err.Error(), want.Error)
}

// wanted prints an expected rejection like one that came.
func wanted(want *pipeline.ExpectRejected) string {
	r := mapping.Rejection{Mapping: want.Mapping, Place: want.Place, Err: errors.New("… " + want.Error + " …")}
	return r.Error()
}

// rowLines prints a row, each line behind a mark.
func rowLines(mark string, r *mapping.Row) []string {
	out := []string{mark + rowName(r)}
	for _, line := range mapping.Lines(r.Schema, r.Entry) {
		out = append(out, mark+"  "+line)
	}
	return out
}

func rowName(r *mapping.Row) string {
	return fmt.Sprintf("%s %s", r.Table.Table, mapping.Key(r.Schema, r.Entry.RowKey))
}
