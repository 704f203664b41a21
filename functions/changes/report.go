package changes

import (
	"context"
	"log/slog"

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
		case OutcomeFailed, OutcomeMalformed:
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
			slog.Int64("changes", v.Rows), slog.Int64("records", v.Records), slog.Int64("dropped", v.Dropped), slog.Int64("skipped", v.Skipped),
			slog.Int("successors", v.Successors), slog.Int64("durationMs", v.Duration.Milliseconds()),
		}
		if !v.LowWatermark.IsZero() {
			attrs = append(attrs, slog.Int64("lagMs", v.Lag.Milliseconds()))
		}
		if v.Outcome == OutcomeMalformed { // nothing else tells which it is
			attrs = append(attrs, slog.String("messageId", v.Message))
		}
		if v.Reason != nil {
			attrs = append(attrs, slog.String("reason", v.Reason.Error()))
		}
		logger.LogAttrs(ctx, level, "visit of a partition", attrs...)
	}
}

// LogTick returns a Config.Ticked that tells of each reconciliation in one line.
func LogTick(logger *slog.Logger, pipelineName string) func(context.Context, Reconciliation) {
	logger = logger.With("function", "changes", "pipeline", pipelineName)
	return func(ctx context.Context, t Reconciliation) {
		level := slog.LevelInfo
		if t.Missing > 0 || t.Tokenless > 0 {
			level = slog.LevelWarn
		}
		logger.LogAttrs(ctx, level, "tick of a change stream", slog.String("stream", t.Stream),
			slog.Int("service", t.Service), slog.Int("partitions", t.Partitions), slog.Int("due", t.Due), slog.Int("pending", t.Pending),
			slog.Int("missing", t.Missing), slog.Int("opened", t.Opened), slog.Int("tokenless", t.Tokenless),
			slog.Int64("lagMs", t.Lag.Milliseconds()), slog.Int64("dueLagMs", t.DueLag.Milliseconds()), slog.Int64("unheldLagMs", t.UnheldLag.Milliseconds()))
	}
}

// Metrics are the OpenTelemetry instruments of visits. It is safe for concurrent use.
type Metrics struct {
	changes, records, dropped, visits, closed, failed metric.Int64Counter
	opens, heartbeats, user, garbage                  metric.Int64Counter
	filtered, skipped, split, merged                  metric.Int64Counter
	missed                                            metric.Int64Gauge
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

		opens:      made.Counter("btf.changes.streams.opened", "{stream}", "Streams that the service was asked for."),
		heartbeats: made.Counter("btf.changes.heartbeats.read", "{heartbeat}", "Heartbeats that the service has sent."),
		user:       made.Counter("btf.changes.user.read", "{change}", "Changes by applications that the service has sent, repeats included."),
		garbage:    made.Counter("btf.changes.garbage.read", "{change}", "Changes by garbage collection that the service has sent, repeats included."),
		filtered:   made.Counter("btf.changes.entries.filtered", "{entry}", "Entries that the filter has left out."),
		skipped:    made.Counter("btf.changes.skipped", "{change}", "Changes of which the filter has left nothing."),
		split:      made.Counter("btf.changes.partitions.split", "{partition}", "Partitions that closed into several."),
		missed:     made.Gauge("btf.changes.heartbeats.missed", "{heartbeat}", "Heartbeats in a row that were due and did not come in the last visit, at most."),
		merged:     made.Counter("btf.changes.partitions.merged", "{partition}", "Partitions that closed into one, merged with others or moved."),
	}
	return m, made.Err("changes")
}

