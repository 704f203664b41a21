package changes

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
)

// Log returns a Config.Report that tells of each visit in one line: what alarms and
// log-based metrics rest on.
func Log(logger *slog.Logger, pipelineName string) func(context.Context, Visit) {
	logger = logger.With("function", "changes", "pipeline", pipelineName)
	return func(ctx context.Context, v Visit) {
		level := slog.LevelInfo
		switch v.Outcome {
		case OutcomeFailed:
			level = slog.LevelError
		case OutcomeHeld, OutcomeVoid:
			level = slog.LevelDebug
		case OutcomeIdle, OutcomeWindow:
			if v.Fence == 0 { // there was nothing to lease it for
				level = slog.LevelDebug
			}
		}
		attrs := []slog.Attr{
			slog.String("outcome", string(v.Outcome)), slog.String("stream", v.Stream), slog.String("partition", v.Incarnation),
			slog.Int64("changes", v.Rows), slog.Int64("records", v.Records), slog.Int64("dropped", v.Dropped),
			slog.Int("successors", v.Successors), slog.Int64("durationMs", v.Duration.Milliseconds()),
		}
		if !v.LowWatermark.IsZero() {
			attrs = append(attrs, slog.Int64("lagMs", time.Since(v.LowWatermark).Milliseconds()))
		}
		if v.Reason != nil {
			attrs = append(attrs, slog.String("reason", v.Reason.Error()))
		}
		logger.LogAttrs(ctx, level, "visit of a partition", attrs...)
	}
}

// Metrics are the OpenTelemetry instruments of the function. It is safe for concurrent use.
type Metrics struct {
	changes, records, dropped, visits, closed, failed metric.Int64Counter
}

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	made := telemetry.Instruments{Meter: meter}
	m := &Metrics{
		changes: made.Counter("btf.changes.read", "{change}", "Changes whose records are acknowledged."),
		records: made.Counter("btf.changes.records.sent", "{record}", "Records that the sink acknowledged."),
		dropped: made.Counter("btf.changes.records.dropped", "{record}", "Changes that the failure policy took."),
		visits:  made.Counter("btf.changes.visits", "{visit}", "Leases taken of partitions."),
		closed:  made.Counter("btf.changes.partitions.closed", "{partition}", "Partitions that were replaced by successors."),
		failed:  made.Counter("btf.changes.visits.failed", "{visit}", "Visits that went wrong."),
	}
	return m, made.Err("changes")
}

// Report counts one visit.
func (m *Metrics) Report(ctx context.Context, v Visit) {
	stream := metric.WithAttributeSet(attribute.NewSet(attribute.String("stream", v.Stream)))
	add := func(c metric.Int64Counter, n int64) { telemetry.Add(ctx, c, n, stream) }
	add(m.changes, v.Rows)
	add(m.records, v.Records)
	add(m.dropped, v.Dropped)
	if v.Fence > 0 {
		add(m.visits, 1)
	}
	switch v.Outcome {
	case OutcomeClosed:
		add(m.closed, 1)
	case OutcomeFailed:
		add(m.failed, 1)
	}
}
