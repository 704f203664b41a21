// Package sink guarantees that a record is durable where it was sent when Send returns
// without an error for it, and that every record carries an id by which a replay shows.
package sink

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// IDAttribute is the attribute of a message that holds the record's id.
const IDAttribute = "recordId"

// maxMessage is Pub/Sub's limit for a message, in bytes; what its request adds comes
// out of it.
const maxMessage = 10_000_000 - 4096

// PubSub publishes a message for each record: the body as data, the id as an
// attribute. It is safe for concurrent use.
type PubSub struct{ topic *pubsub.Publisher }

// NewPubSub returns a PubSub on the topic, whose settings it changes and which nobody
// else may use. The caller must Close it.
func NewPubSub(topic *pubsub.Publisher) *PubSub {
	s := &topic.PublishSettings
	s.DelayThreshold = 2 * time.Millisecond // a batch waits for its last message
	s.CountThreshold = 1000
	s.ByteThreshold = 4 << 20
	s.Timeout = time.Minute
	s.FlowControlSettings = pubsub.FlowControlSettings{
		MaxOutstandingMessages: 10_000, MaxOutstandingBytes: 64 << 20, LimitExceededBehavior: pubsub.FlowControlBlock,
	}
	topic.EnableMessageOrdering = true
	return &PubSub{topic: topic}
}

// Send implements relay.Sink.
func (p *PubSub) Send(ctx context.Context, records []relay.Record) []error {
	results := make([]*pubsub.PublishResult, len(records))
	errs := make([]error, len(records))
	for i, r := range records {
		m := message(&r)
		if n := size(m); n > maxMessage {
			errs[i] = &relay.Rejected{Reason: fmt.Sprintf("a message of %d bytes; Pub/Sub takes %d", n, maxMessage)}
			continue
		}
		results[i] = p.topic.Publish(ctx, m)
	}
	failed := false
	for i, result := range results {
		if result != nil {
			if _, err := result.Get(ctx); err != nil {
				errs[i] = p.failure(err)
				p.resume(records[i].OrderingKey)
			}
		}
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return errs
}

func message(r *relay.Record) *pubsub.Message {
	attributes := make(map[string]string, len(r.Attributes)+1)
	for name, value := range r.Attributes {
		attributes[name] = value
	}
	attributes[IDAttribute] = r.ID()
	return &pubsub.Message{Data: r.Body, Attributes: attributes, OrderingKey: r.OrderingKey}
}

func size(m *pubsub.Message) int {
	n := len(m.Data) + len(m.OrderingKey)
	for name, value := range m.Attributes {
		n += len(name) + len(value)
	}
	return n
}

// failure keeps the service's text, which may quote a message, out of the error. A
// refusal is no verdict on one record: the messages of a request share it.
func (p *PubSub) failure(err error) error {
	code := retry.Classify(err).Code
	if code == codes.NotFound {
		return fmt.Errorf("publishing to %s, which does not exist: %w", p.topic, retry.Bare(code))
	}
	return fmt.Errorf("publishing to %s: %w", p.topic, retry.Bare(code))
}

// resume lets a key go on: the publisher stops one at its first failure, and what
// follows is the relay's to decide, which stops too.
func (p *PubSub) resume(key string) {
	if key != "" {
		p.topic.ResumePublish(key)
	}
}

// Close ends the publisher once what is outstanding has ended.
func (p *PubSub) Close() error {
	p.topic.Stop()
	return nil
}
