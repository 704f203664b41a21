package localcloud_test

import (
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
)

func TestAfterStopNothingIsPulledAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(text("x"))
		c.Stop()
		r, err := p.raw.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: outName, MaxMessages: 1})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a pull answers %v, %v", r, err)
		}
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 60}))
		if r, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream answers %v, %v", r, err)
		}
	})
}

// A message that is sent to a client which has ended would come to nobody else for a while.
func TestAStreamWhoseClientHasEndedTakesNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		const most = 10
		for range most {
			p.publish(&pubsub.Message{Data: make([]byte, 2<<20)}) // more than goes on its way unread
		}
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 60}))
		must(t, stream.CloseSend())
		synctest.Wait()
		came := 0
		for {
			r, err := stream.Recv()
			if err != nil {
				break
			}
			came += len(r.ReceivedMessages)
		}
		if came > most/2 {
			t.Errorf("%d of %d messages came", came, most)
		}
	})
}

func TestAnAckIDIsOfOneSubscriptionAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		must(t, c.CreatePull(t.Context(), "out", "other", 10*time.Second))
		p.publish(text("old"))
		old := p.pull(1)
		const other = "projects/my-project/subscriptions/other"
		_, err := p.raw.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: other, MaxMessages: 1})
		must(t, err)
		_, err = p.raw.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: other, AckIds: ackIDs(old)})
		must(t, err)
		time.Sleep(11 * time.Second)
		r, err := p.raw.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: other, MaxMessages: 1})
		if err != nil || texts(r.ReceivedMessages) != "old" {
			t.Errorf("the id of another subscription has settled the message: %v, %v", r, err)
		}

		_, err = p.raw.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: outName})
		must(t, err)
		must(t, c.CreatePull(t.Context(), "out", "out", 10*time.Second))
		p.publish(text("new"))
		p.pull(1)
		p.acknowledge(old...)
		time.Sleep(11 * time.Second)
		if got := texts(p.pull(1)); got != "new" {
			t.Errorf("the id of the subscription before has settled the message: %q is left", got)
		}
	})
}
