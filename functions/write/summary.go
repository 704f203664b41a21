package write

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
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
	LetterWait   time.Duration // for dead letters to be stored
	Refused      error         // nil: acknowledged. Quotes nothing of the record
	Tables       []TableCount
}

// TableCount counts the entries of one table of the pipeline file, or of all tables that
// it computes the ids of.
type TableCount struct {
	Name   string // in the pipeline file
	Sent   int    // handed to the writer, once each
	Failed int    // can never be written
}

// table finds the counts of a table.
func (s *Summary) table(name string) *TableCount {
	for i := range s.Tables {
		if s.Tables[i].Name == name {
			return &s.Tables[i]
		}
	}
	s.Tables = append(s.Tables, TableCount{Name: name})
	return &s.Tables[len(s.Tables)-1]
}

// plainEvery is how often deliveries that went well are told of: a line for each
// would cost more than the function. What is not told yet waits for the next delivery
// or for Flush.
const plainEvery = time.Second

// Log tells of deliveries in structured lines: what alarms and log-based metrics rest
// on. Each delivery that was refused, or of which a record could not be written, has a
// line of its own; the others share one line a second.
type Log struct {
	logger *slog.Logger

	mu         sync.Mutex
	plain      Summary // sums; Duration and lag are the largest
	lag        time.Duration
	deliveries int
	told       time.Time
}

// NewLog returns the log of the function write of a pipeline.
func NewLog(logger *slog.Logger, pipelineName string) *Log {
	return &Log{logger: logger.With("function", "write", "pipeline", pipelineName)}
}

// Report tells of one delivery, now or together with others.
func (l *Log) Report(ctx context.Context, s Summary) {
	if s.Refused == nil && s.Failed == 0 {
		l.add(s)
		return
	}
	attrs := s.attrs(1, s.lag())
	if s.Refused == nil {
		l.logger.LogAttrs(ctx, slog.LevelInfo, "deliveries acknowledged", attrs...)
		return
	}
	attrs = append(attrs, slog.String("error", s.Refused.Error()))
	level := slog.LevelError
	if errors.Is(s.Refused, push.ErrOverloaded) || retry.Classify(s.Refused).Verdict == retry.VerdictTransient {
		level = slog.LevelWarn
	}
	l.logger.LogAttrs(ctx, level, "delivery refused", attrs...)
}

func (l *Log) add(s Summary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliveries++
	l.plain.Bytes += s.Bytes
	l.plain.Records += s.Records
	l.plain.Applied += s.Applied
	l.plain.Skipped += s.Skipped
	l.plain.Duration = max(l.plain.Duration, s.Duration)
	l.lag = max(l.lag, s.lag())
	if now := s.Start.Add(s.Duration); now.Sub(l.told) >= plainEvery {
		l.told = now
		l.flush()
	}
}

// Flush tells what is not told yet.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return nil
}

func (l *Log) flush() {
	if l.deliveries == 0 {
		return
	}
	// The line is no single request's: it carries no trace.
	l.logger.LogAttrs(context.Background(), slog.LevelInfo, "deliveries acknowledged", l.plain.attrs(l.deliveries, l.lag)...)
	l.plain, l.lag, l.deliveries = Summary{}, 0, 0
}

// lag is the age of the message at the end of the delivery; 0 where it has no time.
func (s *Summary) lag() time.Duration {
	if s.PublishTime.IsZero() {
		return 0
	}
	return s.Start.Add(s.Duration).Sub(s.PublishTime)
}

func (s *Summary) attrs(deliveries int, lag time.Duration) []slog.Attr {
	return []slog.Attr{
		slog.Int("deliveries", deliveries), slog.Int64("bytes", s.Bytes), slog.Int("records", s.Records),
		slog.Int("applied", s.Applied), slog.Int("skipped", s.Skipped), slog.Int("failed", s.Failed),
		slog.Int("deadLettered", s.DeadLettered), slog.Int64("durationMs", s.Duration.Milliseconds()),
		slog.Int64("lagMs", lag.Milliseconds()),
	}
}

// note logs one failure: under drop this line is all that is left of the record.
func (f *function) note(ctx context.Context, d *delivery, policy pipeline.Policy, x *failure) {
	if d.notes++; d.notes > maxNotes {
		return
	}
	attrs := []slog.Attr{
		slog.String("policy", string(policy)), slog.String("error", x.reason.Error()),
		slog.String("messageId", d.Message.ID),
	}
	var r *mapping.Rejection
	if errors.As(x.reason, &r) {
		attrs = append(attrs, slog.Int("record", r.Record), slog.String("mapping", r.Mapping), slog.String("place", r.Place))
	}
	f.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "record cannot be written", attrs...)
}
