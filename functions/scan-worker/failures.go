package scanworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// maxKinds bounds the kinds of failures that one task tells apart.
const maxKinds = 5

// Failure is what a policy has taken, of one kind.
type Failure struct {
	What  string // "record cannot be delivered", say
	Error string
	Count int64
}

// failures counts by kind: a fault in the file is the same for row after row.
type failures struct {
	mu    sync.Mutex // the reader and the relay both meet them
	kinds []Failure
	other int64 // of kinds beyond the bound
}

// add counts one, and reports whether it is the first of a kind that is told apart.
func (f *failures) add(what, text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.kinds {
		if k := &f.kinds[i]; k.What == what && k.Error == text {
			k.Count++
			return false
		}
	}
	if len(f.kinds) == maxKinds {
		f.other++
		return false
	}
	f.kinds = append(f.kinds, Failure{What: what, Error: text, Count: 1})
	return true
}

// all returns the kinds and, as one more, what is beyond their bound.
func (f *failures) all() []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	kinds := slices.Clone(f.kinds)
	if f.other > 0 {
		kinds = append(kinds, Failure{What: "record or row cannot be delivered", Error: "for other reasons", Count: f.other})
	}
	return kinds
}

// giveUp hands what can never be delivered to the scan's policy.
func (w *work) giveUp(ctx context.Context, failures []relay.Failure[string]) error {
	policy := w.plan.scan.OnFailure
	if policy != pipeline.PolicyDrop && policy != pipeline.PolicyDeadLetter {
		return &retry.Rejected{Err: fmt.Errorf("onFailure: fail, and a record cannot be delivered: %w", failures[0].Err)}
	}
	for _, f := range failures {
		w.note(ctx, policy, "record cannot be delivered", f.Err)
	}
	if policy == pipeline.PolicyDrop {
		return nil
	}
	return w.keep(ctx, failures)
}

// keep makes dead letters: of a record, its body; of a row that makes none, its key.
func (w *work) keep(ctx context.Context, failures []relay.Failure[string]) error {
	letters := make([]deadletter.Letter, len(failures))
	table := w.plan.scan.Table
	for i, f := range failures {
		letters[i] = deadletter.Letter{
			Mapping: w.task.Name, Error: f.Err.Error(), Time: w.cfg.Now(), Table: table.Ref().String(),
		}
		letters[i].SetOutput(f.Body(), mapping.KeyRecord(table, f.Position))
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
		return &retry.Rejected{Err: fmt.Errorf("%w; onLargeRow: skip leaves it out", err)}
	}
	w.note(ctx, w.plan.scan.OnLargeRow, "row cannot be read", err)
	return nil
}

// note counts one failure and logs the first of its kind at once: under drop, lines are
// all that is left of a record, and the task may not live to its end.
func (w *work) note(ctx context.Context, policy pipeline.Policy, what string, err error) {
	if !w.failures.add(what, err.Error()) {
		return
	}
	attrs := append(w.noteOf(err.Error()), slog.String("policy", string(policy)))
	var out *mapping.OutputError
	if errors.As(err, &out) && out.Place != "" {
		attrs = append(attrs, slog.String("place", out.Place))
	}
	w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, what, attrs...)
}

// noteAll logs how many there were of each kind with more than the one that is logged.
func (w *work) noteAll(ctx context.Context) {
	w.summary.Failures = w.failures.all()
	for _, f := range w.summary.Failures {
		if f.Count > 1 {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, f.What, append(w.noteOf(f.Error), slog.Int64("count", f.Count))...)
		}
	}
}

func (w *work) noteOf(text string) []slog.Attr {
	return []slog.Attr{
		slog.String("error", text), slog.String("scan", w.task.Scan), slog.String("name", w.task.Name), slog.Int("split", w.task.Split),
	}
}
