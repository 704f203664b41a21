package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// totals sums the summaries of all deliveries.
type totals struct {
	mu sync.Mutex
	s  write.Summary
}

func (t *totals) add(_ context.Context, s write.Summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Applied += s.Applied
	t.s.Skipped += s.Skipped
	t.s.Failed += s.Failed
	t.s.DeadLettered += s.DeadLettered
}

func (t *totals) read() write.Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.s
}

// written is what became of the events.
type written struct {
	counts localcloud.Counts
	sums   write.Summary
	took   time.Duration // from the first publish to the last acknowledgement
}

// write publishes the events, disturbs the change stream meanwhile, and waits until each event is
// acknowledged.
func (d *Demo) write(ctx context.Context) (written, error) {
	name, events := pipeline.TopicEvents.Of(d.flights.Pipeline.Name), d.flights.events
	began := time.Now()
	topic := d.local.Client.Publisher(name)
	defer topic.Stop()
	bar := terminal.NewCounter(d.stderr, "acknowledged", len(events))
	defer bar.End()
	settled := func(n int) error {
		return d.local.Push(name).Wait(ctx, func(c localcloud.Counts) bool {
			bar.Set(int(c.Acked))
			return c.Settled() >= int64(n)
		})
	}
	sent := 0
	for i := range disturbances {
		part := events[sent : (i+1)*len(events)/disturbances]
		if err := publishAll(ctx, topic, part); err != nil {
			return written{}, err
		}
		sent += len(part)
		// The reader is killed while changes are under way.
		err := settled(sent - len(part)/2)
		if err == nil {
			err = d.disturb(ctx, i)
		}
		if err != nil {
			return written{}, err
		}
	}
	if err := settled(sent); err != nil {
		return written{}, err
	}
	return written{d.local.Push(name).Counts(), d.totals.read(), time.Since(began)}, nil
}

// publishAll publishes events, and returns when Pub/Sub has all of them.
func publishAll(ctx context.Context, topic *pubsub.Publisher, events [][]byte) error {
	published := make([]*pubsub.PublishResult, len(events))
	for i, e := range events {
		published[i] = topic.Publish(ctx, &pubsub.Message{Data: e})
	}
	for _, r := range published {
		if _, err := r.Get(ctx); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
	return nil
}
