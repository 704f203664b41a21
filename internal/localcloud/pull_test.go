package localcloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
)

const outName = "projects/my-project/subscriptions/out"

// puller is a topic with a subscription to pull from, and a client.
type puller struct {
	t      testing.TB
	cloud  *localcloud.Cloud
	client *pubsub.Client
	raw    pubsubpb.SubscriberClient
	close  func()
}

func newPuller(t testing.TB, c *localcloud.Cloud, tune func(*pubsubpb.Subscription)) *puller {
	t.Helper()
	p := &puller{t: t, cloud: c}
	must(t, c.CreateTopics(t.Context(), "out"))
	conn, err := c.Dial()
	must(t, err)
	p.raw = pubsubpb.NewSubscriberClient(conn)
	s := &pubsubpb.Subscription{Name: outName, Topic: "projects/my-project/topics/out", AckDeadlineSeconds: 10}
	if tune != nil {
		tune(s)
	}
	_, err = p.raw.CreateSubscription(t.Context(), s)
	must(t, err)
	p.client, err = c.Client(context.Background())
	must(t, err)
	p.close = func() { must(t, p.client.Close()); must(t, conn.Close()) }
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// publish publishes in order.
func (p *puller) publish(messages ...*pubsub.Message) {
	p.t.Helper()
	topic := p.client.Publisher("out")
	topic.EnableMessageOrdering = true
	var results []*pubsub.PublishResult
	for _, m := range messages {
		results = append(results, topic.Publish(p.t.Context(), m))
	}
	topic.Stop()
	for _, r := range results {
		_, err := r.Get(p.t.Context())
		must(p.t, err)
	}
}

func (p *puller) pull(most int32) []*pubsubpb.ReceivedMessage {
	p.t.Helper()
	r, err := p.raw.Pull(p.t.Context(), &pubsubpb.PullRequest{Subscription: outName, MaxMessages: most})
	must(p.t, err)
	return r.ReceivedMessages
}

func (p *puller) acknowledge(messages ...*pubsubpb.ReceivedMessage) {
	p.t.Helper()
	_, err := p.raw.Acknowledge(p.t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: outName, AckIds: ackIDs(messages)})
	must(p.t, err)
}

func (p *puller) modify(d time.Duration, messages ...*pubsubpb.ReceivedMessage) {
	p.t.Helper()
	_, err := p.raw.ModifyAckDeadline(p.t.Context(), &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: outName, AckIds: ackIDs(messages), AckDeadlineSeconds: int32(d.Seconds()),
	})
	must(p.t, err)
}

func ackIDs(messages []*pubsubpb.ReceivedMessage) []string {
	var ids []string
	for _, m := range messages {
		ids = append(ids, m.AckId)
	}
	return ids
}

func texts(messages []*pubsubpb.ReceivedMessage) string {
	var out []string
	for _, m := range messages {
		out = append(out, string(m.Message.Data))
	}
	return strings.Join(out, " ")
}

func numbered(n int) []*pubsub.Message {
	var out []*pubsub.Message
	for i := range n {
		out = append(out, text(fmt.Sprint(i)))
	}
	return out
}

// receive receives with the official client until n messages were acknowledged, and
// returns how often each came.
func (p *puller) receive(n int, tune func(*pubsub.Subscriber), work func(*pubsub.Message) (ack bool)) map[string]int {
	p.t.Helper()
	s := p.client.Subscriber("out")
	if tune != nil {
		tune(s)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	var mu sync.Mutex
	seen := map[string]int{}
	acked := 0
	err := s.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		ack := work(m)
		mu.Lock()
		defer mu.Unlock()
		seen[string(m.Data)]++
		if !ack {
			m.Nack()
			return
		}
		m.Ack()
		if acked++; acked == n {
			cancel()
		}
	})
	must(p.t, err)
	return seen
}

func always(*pubsub.Message) bool { return true }

