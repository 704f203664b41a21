package scanworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
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

// Sinks opens the sinks of scans. It is safe for concurrent use.
type Sinks struct {
	client func(context.Context) (*pubsub.Client, error)
	logger *slog.Logger

	mu     sync.Mutex
	topics map[string]*sink.PubSub
}

// NewSinks returns Sinks. client connects to Pub/Sub; it is asked again for each topic,
// may return the same client, and closes it itself.
func NewSinks(client func(context.Context) (*pubsub.Client, error), logger *slog.Logger) *Sinks {
	return &Sinks{client: client, logger: logger, topics: map[string]*sink.PubSub{}}
}

// Sink is for Config.Sink.
func (s *Sinks) Sink(ctx context.Context, scan *pipeline.Scan) (relay.Sink, error) {
	if err := scan.To.Served(); err != nil {
		return nil, &hopeless{err}
	}
	if scan.To.Log {
		return sink.NewLog(s.logger.With("scan", scan.Name)), nil
	}
	return s.topic(ctx, scan.To.PubSub.Topic)
}

func (s *Sinks) topic(ctx context.Context, name string) (relay.Sink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	client, err := s.client(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to Pub/Sub: %w", err)
	}
	t := sink.NewPubSub(client, name)
	s.topics[name] = t
	return t, nil
}
