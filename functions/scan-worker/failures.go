package scanworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// maxNotes bounds the lines that one task logs about its failures; the counts of the
// split have the rest.
const maxNotes = 20

// giveUp hands what can never be delivered to the scan's policy.
func (w *work) giveUp(ctx context.Context, failures []relay.Failure[string]) error {
	policy := w.plan.scan.OnFailure
	for _, f := range failures {
		w.note(ctx, policy, "record cannot be delivered", f.Err)
	}
	switch policy {
	case pipeline.PolicyDrop:
		return nil
	case pipeline.PolicyDeadLetter:
		return w.keep(ctx, failures)
	}
	return &hopeless{fmt.Errorf("onFailure: fail, and a record cannot be delivered: %w", failures[0].Err)}
}

// keep makes dead letters: of a record, its body; of a row that makes none, its key.
func (w *work) keep(ctx context.Context, failures []relay.Failure[string]) error {
	letters := make([]deadletter.Letter, len(failures))
	table := w.plan.scan.Table
	for i, f := range failures {
		letters[i] = deadletter.Letter{
			Kind: deadletter.KindOutput, Mapping: w.task.Name, Error: f.Err.Error(), Time: time.Now(),
			Table: pipeline.TableRef{Project: table.Project, Instance: table.Instance, Table: table.ID}.String(),
		}
		if f.Record != nil && len(f.Record.Body) <= deadletter.MaxEntry {
			letters[i].Data = f.Record.Body
		} else {
			letters[i].Data = mapping.KeyRecord(table, f.Position)
		}
	}
	if err := w.cfg.DeadLetters.Put(ctx, letters); err != nil {
		return fmt.Errorf("keeping %d dead letters: %w", len(letters), err)
	}
	return nil
}

// skipLarge decides on a row that is too large to be read.
func (w *work) skipLarge(ctx context.Context, key string) error {
	err := fmt.Errorf("a row with a key of %d bytes is over the 256 MiB that Bigtable can read", len(key))
	if w.plan.scan.OnLargeRow != pipeline.PolicySkip {
		return &hopeless{fmt.Errorf("%w; onLargeRow: skip leaves it out", err)}
	}
	w.note(ctx, w.plan.scan.OnLargeRow, "row cannot be read", err)
	return nil
}

// note logs one failure: under drop this line is all that is left of the record.
func (w *work) note(ctx context.Context, policy pipeline.Policy, what string, err error) {
	if w.notes.Add(1) > maxNotes {
		return
	}
	attrs := []slog.Attr{
		slog.String("policy", string(policy)), slog.String("error", err.Error()), slog.String("scan", w.task.Scan),
		slog.String("name", w.task.Name), slog.Int("split", w.task.Split),
	}
	var out *mapping.OutputError
	if errors.As(err, &out) && out.Place != "" {
		attrs = append(attrs, slog.String("place", out.Place))
	}
	w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, what, attrs...)
}