// wantOnce wants the texts 0 to n−1, once each.
func wantOnce(t testing.TB, seen map[string]int, n int) {
	t.Helper()
	if len(seen) != n {
		t.Errorf("%d different messages, want %d", len(seen), n)
	}
	for data, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", data, times)
		}
	}
}

// overTCP runs a test with the official client's Receive. It cannot run in a bubble, since
// it may leave a goroutine behind.
func overTCP(t *testing.T, test func(t *testing.T, c *localcloud.Cloud)) {
	c := start(t, localcloud.Options{})
	test(t, c)
	must(t, c.Close(t.Context()))
}

func TestTheOfficialClientReceivesEachMessageOnce(t *testing.T) {
	overTCP(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		const n = 20_000
		p.publish(numbered(n)...)
		wantOnce(t, p.receive(n, nil, always), n)
		if left := p.pull(1); len(left) != 0 {
			t.Errorf("%s comes again", texts(left))
		}
	})
}

func TestSeveralReceiversShareTheMessages(t *testing.T) {
	overTCP(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		const n = 5000
		var mu sync.Mutex
		seen := map[string]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var receivers sync.WaitGroup
		for range 3 {
			receivers.Go(func() {
				err := p.client.Subscriber("out").Receive(ctx, func(_ context.Context, m *pubsub.Message) {
					mu.Lock()
					defer mu.Unlock()
					if seen[string(m.Data)]++; len(seen) == n {
						cancel()
					}
					m.Ack()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		p.publish(numbered(n)...)
		receivers.Wait()
		wantOnce(t, seen, n)
	})
}

func TestAMessageWaitsForItsPullerForDaysButNotForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(text("a"))
		time.Sleep(6 * 24 * time.Hour)
		p.publish(text("b"))
		got := p.pull(10)
		if texts(got) != "a b" {
			t.Errorf("pulled %q after six days", texts(got))
		}
		p.acknowledge(got...)
		p.publish(text("c"))
		time.Sleep(7*24*time.Hour + time.Second)
		p.publish(text("d"))
		if got := p.pull(10); texts(got) != "d" {
			t.Errorf("pulled %q after a week", texts(got))
		}
	})
}

func TestAMessageComesAgainWhenItsDeadlinePassesOrItIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(numbered(3)...)
		first := p.pull(10)
		if texts(first) != "0 1 2" {
			t.Fatalf("pulled %s", texts(first))
		}
		p.acknowledge(first[0])
		p.modify(0, first[2])
		again := p.pull(10)
		if texts(again) != "2" || again[0].AckId == first[2].AckId || again[0].Message.MessageId != first[2].Message.MessageId {
			t.Fatalf("a refused message comes as %v, at first it was %v", again, first[2])
		}
		p.modify(30*time.Second, again[0])
		time.Sleep(9 * time.Second)
		if got := p.pull(10); len(got) != 0 {
			t.Fatalf("%s comes before the deadline", texts(got))
		}
		time.Sleep(time.Second)
		if got := p.pull(10); texts(got) != "1" {
			t.Errorf("after 10 s comes %q, want 1", texts(got))
		} else {
			p.acknowledge(got...)
		}
		time.Sleep(15 * time.Second)
		if got := p.pull(10); len(got) != 0 {
			t.Errorf("%s comes although it was given 30 s", texts(got))
		}
		p.acknowledge(first[2]) // which means nothing: it was refused
		time.Sleep(10 * time.Second)
		if got := p.pull(10); texts(got) != "2" {
			t.Errorf("after 30 s comes %q, want 2", texts(got))
		}
	})
}

// A shorter deadline counts from the moment it is given.
func TestADeadlineCanBeShortened(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 600 })
		defer p.close()
		p.publish(numbered(2)...)
		p.modify(time.Second, p.pull(1)...)
		p.pull(1)
		time.Sleep(time.Second)
		if got := p.pull(10); texts(got) != "0" {
			t.Errorf("pulled %q, want 0", texts(got))
		}
	})
}

