package scanworker

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
)

// Tables keeps a client for each instance and application profile that scans read. It
// is safe for concurrent use.
type Tables struct {
	dialer *btrpc.Dialer

	mu      sync.Mutex
	clients map[clientKey]*bigtable.Client
}

type clientKey struct{ project, instance, profile string }

// NewTables returns Tables over the dialer's connections. The caller closes them.
func NewTables(dialer *btrpc.Dialer) *Tables {
	return &Tables{dialer: dialer, clients: map[clientKey]*bigtable.Client{}}
}

// Table is for Config.Table.
func (t *Tables) Table(_ context.Context, s *pipeline.Scan) (Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := clientKey{s.Table.Project, s.Table.Instance, s.AppProfile}
	client := t.clients[key]
	if client == nil {
		var err error
		// The client outlives the task that makes it.
		if client, err = t.dialer.Reader(context.Background(), key.project, key.instance, key.profile); err != nil {
			return nil, err
		}
		t.clients[key] = client
	}
	if view := s.Table.AuthorizedView; view != "" {
		return client.OpenAuthorizedView(s.Table.ID, view), nil
	}
	return client.Open(s.Table.ID), nil
}

// Close closes every client.
func (t *Tables) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, c := range t.clients {
		errs = append(errs, c.Close())
	}
	clear(t.clients)
	return errors.Join(errs...)
}

// Sinks is for Config.Sink. A sink that this version does not have fails the split.
func Sinks(sinks *sink.Sinks) func(context.Context, *pipeline.Scan) (relay.Sink, error) {
	return func(ctx context.Context, s *pipeline.Scan) (relay.Sink, error) {
		if err := s.To.Served(); err != nil {
			return nil, &retry.Rejected{Err: err}
		}
		return sinks.Open(ctx, s.To, slog.String("scan", s.Name))
	}
}
