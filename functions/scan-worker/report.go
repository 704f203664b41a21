package scanworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Log returns a Config.Report that tells of each task in one line: what alarms and
// log-based metrics rest on.
func Log(logger *slog.Logger, pipelineName string) func(context.Context, Summary) {
	logger = logger.With("function", "scan-worker", "pipeline", pipelineName)
	return func(ctx context.Context, s Summary) {
		level := slog.LevelInfo
		switch s.Outcome {
		case OutcomeFailed:
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
		if s.Reason != nil {
			attrs = append(attrs, slog.String("reason", s.Reason.Error()))
		}
		logger.LogAttrs(ctx, level, "scan task", attrs...)
	}
}

// Metrics are the OpenTelemetry instruments of the function. It is safe for concurrent
// use. Bytes read and records left are not among them: nobody knows either.
type Metrics struct {
	rows, records, dropped, assigned, returned metric.Int64Counter
}

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	var errs []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	m := &Metrics{
		rows:     counter("btf.scan.rows.read", "{row}", "Rows read whose records are acknowledged."),
		records:  counter("btf.scan.records.sent", "{record}", "Records that the sink acknowledged."),
		dropped:  counter("btf.scan.records.dropped", "{record}", "Rows or records that the failure policy took."),
		assigned: counter("btf.scan.splits.assigned", "{split}", "Leases taken, one for each slice of a split."),
		returned: counter("btf.scan.splits.returned", "{split}", "Splits given back because something went wrong."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("making the instruments of scan-worker: %w", err)
	}
	return m, nil
}

// Report counts one task.
func (m *Metrics) Report(ctx context.Context, s Summary) {
	scan := metric.WithAttributeSet(attribute.NewSet(attribute.String("scan", s.Name)))
	add := func(c metric.Int64Counter, n int64) {
		if n > 0 {
			c.Add(ctx, n, scan)
		}
	}
	add(m.rows, s.Rows)
	add(m.records, s.Records)
	add(m.dropped, s.Dropped)
	if s.Leased {
		add(m.assigned, 1)
		if s.Outcome == OutcomeReturned {
			add(m.returned, 1)
		}
	}
}