func TestAReceiverThatRefusesGetsTheMessageAgain(t *testing.T) {
	overTCP(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(numbered(100)...)
		var refused sync.Map
		seen := p.receive(100, nil, func(m *pubsub.Message) bool {
			_, again := refused.LoadOrStore(m.ID, true)
			return again
		})
		for data, times := range seen {
			if times != 2 {
				t.Errorf("%s came %d times", data, times)
			}
		}
		if len(seen) != 100 {
			t.Errorf("%d messages", len(seen))
		}
	})
}

// As clients do it while a callback is at work.
func TestAMessageIsKeptWhileItsDeadlineIsProlonged(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(text("x"))
		held := p.pull(1)
		for range 100 {
			time.Sleep(9 * time.Second)
			p.modify(10*time.Second, held...)
			if got := p.pull(1); len(got) != 0 {
				t.Fatalf("%s comes to another", texts(got))
			}
		}
		p.acknowledge(held...)
		time.Sleep(time.Minute)
		if got := p.pull(1); len(got) != 0 {
			t.Errorf("%s comes again", texts(got))
		}
	})
}

// A client that has nothing to do asks every 30 s whether its stream lives, and would
// open another where it has no answer.
func TestAnIdleReceiverKeepsItsStream(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		conn, err := c.Dial()
		must(t, err)
		defer conn.Close()
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 10, ProtocolVersion: 1}))
		for range 3 {
			time.Sleep(30 * time.Second)
			must(t, stream.Send(&pubsubpb.StreamingPullRequest{}))
			if r, err := stream.Recv(); err != nil || len(r.ReceivedMessages) != 0 {
				t.Fatalf("answered %v, %v", r, err)
			}
		}
		must(t, stream.CloseSend())
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last request: %v", err)
		}
	})
}

func TestAReceiverGetsNoMoreAtOnceThanItAsksFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(numbered(30)...)
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 60, MaxOutstandingMessages: 10}))
		got := recv(t, stream)
		if len(got) != 10 {
			t.Fatalf("sent %d at once", len(got))
		}
		// Acknowledged over the stream, as some clients do; one is given back.
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{
			AckIds: ackIDs(got[:3]), ModifyDeadlineAckIds: ackIDs(got[3:4]), ModifyDeadlineSeconds: []int32{0},
		}))
		more := ""
		for len(strings.Fields(more)) < 4 {
			more += texts(recv(t, stream)) + " "
		}
		if fields := strings.Fields(more); len(fields) != 4 || !slices.Contains(fields, "3") {
			t.Errorf("four are free, and %q comes", more)
		}
		must(t, stream.CloseSend())
		_, _ = stream.Recv()
	})
}

func recv(t *testing.T, stream pubsubpb.Subscriber_StreamingPullClient) []*pubsubpb.ReceivedMessage {
	t.Helper()
	r, err := stream.Recv()
	must(t, err)
	return r.ReceivedMessages
}

func TestBytesAreBoundedToo(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		for range 4 {
			p.publish(&pubsub.Message{Data: make([]byte, 1000)})
		}
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 60, MaxOutstandingBytes: 1500}))
		if got := recv(t, stream); len(got) != 2 {
			t.Errorf("sent %d messages of 1000 bytes at once, where 1500 bytes may be held", len(got))
		}
		must(t, stream.CloseSend())
		_, _ = stream.Recv()
	})
}

