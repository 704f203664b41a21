package localcloud

import (
	"context"
	"net"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
)

// newTopics makes what keeps topics, pull subscriptions and every message.
// pstest always listens on TCP, which would keep a synctest bubble from ever
// being idle; that listener is closed at once, and the Cloud serves on its own.
func newTopics() *pstest.Server {
	// An address, not a name: looking one up is not for bubbles either.
	s := pstest.NewServerWithAddress("127.0.0.1:0")
	awaitServing(s.Addr)
	// Nothing to fail: it stops a server that has no streams.
	_ = s.Close()
	return s
}

// awaitServing returns when the server at addr has spoken. Stopped before it
// serves, it would log an error. A server that cannot be reached is as good as
// stopped.
func awaitServing(addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 1))
}

// intercept hands what is published to the push subscriptions of its topic. One
// call at a time, so that they see messages in the order in which the topic has
// them.
//
// pstest has a subscription of its own for that, but polls it every ten
// milliseconds, which in a bubble costs seconds for an hour, hands out one
// message at a time, and drops what waits for ten minutes.
func (c *Cloud) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	r, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return handle(ctx, request)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	response, err := handle(ctx, request)
	if err != nil {
		return nil, err
	}
	for _, s := range c.byTopic[r.Topic] {
		s.enqueue(r.Messages) // which by now have their ids and times
	}
	return response, nil
}
