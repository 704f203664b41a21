package localcloud

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// topic hands what is published to its subscriptions.
type topic struct {
	proto         *pubsubpb.Topic
	subscriptions map[string]queue // by full name
}

// queue takes what is published. Messages are shared: they do not change any more.
type queue interface {
	enqueue([]*pubsubpb.PubsubMessage)
}

// publisher is the service of topics.
type publisher struct {
	pubsubpb.UnimplementedPublisherServer
	cloud *Cloud
}

func (p *publisher) CreateTopic(_ context.Context, r *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	if err := checkName(r.Name, "topics"); err != nil {
		return nil, err
	}
	if err := onlyServed(r, "topic "+r.Name, "name", "labels", "message_retention_duration", "message_storage_policy"); err != nil {
		return nil, err
	}
	c := p.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[r.Name] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "topic %s exists", r.Name)
	}
	c.topics[r.Name] = &topic{proto: r, subscriptions: map[string]queue{}}
	return r, nil
}

func (p *publisher) GetTopic(_ context.Context, r *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	t, err := p.cloud.findTopic(r.Topic)
	if err != nil {
		return nil, err
	}
	return t.proto, nil
}

func (p *publisher) ListTopics(_ context.Context, r *pubsubpb.ListTopicsRequest) (*pubsubpb.ListTopicsResponse, error) {
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	names, next := page(p.cloud.topics, r.Project+"/", int(r.PageSize), r.PageToken)
	out := &pubsubpb.ListTopicsResponse{NextPageToken: next}
	for _, name := range names {
		out.Topics = append(out.Topics, p.cloud.topics[name].proto)
	}
	return out, nil
}

func (p *publisher) ListTopicSubscriptions(_ context.Context, r *pubsubpb.ListTopicSubscriptionsRequest) (*pubsubpb.ListTopicSubscriptionsResponse, error) {
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	t, err := p.cloud.findTopic(r.Topic)
	if err != nil {
		return nil, err
	}
	names, next := page(t.subscriptions, "", int(r.PageSize), r.PageToken)
	return &pubsubpb.ListTopicSubscriptionsResponse{Subscriptions: names, NextPageToken: next}, nil
}

// DeleteTopic deletes a topic. Its subscriptions keep what they have, and get no more.
func (p *publisher) DeleteTopic(_ context.Context, r *pubsubpb.DeleteTopicRequest) (*emptypb.Empty, error) {
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	if _, err := p.cloud.findTopic(r.Topic); err != nil {
		return nil, err
	}
	delete(p.cloud.topics, r.Topic)
	return &emptypb.Empty{}, nil
}

// Publish takes one call at a time, so that all subscriptions see messages in the order
// in which the topic has them.
func (p *publisher) Publish(_ context.Context, r *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	if err := checkPublish(r); err != nil {
		return nil, err
	}
	c := p.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := c.findTopic(r.Topic)
	if err != nil {
		return nil, err
	}
	now := timestamppb.New(time.Now())
	out := &pubsubpb.PublishResponse{}
	for _, m := range r.Messages {
		m.MessageId, m.PublishTime = fmt.Sprintf("m%d", c.messages), now
		c.messages++
		out.MessageIds = append(out.MessageIds, m.MessageId)
	}
	if !c.opts.Forget {
		c.published[r.Topic] = append(c.published[r.Topic], r.Messages...)
	}
	for _, s := range t.subscriptions {
		s.enqueue(r.Messages)
	}
	return out, nil
}

// findTopic needs the Cloud's lock.
func (c *Cloud) findTopic(name string) (*topic, error) {
	t := c.topics[name]
	if t == nil {
		return nil, status.Errorf(codes.NotFound, "topic %s does not exist", name)
	}
	return t, nil
}

// checkName wants projects/P/KIND/ID.
func checkName(name, kind string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != kind || parts[3] == "" {
		return status.Errorf(codes.InvalidArgument, "%q is not a name such as projects/PROJECT/%s/ID", name, kind)
	}
	return nil
}

// page returns the names with a prefix behind token, at most size of them (0: all), and
// the token of the next page, empty where there is none.
func page[V any](of map[string]V, prefix string, size int, token string) (names []string, next string) {
	for name := range of {
		if strings.HasPrefix(name, prefix) && name > token {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if size > 0 && len(names) > size {
		return names[:size], names[size-1]
	}
	return names, ""
}