func TestMessagesOfAKeyArePulledInOrderAndComeAgainInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, func(s *pubsubpb.Subscription) { s.EnableMessageOrdering = true })
		defer p.close()
		for i := range 4 {
			for _, key := range []string{"a", "b"} {
				p.publish(&pubsub.Message{Data: fmt.Appendf(nil, "%s%d", key, i), OrderingKey: key})
			}
		}
		first := p.pull(3)
		if texts(first) != "a0 a1 a2" {
			t.Fatalf("pulled %s", texts(first))
		}
		b := p.pull(10)
		if texts(b) != "b0 b1 b2 b3" {
			t.Fatalf("while a is held comes %s", texts(b))
		}
		p.acknowledge(b...)
		p.modify(0, first[1])
		if got := p.pull(10); len(got) != 0 {
			t.Fatalf("%s comes while a0 is held", texts(got))
		}
		p.acknowledge(first[0], first[2]) // the second of them is not held any more
		if got := p.pull(10); texts(got) != "a1 a2 a3" {
			t.Errorf("after a1 was refused comes %s", texts(got))
		} else {
			p.acknowledge(got...)
		}
		if got := p.pull(10); len(got) != 0 {
			t.Errorf("%s is left", texts(got))
		}
	})
}

func TestTheOfficialClientReceivesKeysInOrderWhateverIsRefused(t *testing.T) {
	overTCP(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, func(s *pubsubpb.Subscription) { s.EnableMessageOrdering = true })
		defer p.close()
		const keys, each = 5, 200
		var messages []*pubsub.Message
		for i := range each {
			for k := range keys {
				messages = append(messages, &pubsub.Message{Data: fmt.Append(nil, i), OrderingKey: fmt.Sprint(k)})
			}
		}
		p.publish(messages...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var mu sync.Mutex
		refused, settled := map[string]bool{}, map[string]bool{}
		last := map[string][]int{} // of each key: after how many others each message was done for good
		err := p.client.Subscriber("out").Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasSuffix(string(m.Data), "77") && !refused[m.ID] {
				refused[m.ID] = true
				m.Nack()
				return
			}
			m.Ack()
			key, i := m.OrderingKey, number(t, m.Data)
			if last[key] == nil {
				last[key] = make([]int, each)
			}
			last[key][i] = slices.Max(last[key]) + 1
			if slices.IsSorted(last[key]) && last[key][0] > 0 {
				if settled[key] = true; len(settled) == keys {
					cancel()
				}
			}
		})
		must(t, err)
		if len(settled) != keys || len(refused) != 2*keys {
			t.Errorf("%d of %d keys were done in order, %d messages refused", len(settled), keys, len(refused))
		}
	})
}

func number(t *testing.T, data []byte) int {
	n, err := strconv.Atoi(string(data))
	must(t, err)
	return n
}

// What it acknowledges yet when its stream has ended counts.
func TestWhatAStreamLeavesGoesToTheNextWhenItsDeadlineHasPassed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		p.publish(numbered(3)...)
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 60}))
		got := recv(t, stream)
		must(t, stream.CloseSend())
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		p.acknowledge(got[0])
		time.Sleep(59 * time.Second)
		if early := p.pull(10); len(early) != 0 {
			t.Errorf("%s comes before the deadline", texts(early))
		}
		time.Sleep(time.Second)
		if next := p.pull(10); texts(next) != "1 2" {
			t.Errorf("%q goes to the next", texts(next))
		}
	})
}

func TestPullReturnsSoonWhereNothingIs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		began := time.Now()
		if got := p.pull(10); len(got) != 0 || time.Since(began) > time.Second {
			t.Errorf("pulled %v in %s", got, time.Since(began))
		}
		var publishing sync.WaitGroup
		publishing.Go(func() {
			time.Sleep(100 * time.Millisecond)
			p.publish(text("x"))
		})
		if got := p.pull(10); texts(got) != "x" {
			t.Errorf("what is published while a Pull waits: %v", got)
		}
		publishing.Wait()
	})
}

func TestADeletedSubscriptionEndsItsReceiver(t *testing.T) {
	overTCP(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		var deleting sync.WaitGroup
		deleting.Go(func() {
			time.Sleep(100 * time.Millisecond) // it may end before the stream has begun, too
			_, err := p.raw.DeleteSubscription(context.Background(), &pubsubpb.DeleteSubscriptionRequest{Subscription: outName})
			if err != nil {
				t.Error(err)
			}
		})
		err := p.client.Subscriber("out").Receive(t.Context(), func(_ context.Context, m *pubsub.Message) { m.Ack() })
		if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), outName) {
			t.Errorf("it ends with %v", err)
		}
		deleting.Wait()
		p.publish(text("nobody's"))
	})
}

