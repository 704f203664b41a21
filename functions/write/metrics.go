package write

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// Gauges are what the function's parts say of themselves when they are asked.
type Gauges struct {
	Writer func() writer.Stats
	// DeadLetters returns how many letters are stored since the start and how many are
	// waited for; nil where no policy keeps any.
	DeadLetters func() (published, outstanding int64)
}

// Metrics are the OpenTelemetry instruments of the function; docs/write.md lists them
// beside those of the reference. It is safe for concurrent use.
type Metrics struct {
	failed, skipped       metric.Int64Counter
	tableSent, tableError metric.Int64Counter
	letterWait            metric.Int64Histogram
}

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter, g Gauges) (*Metrics, error) {
	made := telemetry.Instruments{Meter: meter}
	m := &Metrics{
		failed:     made.Counter("btf.write.records.failed", "{record}", "Records and entries that can never be written: what reached the failure policy."),
		skipped:    made.Counter("btf.write.records.skipped", "{record}", "Records that the pipeline file says to skip."),
		tableSent:  made.Counter("btf.write.table.entries.sent", "{entry}", "Entries handed to the writer, by the table's name in the pipeline file."),
		tableError: made.Counter("btf.write.table.entries.failed", "{entry}", "Records and entries that can never be written, by the table's name in the pipeline file."),
	}
	var err error
	m.letterWait, err = meter.Int64Histogram("btf.write.dead_letters.wait", metric.WithUnit("ms"),
		metric.WithDescription("How long a delivery waited until its dead letters were stored."))
	made.Note(err)
	made.Note(observeWriter(meter, g.Writer))
	made.Note(observeLetters(meter, g.DeadLetters))
	return m, made.Err("write")
}

// Report counts one delivery.
func (m *Metrics) Report(ctx context.Context, s Summary) {
	telemetry.Add(ctx, m.failed, int64(s.Failed))
	telemetry.Add(ctx, m.skipped, int64(s.Skipped))
	if s.LetterWait > 0 {
		m.letterWait.Record(ctx, s.LetterWait.Milliseconds())
	}
	for _, t := range s.Tables {
		table := metric.WithAttributeSet(attribute.NewSet(attribute.String("table", t.Name)))
		telemetry.Add(ctx, m.tableSent, int64(t.Sent), table)
		telemetry.Add(ctx, m.tableError, int64(t.Failed), table)
	}
}

// observed is an instrument that is read from a part's own counts.
type observed[T any] struct {
	name, unit, what string
	level            bool // may fall
	read             func(*T) int64
}

// register makes the instruments and reads all of them from one snapshot.
func register[T any](meter metric.Meter, snapshot func() T, all []observed[T]) error {
	instruments := make([]metric.Int64Observable, len(all))
	observables := make([]metric.Observable, len(all))
	for i, o := range all {
		var err error
		if o.level {
			instruments[i], err = meter.Int64ObservableUpDownCounter(o.name, metric.WithUnit(o.unit), metric.WithDescription(o.what))
		} else {
			instruments[i], err = meter.Int64ObservableCounter(o.name, metric.WithUnit(o.unit), metric.WithDescription(o.what))
		}
		if err != nil {
			return err
		}
		observables[i] = instruments[i]
	}
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		now := snapshot()
		for i, o := range all {
			to.ObserveInt64(instruments[i], o.read(&now))
		}
		return nil
	}, observables...)
	return err
}

func observeWriter(meter metric.Meter, stats func() writer.Stats) error {
	err := register(meter, stats, []observed[writer.Stats]{
		{"btf.write.entries.sent", "{entry}", "Entries accepted by the writer, once each however often they were sent.", false,
			func(s *writer.Stats) int64 { return s.RecordsSend }},
		{"btf.write.bytes.sent", "By", "Serialized bytes of the entries accepted.", false,
			func(s *writer.Stats) int64 { return s.BytesSend }},
		{"btf.write.entries.in_flight", "{entry}", "Entries accepted and without an outcome, against limits.inFlight.maxEntries.", true,
			func(s *writer.Stats) int64 { return int64(s.InFlightEntries) }},
		{"btf.write.bytes.in_flight", "By", "Their serialized bytes, against limits.inFlight.maxBytes.", true,
			func(s *writer.Stats) int64 { return s.InFlightBytes }},
		{"btf.write.entries.parked", "{entry}", "Entries that wait for a missing table or family to be made.", true,
			func(s *writer.Stats) int64 { return int64(s.Parked) }},
		{"btf.write.tables.created", "{table}", "Tables made by repair.", false,
			func(s *writer.Stats) int64 { return s.TablesCreated }},
		{"btf.write.families.added", "{family}", "Column families added to tables by repair.", false,
			func(s *writer.Stats) int64 { return s.FamiliesAdded }},
	})
	if err != nil {
		return err
	}
	return observeErrors(meter, stats)
}

// observeErrors has a series for each status that was met.
func observeErrors(meter metric.Meter, stats func() writer.Stats) error {
	_, err := meter.Int64ObservableCounter("btf.write.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Failed outcomes by status, one for each entry and attempt; refusals of several entries together once they are confirmed."),
		metric.WithInt64Callback(func(_ context.Context, to metric.Int64Observer) error {
			for code, n := range stats().Errors {
				if n > 0 {
					to.Observe(n, metric.WithAttributes(attribute.String("code", codes.Code(code).String())))
				}
			}
			return nil
		}))
	return err
}

// letterCounts is a snapshot of a publisher.
type letterCounts struct{ published, outstanding int64 }

func observeLetters(meter metric.Meter, counts func() (published, outstanding int64)) error {
	if counts == nil {
		return nil
	}
	return register(meter, func() letterCounts {
		published, outstanding := counts()
		return letterCounts{published, outstanding}
	}, []observed[letterCounts]{
		{"btf.write.dead_letters.published", "{message}", "Dead letters stored.", false, func(c *letterCounts) int64 { return c.published }},
		{"btf.write.dead_letters.outstanding", "{message}", "Dead letters that are being stored.", true, func(c *letterCounts) int64 { return c.outstanding }},
	})
}
