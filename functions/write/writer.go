package write

import (
	"context"
	"log/slog"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
)

// NewWriter returns the writer of p's tables, over the dialer's connections. The caller
// closes it.
func NewWriter(p *pipeline.Pipeline, dialer *btrpc.Dialer, logger *slog.Logger) (*writer.Writer, error) {
	return writer.New(writer.Config{
		Schema:      writer.Schemas(p.Tables),
		Dial:        func(ctx context.Context, _, _ string) (writer.Conn, error) { return dialer.Data(ctx) },
		DialAdmin:   func(ctx context.Context, _, _ string) (writer.Conn, error) { return dialer.Admin(ctx) },
		Limits:      p.Write.Limits,
		Repair:      p.Write.Repair,
		SingleTable: len(p.Tables) == 1 && p.Tables[0].IDFrom.IsZero(),
		Ordered:     p.Write.Ordered,
		Logger:      logger,
	})
}