func TestSubscriptionsThatWouldBehaveOtherwiseHereAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		s := deploy(t, c, newFunction(accept), nil)
		for want, change := range map[string]func(*pubsubpb.Subscription){
			"no filter":                    func(s *pubsubpb.Subscription) { s.Filter = "attributes:x" },
			"no enableExactlyOnceDelivery": func(s *pubsubpb.Subscription) { s.EnableExactlyOnceDelivery = true },
			"no pushConfig":                func(s *pubsubpb.Subscription) { s.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "http://x"} },
			"no retryPolicy": func(s *pubsubpb.Subscription) {
				s.RetryPolicy = &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(1)}
			},
			"out exists":                 func(s *pubsubpb.Subscription) { s.Name = outName },
			"flights-events exists":      func(s *pubsubpb.Subscription) { s.Name = "projects/my-project/subscriptions/flights-events" },
			"topics/none does not exist": func(s *pubsubpb.Subscription) { s.Topic = "projects/my-project/topics/none" },
			"is not a name":              func(s *pubsubpb.Subscription) { s.Name = "new" },
			"there are 10s to 10m0s":     func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 5 },
			"a retention of -1s":         func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = durationpb.New(-time.Second) },
			"there are 10m0s to 744h0m0s": func(s *pubsubpb.Subscription) {
				s.MessageRetentionDuration = &durationpb.Duration{Seconds: 1 << 40}
			},
		} {
			r := &pubsubpb.Subscription{Name: "projects/my-project/subscriptions/new", Topic: "projects/my-project/topics/out"}
			change(r)
			if _, err := p.raw.CreateSubscription(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		_, err := p.raw.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: "projects/my-project/subscriptions/flights-events", MaxMessages: 1})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("pulling from what pushes: %v", err)
		}
		idle(t, s)
	})
}

func TestTopicsThatWouldBehaveOtherwiseHereAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		conn, err := c.Dial()
		must(t, err)
		defer conn.Close()
		topics := pubsubpb.NewPublisherClient(conn)
		_, err = topics.CreateTopic(t.Context(), &pubsubpb.Topic{
			Name: "projects/my-project/topics/checked", SchemaSettings: &pubsubpb.SchemaSettings{Schema: "projects/my-project/schemas/s"},
		})
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "creating topic projects/my-project/topics/checked: the local Pub/Sub has no schemaSettings") {
			t.Errorf("a topic with a schema: %v", err)
		}
		_, err = topics.CreateTopic(t.Context(), &pubsubpb.Topic{
			Name: "projects/my-project/topics/kept", Labels: map[string]string{"a": "b"}, MessageRetentionDuration: durationpb.New(time.Hour),
		})
		must(t, err)
	})
}

func TestCloseEndsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		p := newPuller(t, c, nil)
		defer p.close()
		stream, err := p.raw.StreamingPull(t.Context())
		must(t, err)
		must(t, stream.Send(&pubsubpb.StreamingPullRequest{Subscription: outName, StreamAckDeadlineSeconds: 60}))
		p.publish(text("x"))
		recv(t, stream)
		must(t, c.Close(t.Context()))
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v", err)
		}
	})
}

// One operation is one message, published and received.
func BenchmarkReceive(b *testing.B) {
	c, err := localcloud.New(localcloud.Options{Project: "my-project", Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	p := newPuller(b, c, nil)
	messages := numbered(b.N)
	b.ResetTimer()
	p.publish(messages...)
	p.receive(b.N, nil, always)
	b.StopTimer()
	p.close()
	must(b, c.Close(context.Background()))
}
