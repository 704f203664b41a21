package task

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

// Publisher sends tasks to a topic. It is safe for concurrent use.
type Publisher struct{ topic *pubsub.Publisher }

// NewPublisher returns a Publisher on the topic, whose settings it changes and which
// nobody else may use. The caller must Close it.
func NewPublisher(topic *pubsub.Publisher) *Publisher {
	topic.PublishSettings.DelayThreshold = time.Millisecond // a worker waits for it
	topic.PublishSettings.Timeout = time.Minute
	return &Publisher{topic: topic}
}

// Publish returns nil once Pub/Sub has stored every message. After an error some of
// them may be stored nevertheless.
func (p *Publisher) Publish(ctx context.Context, messages ...any) error {
	results := make([]*pubsub.PublishResult, len(messages))
	for i, m := range messages {
		data, err := Encode(m)
		if err != nil {
			return err
		}
		results[i] = p.topic.Publish(ctx, &pubsub.Message{Data: data})
	}
	var errs []error
	for _, r := range results {
		if _, err := r.Get(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("publishing %d messages to %s, %d of them failed: %w", len(messages), p.topic.ID(), len(errs), errs[0])
	}
	return nil
}

// Close ends the publisher once what is outstanding has ended.
func (p *Publisher) Close() error {
	p.topic.Stop()
	return nil
}
