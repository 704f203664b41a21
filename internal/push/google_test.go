package push_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bigtable-functions/bigtable-functions/internal/googleemu"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// Google's own emulator delivers by push, wrapped and unwrapped: what it sends
// is read as the message that was published, refusals bring it again under the
// same id and time, and an acknowledgement ends it.
func TestGooglesEmulatorIsUnderstood(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///"+googleemu.Start(t, "pubsub"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const topic = "projects/my-project/topics/flights-events"
	publisher := pubsubpb.NewPublisherClient(conn)
	if _, err := publisher.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	wrapped := subscribe(t, conn, topic, "wrapped", &pubsubpb.PushConfig{})
	unwrapped := subscribe(t, conn, topic, "unwrapped", &pubsubpb.PushConfig{
		Wrapper: &pubsubpb.PushConfig_NoWrapper_{NoWrapper: &pubsubpb.PushConfig_NoWrapper{WriteMetadata: true}},
	})

	sent := &pubsubpb.PubsubMessage{Data: []byte("{\"a\":\"<é>\"}"), OrderingKey: "some-key",
		Attributes: map[string]string{"airport": "SEA", "Content-Type": "application/json"}}
	r, err := publisher.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{sent}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		deliveries <-chan push.Delivery
	}{{"wrapped", wrapped}, {"unwrapped", unwrapped}} {
		first, second := next(t, c.deliveries), next(t, c.deliveries)
		for _, d := range []push.Delivery{first, second} {
			m := d.Message
			if c.name == "unwrapped" && (m.OrderingKey != "some-key" || m.Attributes["content-type"] != "application/json") {
				t.Errorf("unwrapped: delivered %+v", d)
			}
			if d.Malformed != nil || m.ID != r.MessageIds[0] || string(m.Data) != string(sent.Data) ||
				m.Attributes["airport"] != "SEA" || m.Subscription != "projects/my-project/subscriptions/"+c.name {
				t.Errorf("%s: delivered %+v", c.name, d)
			}
		}
		if a, b := first.Message.PublishTime, second.Message.PublishTime; a.IsZero() || !a.Equal(b) {
			t.Errorf("%s: published at %v, then at %v", c.name, a, b)
		}
	}
}

// subscribe makes a push subscription to a handler that refuses the first
// delivery.
func subscribe(t *testing.T, conn *grpc.ClientConn, topic, id string, config *pubsubpb.PushConfig) <-chan push.Delivery {
	t.Helper()
	deliveries := make(chan push.Delivery, 100)
	first := make(chan struct{}, 1)
	first <- struct{}{}
	endpoint := httptest.NewServer(push.Handler(push.Config{Logger: quiet()}, func(_ context.Context, d *push.Delivery) error {
		deliveries <- *d
		select {
		case <-first:
			return fmt.Errorf("not yet")
		default:
			return nil
		}
	}))
	t.Cleanup(endpoint.Close)
	config.PushEndpoint = endpoint.URL
	_, err := pubsubpb.NewSubscriberClient(conn).CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/my-project/subscriptions/" + id, Topic: topic, PushConfig: config, AckDeadlineSeconds: 10, EnableMessageOrdering: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return deliveries
}

func next(t *testing.T, deliveries <-chan push.Delivery) push.Delivery {
	t.Helper()
	select {
	case d := <-deliveries:
		return d
	case <-time.After(time.Minute):
		t.Fatal("nothing was delivered")
		return push.Delivery{}
	}
}
