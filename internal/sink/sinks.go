package sink

import (
	"context"
	"log/slog"
	"sync"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
)

// Sinks opens the sinks that a pipeline file names, each topic once. It is safe for
// concurrent use.
type Sinks struct {
	client func(context.Context) (*pubsub.Client, error)
	logger *slog.Logger

	mu     sync.Mutex
	topics map[string]*PubSub
}

// NewSinks returns Sinks. client connects to Pub/Sub, and its errors say so. It is called
// for each topic, may return the same client, and keeps the client open. logger gets the
// records of `to: log`.
func NewSinks(client func(context.Context) (*pubsub.Client, error), logger *slog.Logger) *Sinks {
	return &Sinks{client: client, logger: logger, topics: map[string]*PubSub{}}
}

// Open returns a sink, which must be a topic or the log. A record that goes to the log is
// written with owner, which names the scan or the stream.
func (s *Sinks) Open(ctx context.Context, to pipeline.Sink, owner slog.Attr) (relay.Sink, error) {
	if to.Log {
		return NewLog(s.logger.With(owner)), nil
	}
	return s.topic(ctx, to.PubSub.Topic)
}

func (s *Sinks) topic(ctx context.Context, name string) (relay.Sink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	client, err := s.client(ctx)
	if err != nil {
		return nil, err
	}
	t := NewPubSub(client, name)
	s.topics[name] = t
	return t, nil
}
