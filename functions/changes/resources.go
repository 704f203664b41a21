package changes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
)

// Retentions reads how long tables keep their changes. It is safe for concurrent use.
type Retentions struct {
	admin grpc.ClientConnInterface
	now   func() time.Time

	mu    sync.Mutex
	known map[string]retained
}

type retained struct {
	retention time.Duration
	at        time.Time
}

// NewRetentions returns Retentions over a connection to Bigtable's administration.
func NewRetentions(admin grpc.ClientConnInterface, now func() time.Time) *Retentions {
	return &Retentions{admin: admin, now: now, known: map[string]retained{}}
}

// retentionFor is how long a retention is believed.
const retentionFor = 5 * time.Minute

// Retention is for Config.Retention. It is 0 if the function may not read it.
func (r *Retentions) Retention(ctx context.Context, c *pipeline.Change) (time.Duration, error) {
	name := c.Table.Ref().String()
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known[name]; ok && r.now().Sub(known.at) < retentionFor {
		return known.retention, nil
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "x-goog-request-params", "name="+name)
	table, err := adminpb.NewBigtableTableAdminClient(r.admin).GetTable(ctx, &adminpb.GetTableRequest{Name: name, View: adminpb.Table_SCHEMA_VIEW})
	var retention time.Duration
	switch {
	case retry.IsCode(err, codes.PermissionDenied):
	case err != nil:
		return 0, fmt.Errorf("reading table %s: %w", name, retry.Bare(retry.Classify(err).Code))
	case table.GetChangeStreamConfig().GetRetentionPeriod() == nil:
		return 0, errors.New("the table has no change stream: turn it on, with a retention of one to seven days")
	default:
		retention = table.ChangeStreamConfig.RetentionPeriod.AsDuration()
	}
	r.known[name] = retained{retention, r.now()}
	return retention, nil
}

// Sinks is for Config.Sink.
func Sinks(sinks *sink.Sinks) func(context.Context, *pipeline.Change) (relay.Sink, error) {
	return func(ctx context.Context, c *pipeline.Change) (relay.Sink, error) {
		return sinks.Open(ctx, c.To, slog.String("stream", c.Name))
	}
}
