package pipetest

import (
	"errors"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// Becomes returns what becomes of the message of a test: a block of lines for each row, with its
// token if it has one, and for each rejection. The suite must have a write section.
func (s *Suite) Becomes(t *pipeline.TestMessage) [][]string {
	o := s.outcome(&push.Message{
		ID: t.ID, PublishTime: t.PublishTime, OrderingKey: t.OrderingKey, Attributes: t.Attributes, Subscription: t.Subscription, Data: t.Data,
	}, delivered())
	var out [][]string
	for _, r := range o.rows {
		block := rowLines("", r)
		if token := r.Token(); token != nil {
			block = append(block, fmt.Sprintf("  under the token %x", token))
		}
		out = append(out, block)
	}
	for _, r := range o.rejected {
		out = append(out, []string{"rejected: " + r.Error()})
	}
	if o.skipped > 0 {
		out = append(out, []string{fmt.Sprintf("records that are skipped: %d", o.skipped)})
	}
	return out
}

// Emits returns the records that a scan makes of the row of a test, which may be of another
// version of the file: a block for each record, or one for the error.
func Emits(t *pipeline.TestRow, s *pipeline.Scan) ([][]string, error) {
	row, problems := readRow(t)
	if len(problems) > 0 {
		return nil, errors.New(problems[0].Text)
	}
	emit, err := mapping.CompileEmit(s)
	if err != nil {
		return nil, err
	}
	outputs, err := emit.Row(row)
	if err != nil {
		return [][]string{{"rejected: " + err.Error()}}, nil
	}
	var out [][]string
	for _, o := range outputs {
		out = append(out, []string{string(o.Body)})
	}
	return out, nil
}
