package localcloud

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// shortestDeadline is the shortest ack deadline that Pub/Sub has, and the default.
	shortestDeadline = 10 * time.Second
	// pullRetention is how long a message waits to be pulled, unless its subscription
	// says otherwise.
	pullRetention = 7 * 24 * time.Hour
	// Bounds of that.
	// Source: google/pubsub/v1/pubsub.proto, message_retention_duration.
	shortestRetention = 10 * time.Minute
	longestRetention  = 31 * 24 * time.Hour
	// pullPatience is how long a Pull waits for a first message.
	pullPatience = 500 * time.Millisecond
	// Bounds of one response: a message that is larger goes alone.
	responseMessages = 1000
	responseBytes    = 1 << 20
)

// subscriber is the service of subscriptions.
type subscriber struct {
	pubsubpb.UnimplementedSubscriberServer
	cloud *Cloud
}

// CreateSubscription makes one to pull from.
func (s *subscriber) CreateSubscription(_ context.Context, r *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	if err := checkName(r.Name, "subscriptions"); err != nil {
		return nil, err
	}
	if r.PushConfig.GetPushEndpoint() == "" {
		r.PushConfig = nil
	}
	err := onlyServed(r, "subscription "+r.Name, "name", "topic", "ack_deadline_seconds", "message_retention_duration",
		"enable_message_ordering", "labels", "expiration_policy")
	if err != nil {
		return nil, err
	}
	if r.AckDeadlineSeconds == 0 {
		r.AckDeadlineSeconds = int32(shortestDeadline.Seconds())
	}
	if r.MessageRetentionDuration == nil {
		r.MessageRetentionDuration = durationpb.New(pullRetention)
	}
	if keep := r.MessageRetentionDuration.AsDuration(); keep < shortestRetention || keep > longestRetention {
		return nil, status.Errorf(codes.InvalidArgument, "a retention of %s: there are %s to %s", keep, shortestRetention, longestRetention)
	}
	deadline, err := ackDeadline(r.AckDeadlineSeconds)
	if err != nil {
		return nil, err
	}
	p := newPull(r, deadline, s.cloud.opts.Backlog, func() {
		s.cloud.opts.Logger.Warn("local Pub/Sub drops the oldest messages of a subscription from which too little is pulled",
			"subscription", r.Name, "bytes", s.cloud.opts.Backlog)
	})
	if err := s.cloud.addPull(p); err != nil {
		return nil, err
	}
	// No dispatcher: Close waits for these while calls may still begin one.
	s.cloud.serving.Go(func() { p.run(s.cloud.running.Done()) })
	return r, nil
}

// onlyServed refuses what would make messages come otherwise than they do here: every
// field of what is to be made that is set and not among those served.
func onlyServed(m proto.Message, what string, served ...protoreflect.Name) error {
	var err error
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(served, f.Name()) {
			err = status.Errorf(codes.Unimplemented, "creating %s: the local Pub/Sub has no %s", what, f.JSONName())
		}
		return err == nil
	})
	return err
}

func ackDeadline(seconds int32) (time.Duration, error) {
	d := time.Duration(seconds) * time.Second
	if d < shortestDeadline || d > longestDeadline {
		return 0, status.Errorf(codes.InvalidArgument, "an ack deadline of %s: there are %s to %s", d, shortestDeadline, longestDeadline)
	}
	return d, nil
}

func (c *Cloud) addPull(p *pull) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := c.addable(p.proto.Name, p.proto.Topic)
	if err != nil {
		return err
	}
	c.serial++
	p.serial = c.serial
	t.subscriptions[p.proto.Name] = p
	c.pulls[p.proto.Name] = p
	return nil
}

func (c *Cloud) addPush(s *Subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := c.addable(s.name, c.topic(s.p.Topic))
	if err != nil {
		return err
	}
	t.subscriptions[s.name] = s
	c.pushes[s.name] = s
	return nil
}

// addable returns the topic for a new subscription. It needs the Cloud's lock.
func (c *Cloud) addable(name, topic string) (*topic, error) {
	if c.pulls[name] != nil || c.pushes[name] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "subscription %s exists", name)
	}
	return c.findTopic(topic)
}

