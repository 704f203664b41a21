package deadletter

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

// Bounds of what a Publisher holds, over all Put calls.
const (
	maxOutstanding      = 1000
	maxOutstandingBytes = 32 << 20
)

// Publisher keeps letters in a Pub/Sub topic. It is safe for concurrent use.
type Publisher struct {
	topic       *pubsub.Publisher
	outstanding atomic.Int64
	published   atomic.Int64
}

// NewPublisher returns a Publisher on the topic, whose settings it changes and which
// nobody else may use. The caller must Close it.
func NewPublisher(topic *pubsub.Publisher) *Publisher {
	topic.PublishSettings.DelayThreshold = 5 * time.Millisecond // an event waits for it
	topic.PublishSettings.Timeout = time.Minute
	topic.PublishSettings.FlowControlSettings = pubsub.FlowControlSettings{
		MaxOutstandingMessages: maxOutstanding,
		MaxOutstandingBytes:    maxOutstandingBytes,
		LimitExceededBehavior:  pubsub.FlowControlBlock,
	}
	return &Publisher{topic: topic}
}

// Put publishes the letters and returns nil once Pub/Sub has stored all of them. After
// an error some of them may be stored nevertheless: the event must be refused, and its
// letters may then be kept twice.
func (p *Publisher) Put(ctx context.Context, letters []Letter) error {
	p.outstanding.Add(int64(len(letters)))
	defer p.outstanding.Add(-int64(len(letters)))
	results := make([]*pubsub.PublishResult, 0, len(letters))
	failed := 0
	var first error
	fail := func(err error) {
		failed++
		if first == nil {
			first = err
		}
	}
	for _, l := range letters {
		if err := l.Check(); err != nil { // Pub/Sub would refuse those beside it, too
			fail(fmt.Errorf("a dead letter cannot be published: %w", err))
			continue
		}
		data, attributes := l.Encode()
		results = append(results, p.topic.Publish(ctx, &pubsub.Message{Data: data, Attributes: attributes}))
	}
	for _, r := range results {
		if _, err := r.Get(ctx); err != nil {
			fail(err)
		}
	}
	p.published.Add(int64(len(letters) - failed))
	if first != nil {
		return fmt.Errorf("publishing %d dead letters to %s, %d of them failed: %w", len(letters), p.topic.String(), failed, first)
	}
	return nil
}

// Stats returns how many letters are stored since the start, and how many Put calls
// wait for now.
func (p *Publisher) Stats() (published, outstanding int64) {
	return p.published.Load(), p.outstanding.Load()
}

// Close ends the publisher once what is outstanding has ended, which takes a minute at
// most. Put must not be called afterwards.
func (p *Publisher) Close() error {
	p.topic.Stop()
	return nil
}
