package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// maxEntry is what Cloud Logging takes of one line, in bytes (256 KiB), less what the
// line has beside the record.
const maxEntry = 250 << 10

// Log writes a line for each record. It is the one place where a pipeline's data goes
// into a log, because its file says so.
type Log struct{ logger *slog.Logger }

// NewLog returns a Log.
func NewLog(logger *slog.Logger) *Log { return &Log{logger: logger} }

// Send implements relay.Sink.
func (l *Log) Send(ctx context.Context, records []relay.Record) []error {
	var errs []error
	for i, r := range records {
		if len(r.Body) > maxEntry {
			if errs == nil {
				errs = make([]error, len(records))
			}
			errs[i] = &retry.Rejected{Reason: fmt.Sprintf("a record of %d bytes; a line of the log takes %d", len(r.Body), maxEntry)}
			continue
		}
		if err := l.write(ctx, &r); err != nil {
			if errs == nil {
				errs = make([]error, len(records))
			}
			errs[i] = fmt.Errorf("writing the log: %w", err)
		}
	}
	return errs
}

// write is what a slog.Logger does, which throws the error away.
func (l *Log) write(ctx context.Context, r *relay.Record) error {
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "record", 0)
	line.AddAttrs(slog.String(IDAttribute, r.ID()), slog.Any("record", json.RawMessage(r.Body)))
	return l.logger.Handler().Handle(ctx, line)
}
