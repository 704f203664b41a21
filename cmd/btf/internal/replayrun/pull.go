package replayrun

import (
	"context"
	"errors"
	"sync"
	"time"

	apiv1 "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

const (
	pullMessages = 100              // at once, all in work together
	pullWait     = 10 * time.Second // for a message to come
	pullQuiet    = 2                // pulls in a row without a new message that end the run
	pullHold     = 10 * time.Minute // how long a message is kept from others; Pub/Sub's longest
	releaseWait  = 10 * time.Second
)

// puller takes every message of a subscription once. It acknowledges those that are done
// with, and at the end gives the others back.
type puller struct {
	client       *apiv1.SubscriptionAdminClient
	subscription string
	left         map[string]string // message id → ack id
	done         map[string]bool   // acknowledged, by message id
}

// run calls done for each message, several at a time, until no new one comes.
func (p *puller) run(ctx context.Context, done func(*push.Message) bool) (err error) {
	p.left, p.done = map[string]string{}, map[string]bool{}
	defer func() { err = errors.Join(err, p.release()) }()
	for quiet := 0; quiet < pullQuiet; {
		messages, err := p.pull(ctx)
		if err != nil {
			return err
		}
		fresh, err := p.sift(ctx, messages)
		if err != nil {
			return err
		}
		if len(fresh) == 0 {
			quiet++
			continue
		}
		quiet = 0
		if err := p.handle(ctx, fresh, done); err != nil {
			return err
		}
	}
	return nil
}

// pull returns what is there; nothing where no message comes in time.
func (p *puller) pull(ctx context.Context) ([]*pubsubpb.ReceivedMessage, error) {
	waiting, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	r, err := p.client.Pull(waiting, &pubsubpb.PullRequest{Subscription: p.subscription, MaxMessages: pullMessages})
	if err != nil {
		if ctx.Err() == nil && (waiting.Err() != nil || status.Code(err) == codes.DeadlineExceeded) {
			return nil, nil
		}
		return nil, err
	}
	return r.ReceivedMessages, p.hold(ctx, r.ReceivedMessages, pullHold)
}

// sift returns the messages that are new. One that is done with and comes nevertheless
// is acknowledged again, and not applied again.
func (p *puller) sift(ctx context.Context, messages []*pubsubpb.ReceivedMessage) ([]*pubsubpb.ReceivedMessage, error) {
	var fresh []*pubsubpb.ReceivedMessage
	var again []string
	for _, m := range messages {
		id := m.Message.MessageId
		if p.done[id] {
			again = append(again, m.AckId)
			continue
		}
		if _, seen := p.left[id]; !seen {
			fresh = append(fresh, m)
		}
		p.left[id] = m.AckId
	}
	return fresh, p.acknowledge(ctx, again)
}

func (p *puller) acknowledge(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return p.client.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: p.subscription, AckIds: ids})
}

// hold keeps messages from being delivered again for a time; none gives them back.
func (p *puller) hold(ctx context.Context, messages []*pubsubpb.ReceivedMessage, d time.Duration) error {
	if len(messages) == 0 {
		return nil
	}
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.AckId
	}
	return p.client.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: p.subscription, AckIds: ids, AckDeadlineSeconds: int32(d.Seconds()),
	})
}

// handle works on messages together and acknowledges those that are done with.
func (p *puller) handle(ctx context.Context, messages []*pubsubpb.ReceivedMessage, done func(*push.Message) bool) error {
	finished := make([]bool, len(messages))
	var wg sync.WaitGroup
	for i, m := range messages {
		wg.Go(func() {
			finished[i] = done(&push.Message{
				ID: m.Message.MessageId, PublishTime: m.Message.PublishTime.AsTime(), OrderingKey: m.Message.OrderingKey,
				Attributes: m.Message.Attributes, Subscription: p.subscription, Data: m.Message.Data,
			})
		})
	}
	wg.Wait()
	var ids []string
	for i, m := range messages {
		if finished[i] {
			ids = append(ids, m.AckId)
			delete(p.left, m.Message.MessageId)
			p.done[m.Message.MessageId] = true
		}
	}
	return p.acknowledge(ctx, ids)
}

// release gives back what is left, also when the run was interrupted.
func (p *puller) release() error {
	var messages []*pubsubpb.ReceivedMessage
	for _, id := range p.left {
		messages = append(messages, &pubsubpb.ReceivedMessage{AckId: id})
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	for len(messages) > 0 {
		n := min(len(messages), 1000)
		if err := p.hold(ctx, messages[:n], 0); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return nil
}