func (s *subscriber) GetSubscription(_ context.Context, r *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	if d := s.cloud.described(r.Subscription); d != nil {
		return d, nil
	}
	return nil, noSubscription(r.Subscription)
}

func (s *subscriber) ListSubscriptions(_ context.Context, r *pubsubpb.ListSubscriptionsRequest) (*pubsubpb.ListSubscriptionsResponse, error) {
	c := s.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for name := range c.pulls {
		all[name] = true
	}
	for name := range c.pushes {
		all[name] = true
	}
	names, next := page(all, r.Project+"/", int(r.PageSize), r.PageToken)
	out := &pubsubpb.ListSubscriptionsResponse{NextPageToken: next}
	for _, name := range names {
		out.Subscriptions = append(out.Subscriptions, c.described(name))
	}
	return out, nil
}

// described returns a subscription's description, nil where there is none. It needs the
// Cloud's lock.
func (c *Cloud) described(name string) *pubsubpb.Subscription {
	if p := c.pulls[name]; p != nil {
		return p.proto
	}
	s := c.pushes[name]
	if s == nil {
		return nil
	}
	return &pubsubpb.Subscription{
		Name: name, Topic: c.topic(s.p.Topic), PushConfig: &pubsubpb.PushConfig{PushEndpoint: s.url},
		AckDeadlineSeconds: int32(s.p.AckDeadline.Seconds()), MessageRetentionDuration: durationpb.New(s.p.Retention),
		RetryPolicy:           &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(s.p.MinBackoff), MaximumBackoff: durationpb.New(s.p.MaxBackoff)},
		EnableMessageOrdering: s.p.Ordered,
	}
}

// DeleteSubscription deletes one to pull from, and what waits in it.
func (s *subscriber) DeleteSubscription(_ context.Context, r *pubsubpb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	p, err := s.cloud.findPull(r.Subscription)
	if err != nil {
		return nil, err
	}
	c := s.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulls[r.Subscription] != p {
		return nil, noSubscription(r.Subscription)
	}
	delete(c.pulls, r.Subscription)
	if t := c.topics[p.proto.Topic]; t != nil {
		delete(t.subscriptions, r.Subscription)
	}
	close(p.gone)
	return &emptypb.Empty{}, nil
}

func (c *Cloud) findPull(name string) (*pull, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pulls[name]; p != nil {
		return p, nil
	}
	if c.pushes[name] != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "subscription %s pushes: it can be neither pulled from nor deleted", name)
	}
	return nil, noSubscription(name)
}

func noSubscription(name string) error {
	return status.Errorf(codes.NotFound, "subscription %s does not exist", name)
}

// Pull returns what is there, at most maxMessages; nothing where no message comes within
// half a second.
func (s *subscriber) Pull(ctx context.Context, r *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	if r.MaxMessages <= 0 {
		return nil, status.Error(codes.InvalidArgument, "maxMessages must be at least 1")
	}
	p, err := s.cloud.findPull(r.Subscription)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	c := &consumer{deadline: p.deadline}
	for {
		if err := s.ended(ctx, p); errors.Is(err, context.DeadlineExceeded) {
			return &pubsubpb.PullResponse{}, nil
		} else if err != nil {
			return nil, err
		}
		got, changed := p.take(c, min(int(r.MaxMessages), responseMessages), time.Now())
		//lint:ignore SA1019 gcloud still sets it
		if len(got) > 0 || r.GetReturnImmediately() {
			return &pubsubpb.PullResponse{ReceivedMessages: got}, nil
		}
		s.await(ctx, p, changed, nil)
	}
}

// await returns when there may be something to take, when the client has asked for an
// answer, or when it has ended.
func (s *subscriber) await(ctx context.Context, p *pull, changed, pings <-chan struct{}) (asked bool) {
	select {
	case <-pings:
		return true
	case <-changed:
	case <-ctx.Done():
	case <-p.gone:
	case <-s.cloud.running.Done():
	}
	return false
}

