package scanplanner

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
)

// Log returns a Config.Report that tells of each request in one line.
func Log(logger *slog.Logger, pipelineName string) func(context.Context, Summary) {
	logger = logger.With("function", "scan-planner", "pipeline", pipelineName)
	return func(ctx context.Context, s Summary) {
		attrs := []slog.Attr{
			slog.String("scan", s.Scan), slog.String("name", s.Name), slog.String("state", string(s.State)),
			slog.Int("samples", s.Samples), slog.Int("splits", s.Splits), slog.Int("tasks", s.Tasks),
		}
		if s.Lapsed > 0 {
			logger.LogAttrs(ctx, slog.LevelError, "splits have failed whose tasks have expired", slog.Int("splits", s.Lapsed))
		}
		switch {
		case s.Malformed != nil:
			logger.LogAttrs(ctx, slog.LevelError, "delivery to scan-planner is no scan request", slog.String("error", s.Malformed.Error()))
		case s.Refused != nil:
			logger.LogAttrs(ctx, slog.LevelError, "scan request refused", append(attrs, slog.String("error", s.Refused.Error()))...)
		case s.Rejected != nil:
			logger.LogAttrs(ctx, slog.LevelError, "scan request cannot be planned: the scan has failed", append(attrs, slog.String("error", s.Rejected.Error()))...)
		default:
			logger.LogAttrs(ctx, slog.LevelInfo, "scan request acknowledged", attrs...)
		}
	}
}

// Metrics are the OpenTelemetry instruments of the function. It is safe for concurrent
// use.
type Metrics struct{ samples, planned, published metric.Int64Counter }

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	made := telemetry.Instruments{Meter: meter}
	m := &Metrics{
		samples:   made.Counter("btf.scan.samples.taken", "{call}", "Times that a table's keys were sampled: once for each plan."),
		planned:   made.Counter("btf.scan.splits.planned", "{split}", "Splits of the plans made."),
		published: made.Counter("btf.scan.tasks.published", "{task}", "Splits told to workers: those not finished, at each request that comes."),
	}
	return m, made.Err("scan-planner")
}

// Report counts one request.
func (m *Metrics) Report(ctx context.Context, s Summary) {
	scan := metric.WithAttributeSet(attribute.NewSet(attribute.String("scan", s.Name)))
	telemetry.Add(ctx, m.samples, int64(s.Samples), scan)
	if s.Samples > 0 {
		telemetry.Add(ctx, m.planned, int64(s.Splits), scan)
	}
	telemetry.Add(ctx, m.published, int64(s.Tasks), scan)
}
