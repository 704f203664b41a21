package scanworker

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
)

// Log returns a Config.Report that tells of each task in one line: what alarms and
// log-based metrics rest on.
func Log(logger *slog.Logger, pipelineName string) func(context.Context, Summary) {
	logger = logger.With("function", "scan-worker", "pipeline", pipelineName)
	return func(ctx context.Context, s Summary) {
		level := slog.LevelInfo
		switch s.Outcome {
		case OutcomeFailed, OutcomeMalformed:
			level = slog.LevelError
		case OutcomeReturned:
			level = slog.LevelWarn
		case OutcomeHeld, OutcomeVoid:
			level = slog.LevelDebug
		}
		attrs := []slog.Attr{
			slog.String("outcome", string(s.Outcome)), slog.String("scan", s.Scan), slog.String("name", s.Name), slog.Int("split", s.Split),
			slog.Int64("rows", s.Rows), slog.Int64("records", s.Records), slog.Int64("dropped", s.Dropped),
			slog.Int64("durationMs", s.Duration.Milliseconds()),
		}
		if s.Outcome == OutcomeMalformed { // nothing else tells which it is
			attrs = append(attrs, slog.String("messageId", s.Message))
		}
		if s.Reason != nil {
			attrs = append(attrs, slog.String("reason", s.Reason.Error()))
		}
		logger.LogAttrs(ctx, level, "scan task", attrs...)
	}
}

// Metrics are the OpenTelemetry instruments of the function. It is safe for concurrent
// use. Bytes read and records left are not among them: nobody knows either.
type Metrics struct {
	rows, records, dropped, started, assigned, returned metric.Int64Counter
}

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	made := telemetry.Instruments{Meter: meter}
	m := &Metrics{
		rows:     made.Counter("btf.scan.rows.read", "{row}", "Rows read whose records are acknowledged."),
		records:  made.Counter("btf.scan.records.sent", "{record}", "Records that the sink acknowledged."),
		dropped:  made.Counter("btf.scan.records.dropped", "{record}", "Rows or records that the failure policy took."),
		started:  made.Counter("btf.scan.splits.started", "{split}", "Splits leased for the first time."),
		assigned: made.Counter("btf.scan.splits.assigned", "{split}", "Leases taken, one for each slice of a split."),
		returned: made.Counter("btf.scan.splits.returned", "{split}", "Splits given back because something went wrong."),
	}
	return m, made.Err("scan-worker")
}

// Report counts one task.
func (m *Metrics) Report(ctx context.Context, s Summary) {
	scan := metric.WithAttributeSet(attribute.NewSet(attribute.String("scan", s.Name)))
	add := func(c metric.Int64Counter, n int64) { telemetry.Add(ctx, c, n, scan) }
	add(m.rows, s.Rows)
	add(m.records, s.Records)
	add(m.dropped, s.Dropped)
	if s.Fence == 1 {
		add(m.started, 1)
	}
	if s.Fence > 0 {
		add(m.assigned, 1)
	}
	if s.Fence > 0 && s.Outcome == OutcomeReturned {
		add(m.returned, 1)
	}
}