// ended says why nothing is to be taken any more, however much there is.
func (s *subscriber) ended(ctx context.Context, p *pull) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.gone:
		return noSubscription(p.proto.Name)
	case <-s.cloud.running.Done():
		return status.Error(codes.Unavailable, "the local Pub/Sub ends")
	default:
		return nil
	}
}

func (s *subscriber) Acknowledge(_ context.Context, r *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	p, err := s.cloud.findPull(r.Subscription)
	if err != nil {
		return nil, err
	}
	p.acknowledge(r.AckIds)
	return &emptypb.Empty{}, nil
}

func (s *subscriber) ModifyAckDeadline(_ context.Context, r *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	p, err := s.cloud.findPull(r.Subscription)
	if err != nil {
		return nil, err
	}
	if err := modify(p, r.AckIds, r.AckDeadlineSeconds); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func modify(p *pull, ids []string, seconds int32) error {
	d := time.Duration(seconds) * time.Second
	if d < 0 || d > longestDeadline {
		return status.Errorf(codes.InvalidArgument, "an ack deadline of %s: there are 0 to %s", d, longestDeadline)
	}
	p.modify(ids, d, time.Now())
	return nil
}

// StreamingPull sends messages as they come until the client has sent its last request.
func (s *subscriber) StreamingPull(stream pubsubpb.Subscriber_StreamingPullServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	p, err := s.cloud.findPull(first.Subscription)
	if err != nil {
		return err
	}
	c := &consumer{maxMessages: int(first.MaxOutstandingMessages), maxBytes: int(first.MaxOutstandingBytes)}
	if c.deadline, err = ackDeadline(first.StreamAckDeadlineSeconds); err != nil {
		return err
	}
	if err := follow(p, c, first); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	pings := make(chan struct{}, 1)
	// It ends when the stream has, which is when this method returns: the Cloud waits.
	s.cloud.serving.Go(func() { end(s.listen(stream, p, c, first.ProtocolVersion, pings)) })
	err = s.send(ctx, stream, p, c, pings)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// listen acts on what the client sends after its first request.
func (s *subscriber) listen(stream pubsubpb.Subscriber_StreamingPullServer, p *pull, c *consumer, version int64, pings chan<- struct{}) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err // io.EOF: the client wants no more
		}
		if err := follow(p, c, r); err != nil {
			return err
		}
		if version >= 1 && len(r.AckIds)+len(r.ModifyDeadlineAckIds) == 0 {
			select {
			case pings <- struct{}{}:
			default: // one is yet to be answered
			}
		}
	}
}

// follow does what a request asks for.
func follow(p *pull, c *consumer, r *pubsubpb.StreamingPullRequest) error {
	if len(r.ModifyDeadlineAckIds) != len(r.ModifyDeadlineSeconds) {
		return status.Error(codes.InvalidArgument, "modifyDeadlineAckIds and modifyDeadlineSeconds differ in length")
	}
	if r.StreamAckDeadlineSeconds != 0 {
		d, err := ackDeadline(r.StreamAckDeadlineSeconds)
		if err != nil {
			return err
		}
		p.setDeadline(c, d)
	}
	p.acknowledge(r.AckIds)
	for i, id := range r.ModifyDeadlineAckIds {
		if err := modify(p, []string{id}, r.ModifyDeadlineSeconds[i]); err != nil {
			return err
		}
	}
	return nil
}

// send sends messages and, for a client of protocol version 1 that asks whether the
// stream lives, an empty response where there are none.
func (s *subscriber) send(ctx context.Context, stream pubsubpb.Subscriber_StreamingPullServer, p *pull, c *consumer, pings <-chan struct{}) error {
	properties := &pubsubpb.StreamingPullResponse_SubscriptionProperties{MessageOrderingEnabled: p.proto.EnableMessageOrdering}
	for {
		if err := s.ended(ctx, p); err != nil {
			return err
		}
		got, changed := p.take(c, responseMessages, time.Now())
		if len(got) == 0 && !s.await(ctx, p, changed, pings) {
			continue
		}
		if err := stream.Send(&pubsubpb.StreamingPullResponse{ReceivedMessages: got, SubscriptionProperties: properties}); err != nil {
			return err
		}
	}
}
