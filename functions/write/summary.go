package write

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// maxNotes bounds the lines that one delivery logs about its failures; the summary
// counts the rest.
const maxNotes = 20

// Summary says what became of one delivery. Counts are of records, but for Applied,
// which counts entries.
type Summary struct {
	Start        time.Time
	Duration     time.Duration
	PublishTime  time.Time // zero where the delivery is malformed
	Bytes        int64     // of the request's body
	Records      int
	Applied      int
	Skipped      int
	Failed       int // can never be written: handed to the failure policy
	DeadLettered int
	Refused      error // nil: acknowledged. Quotes nothing of the record
}

// LogSummary returns a Report that writes one structured line for each delivery: what
// alarms and log-based metrics rest on.
func LogSummary(logger *slog.Logger, pipelineName string) func(context.Context, Summary) {
	return func(ctx context.Context, s Summary) {
		attrs := []slog.Attr{
			slog.String("function", "write"), slog.String("pipeline", pipelineName),
			slog.Int64("bytes", s.Bytes), slog.Int("records", s.Records), slog.Int("applied", s.Applied),
			slog.Int("skipped", s.Skipped), slog.Int("failed", s.Failed), slog.Int("deadLettered", s.DeadLettered),
			slog.Int64("durationMs", s.Duration.Milliseconds()),
		}
		if !s.PublishTime.IsZero() {
			attrs = append(attrs, slog.Int64("lagMs", s.Start.Add(s.Duration).Sub(s.PublishTime).Milliseconds()))
		}
		if s.Refused == nil {
			logger.LogAttrs(ctx, slog.LevelInfo, "delivery acknowledged", attrs...)
			return
		}
		attrs = append(attrs, slog.String("error", s.Refused.Error()))
		level := slog.LevelError
		if errors.Is(s.Refused, push.ErrOverloaded) || retry.Classify(s.Refused).Verdict == retry.VerdictTransient {
			level = slog.LevelWarn
		}
		logger.LogAttrs(ctx, level, "delivery refused", attrs...)
	}
}

// note logs one failure: under drop this line is all that is left of the record.
func (f *function) note(ctx context.Context, d *delivery, policy pipeline.Policy, x *failure) {
	if d.notes++; d.notes > maxNotes {
		return
	}
	attrs := []slog.Attr{
		slog.String("policy", string(policy)), slog.String("error", x.reason.Error()),
		slog.String("messageId", x.letter.MessageID),
	}
	var r *mapping.Rejection
	if errors.As(x.reason, &r) {
		attrs = append(attrs, slog.Int("record", r.Record), slog.String("mapping", r.Mapping), slog.String("place", r.Place))
	}
	f.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "record cannot be written", attrs...)
}