// Report counts one visit.
func (m *Metrics) Report(ctx context.Context, v Visit) {
	if v.Outcome == OutcomeMalformed {
		return // it belongs to no stream
	}
	stream := metric.WithAttributeSet(attribute.NewSet(attribute.String("stream", v.Stream)))
	add := func(c metric.Int64Counter, n int64) { telemetry.Add(ctx, c, n, stream) }
	add(m.changes, v.Rows)
	add(m.records, v.Records)
	add(m.dropped, v.Dropped)
	add(m.opens, v.Opens)
	add(m.heartbeats, v.Heartbeats)
	add(m.user, v.User)
	add(m.garbage, v.Garbage)
	add(m.filtered, v.Filtered)
	add(m.skipped, v.Skipped)
	if v.Opens > 0 {
		m.missed.Record(ctx, v.Missed, stream)
	}
	if v.Fence > 0 {
		add(m.visits, 1)
	}
	switch {
	case v.Targets > 1:
		add(m.split, 1)
	case v.Targets == 1:
		add(m.merged, 1)
	}
	switch v.Outcome {
	case OutcomeClosed:
		add(m.closed, 1)
	case OutcomeFailed:
		add(m.failed, 1)
	}
}

// NewReadingMetric makes the instrument of reads that are open, which Config.Reading takes.
func NewReadingMetric(meter metric.Meter) (func(ctx context.Context, stream string, n int64), error) {
	made := telemetry.Instruments{Meter: meter}
	open := made.UpDownCounter("btf.changes.streams.open", "{stream}", "Streams that are being read.")
	return func(ctx context.Context, stream string, n int64) {
		open.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(attribute.String("stream", stream))))
	}, made.Err("changes")
}

// TickMetrics are the OpenTelemetry instruments of reconciliations. It is safe for concurrent use.
type TickMetrics struct {
	opened, tokenless                          metric.Int64Counter
	service, partitions, due, pending, missing metric.Int64Gauge
	lag, dueLag, unheldLag                     metric.Int64Gauge
}

// NewTickMetrics makes the instruments.
func NewTickMetrics(meter metric.Meter) (*TickMetrics, error) {
	made := telemetry.Instruments{Meter: meter}
	m := &TickMetrics{
		opened:     made.Counter("btf.changes.partitions.opened", "{partition}", "Partitions that ticks opened, those of the first tick included."),
		tokenless:  made.Counter("btf.changes.partitions.tokenless", "{partition}", "Partitions that ticks opened an hour before their place, which was lost."),
		service:    made.Gauge("btf.changes.partitions.service", "{partition}", "Partitions that the service has."),
		partitions: made.Gauge("btf.changes.partitions.held", "{partition}", "Partitions that the ledger has."),
		due:        made.Gauge("btf.changes.partitions.due", "{partition}", "Partitions that a tick has published tasks for."),
		pending:    made.Gauge("btf.changes.partitions.pending", "{partition}", "Merged partitions that wait for the close of a source."),
		missing:    made.Gauge("btf.changes.ranges.missing", "{range}", "Ranges of keys that nobody holds."),
		lag:        made.Gauge("btf.changes.lag", "ms", "Age of the oldest low watermark of the stream."),
		dueLag:     made.Gauge("btf.changes.lag.due", "ms", "Age of the oldest low watermark of the partitions that are due."),
		unheldLag:  made.Gauge("btf.changes.lag.unheld", "ms", "Age of the oldest low watermark of pending partitions and missing ranges."),
	}
	return m, made.Err("changes")
}

// Report records one reconciliation.
func (m *TickMetrics) Report(ctx context.Context, t Reconciliation) {
	stream := metric.WithAttributeSet(attribute.NewSet(attribute.String("stream", t.Stream)))
	telemetry.Add(ctx, m.opened, int64(t.Opened), stream)
	telemetry.Add(ctx, m.tokenless, int64(t.Tokenless), stream)
	m.service.Record(ctx, int64(t.Service), stream)
	m.partitions.Record(ctx, int64(t.Partitions), stream)
	m.due.Record(ctx, int64(t.Due), stream)
	m.pending.Record(ctx, int64(t.Pending), stream)
	m.missing.Record(ctx, int64(t.Missing), stream)
	m.lag.Record(ctx, t.Lag.Milliseconds(), stream)
	m.dueLag.Record(ctx, t.DueLag.Milliseconds(), stream)
	m.unheldLag.Record(ctx, t.UnheldLag.Milliseconds(), stream)
}
