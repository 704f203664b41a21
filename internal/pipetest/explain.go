package pipetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// Explain says in lines what the function write would do with a message: what each
// mapping makes of each record, and why not; then the rows, every mutation on a line,
// in the order in which they are applied. now is the time of dedupe markers.
func (s *Suite) Explain(m *push.Message, now time.Time) ([]string, error) {
	parts, err := s.alone()
	if err != nil {
		return nil, err
	}
	o := s.outcome(m, now)
	var out []string
	for i := range o.records {
		out = append(out, s.explainRecord(m, o, i, parts, now)...)
	}
	if len(o.records) == 0 {
		out = append(out, "the message holds no record, and is acknowledged")
	}
	for _, r := range o.rows {
		line := "row " + rowName(r)
		switch {
		case r.Unless != nil:
			line += ", alone, unless its marker is there"
		case r.Entry.Idempotency != nil:
			line += ", under an idempotency token, after all others"
		}
		out = append(out, line)
		for _, l := range mapping.Lines(r.Schema, r.Entry) {
			out = append(out, "  "+l)
		}
	}
	return out, nil
}

// alone compiles the pipeline once for each mapping, with that mapping only.
func (s *Suite) alone() ([]*mapping.Write, error) {
	var out []*mapping.Write
	for i := range s.p.Write.Mappings {
		one, write := *s.p, *s.p.Write
		write.Mappings = s.p.Write.Mappings[i : i+1]
		one.Write = &write
		w, err := mapping.Compile(&one, mapping.ServiceLimits())
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func (s *Suite) explainRecord(m *push.Message, o *outcome, i int, parts []*mapping.Write, now time.Time) []string {
	r := &o.records[i]
	head := fmt.Sprintf("record %d, %d bytes", i, len(r.Raw))
	rejected := slices.IndexFunc(o.result.Rejected, func(x *mapping.Rejection) bool { return x.Record == i && x.Mapping == "" })
	switch {
	case rejected >= 0:
		return []string{head + ": " + s.rejection(o.result.Rejected[rejected], nil)}
	case r.Entry != nil:
		return []string{head + ": an entry for " + r.Entry.Table}
	}
	var lines []string
	taken := false
	for k, w := range parts {
		result := w.Map(message(m), []record.Record{*r}, now)
		if result.Skipped > 0 {
			return []string{head + ": skipped, because " + place(s.p.Write.Skip) + " holds"}
		}
		line, took := s.verdict(s.p.Write.Mappings[k], result)
		lines = append(lines, "  "+line)
		taken = taken || took
	}
	if !taken {
		head += ": no mapping takes it, and onUnmatched is " + string(s.p.Write.OnUnmatched)
	}
	return append([]string{head}, lines...)
}

// verdict says what one mapping makes of one record, and whether it took it.
func (s *Suite) verdict(m *pipeline.Mapping, r *mapping.Result) (string, bool) {
	rows := len(r.Rows) + len(r.Last)
	switch {
	case len(r.Rejected) > 0:
		return m.Name + ": " + s.rejection(r.Rejected[0], m), true
	case len(r.Unmatched) > 0:
		return m.Name + ": no, because " + place(m.When) + " does not hold", false
	case rows == 0:
		return m.Name + ": takes it and makes no row, because " + place(m.ForEach) + " is empty", true
	case rows == 1:
		return m.Name + ": takes it, 1 row", true
	}
	return fmt.Sprintf("%s: takes it, %d rows", m.Name, rows), true
}

// rejection says why, where, and what becomes of it.
func (s *Suite) rejection(r *mapping.Rejection, m *pipeline.Mapping) string {
	at := ""
	if r.Place != "" {
		at = " at " + r.Place
	}
	if e := s.expression(r.Place, m); e != nil {
		at += " (" + place(*e) + ")"
	}
	return fmt.Sprintf("rejected%s: %v; onFailure is %s", at, r.Err, s.p.Write.OnFailure)
}

// place names an expression by its position and text.
func place(e pipeline.Expr) string { return e.Pos.String() + ": " + e.Source }

// expression finds the expression at a place of a mapping, or of write where m is nil.
func (s *Suite) expression(where string, m *pipeline.Mapping) *pipeline.Expr {
	if m == nil {
		if where == "skip" {
			return &s.p.Write.Skip
		}
		return nil
	}
	all := []pipeline.Expr{m.When, m.ForEach, m.RowKey, m.Timestamp, m.DedupeID, m.Table.IDFrom}
	for _, mu := range m.Mutations {
		all = append(all, mu.When, mu.From, mu.To)
		for _, c := range mu.Cells {
			all = append(all, c.Value)
		}
	}
	full := m.Place() + "." + where
	for i := range all {
		if !all[i].IsZero() && (all[i].Place == full || all[i].Place == where) {
			return &all[i]
		}
	}
	return nil
}
