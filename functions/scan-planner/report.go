package scanplanner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Log returns a Config.Report that tells of each request in one line.
func Log(logger *slog.Logger, pipelineName string) func(context.Context, Summary) {
	logger = logger.With("function", "scan-planner", "pipeline", pipelineName)
	return func(ctx context.Context, s Summary) {
		attrs := []slog.Attr{
			slog.String("scan", s.Scan), slog.String("name", s.Name), slog.String("state", string(s.State)),
			slog.Int("samples", s.Samples), slog.Int("splits", s.Splits), slog.Int("tasks", s.Tasks),
		}
		if s.Refused == nil {
			logger.LogAttrs(ctx, slog.LevelInfo, "scan request acknowledged", attrs...)
			return
		}
		logger.LogAttrs(ctx, slog.LevelError, "scan request refused", append(attrs, slog.String("error", s.Refused.Error()))...)
	}
}

// Metrics are the OpenTelemetry instruments of the function. It is safe for concurrent
// use.
type Metrics struct{ samples, planned, published metric.Int64Counter }

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	var errs []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	m := &Metrics{
		samples:   counter("btf.scan.samples.taken", "{call}", "Times that a table's keys were sampled: once for each plan."),
		planned:   counter("btf.scan.splits.planned", "{split}", "Splits of the plans made."),
		published: counter("btf.scan.tasks.published", "{task}", "Splits told to workers: those not finished, at each request that comes."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("making the instruments of scan-planner: %w", err)
	}
	return m, nil
}

// Report counts one request.
func (m *Metrics) Report(ctx context.Context, s Summary) {
	scan := metric.WithAttributeSet(attribute.NewSet(attribute.String("scan", s.Name)))
	if s.Samples > 0 {
		m.samples.Add(ctx, int64(s.Samples), scan)
		m.planned.Add(ctx, int64(s.Splits), scan)
	}
	if s.Tasks > 0 {
		m.published.Add(ctx, int64(s.Tasks), scan)
	}
}
