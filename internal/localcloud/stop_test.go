package localcloud_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// A function that is told to stop publishes what is left of its work, which must not
// come back to it.
func TestAfterStopADeliveryEndsAndWhatItPublishesIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		client, err := c.Client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := client.Publisher("flights-events")
		f := newFunction(func(ctx context.Context, m push.Message) error {
			if string(m.Data) != "first" {
				return nil
			}
			time.Sleep(time.Second)
			_, err := p.Publish(ctx, &pubsub.Message{Data: []byte("rest")}).Get(ctx)
			return err
		})
		s := deploy(t, c, f, nil)
		publish(t, c, text("first"))
		synctest.Wait()
		c.Stop()
		if err := s.Wait(t.Context(), func(n localcloud.Counts) bool { return n.Acked == 1 }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := f.data(); len(got) != 1 || len(c.Published("flights-events")) != 2 {
			t.Errorf("delivered %q of %d messages", got, len(c.Published("flights-events")))
		}
		p.Stop()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTopicsOfOtherProjectsAreNamedInFull(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		const topic = "projects/elsewhere/topics/out"
		if err := c.CreateTopics(t.Context(), "out", topic); err != nil {
			t.Fatal(err)
		}
		client, err := c.Client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := client.Publisher(topic)
		if _, err := p.Publish(t.Context(), text("there")).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if own, other := len(c.Published("out")), len(c.Published(topic)); own != 0 || other != 1 {
			t.Errorf("%d messages in the own topic, %d in the other", own, other)
		}
		p.Stop()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}
