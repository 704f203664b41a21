package write

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// apply applies rows and returns those that can never be written. Rows of one key go by
// their turns. An error means that something is not known to be applied.
func (f *function) apply(ctx context.Context, d *delivery, rows []*mapping.Row) ([]failure, error) {
	var failures []failure
	for turn := 0; len(rows) > 0; turn++ {
		now, later := cutTurn(rows, turn)
		failed, err := f.applyTurn(ctx, d, now)
		if err != nil {
			return nil, err
		}
		failures, rows = append(failures, failed...), later
	}
	return failures, nil
}

// cutTurn parts the rows whose turn it is from those that come later.
func cutTurn(rows []*mapping.Row, turn int) (now, later []*mapping.Row) {
	first := slices.IndexFunc(rows, func(r *mapping.Row) bool { return r.Turn > turn })
	if first < 0 {
		return rows, nil
	}
	now = append(now, rows[:first]...)
	for _, r := range rows[first:] {
		if r.Turn > turn {
			later = append(later, r)
		} else {
			now = append(now, r)
		}
	}
	return now, later
}

// applyTurn applies rows. A rejected one that several records made is taken apart, so
// that only the guilty one fails.
func (f *function) applyTurn(ctx context.Context, d *delivery, rows []*mapping.Row) ([]failure, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	rejected, err := f.send(ctx, d, rows)
	if err != nil || len(rejected) == 0 {
		return nil, err
	}
	var failures []failure
	var parts []*mapping.Row
	for _, r := range rejected {
		if len(r.row.Parts) == 1 {
			failures = append(failures, f.refusedRow(d, r))
			continue
		}
		parts = append(parts, r.row.Split(f.cfg.Now())...)
	}
	if len(parts) == 0 {
		return failures, nil
	}
	guilty, err := f.send(ctx, d, parts)
	if err != nil {
		return nil, err
	}
	for _, r := range guilty {
		failures = append(failures, f.refusedRow(d, r))
	}
	return failures, nil
}

// rejectedRow is a row with the service's verdict on it.
type rejectedRow struct {
	row    *mapping.Row
	reason *retry.Rejected
}

func (f *function) send(ctx context.Context, d *delivery, rows []*mapping.Row) ([]rejectedRow, error) {
	entries := make([]writer.Entry, len(rows))
	for i, r := range rows {
		d.summary.table(r.Schema.Name).Sent++
		entries[i] = writer.Entry{Table: r.Table, Row: r.Entry, Unless: r.Unless}
	}
	var rejected []rejectedRow
	var first error
	unknown := 0
	for i, err := range f.cfg.Writer.Apply(ctx, entries) {
		var verdict *retry.Rejected
		switch {
		case err == nil:
			d.summary.Applied++
		case errors.As(err, &verdict):
			rejected = append(rejected, rejectedRow{rows[i], verdict})
		default:
			unknown++
			if first == nil {
				first = err
			}
		}
	}
	if first != nil {
		err := fmt.Errorf("applying %d rows, %d not known to be applied: %w", len(rows), unknown, first)
		if errors.Is(first, writer.ErrNotAdmitted) {
			err = errors.Join(push.ErrOverloaded, err)
		}
		return nil, err
	}
	return rejected, nil
}
