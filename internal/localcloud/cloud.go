// Package localcloud guarantees what a pipeline and its user may expect of Pub/Sub, in
// one process. Every message published to a topic is sent to the endpoint of each push
// subscription over HTTP until it is acknowledged, forwarded to the dead-letter topic or
// past its retention; several at a time, no more than the endpoint takes. Who pulls, with
// any client, gets each message once, and again only when its deadline passes or it is
// refused; no more at a time than the client asks for. Both keep the order of messages
// with an ordering key, where the subscription is ordered.
//
// Messages live in memory and die with the process. Everything else is real: clients
// speak gRPC, or JSON over HTTP at the same port, and deliveries are HTTP requests. It
// runs over TCP, or without sockets and then inside a testing/synctest bubble too, where
// hours of backoff take milliseconds.
//
// A subscription to pull from forgets what is past its retention, as Pub/Sub does, and,
// unlike Pub/Sub, the oldest of what exceeds Options.Backlog.
//
// What Pub/Sub has and a pipeline needs nothing of answers UNIMPLEMENTED: schemas,
// snapshots, filters, exactly-once delivery, subscriptions to buckets and tables. Topics
// and subscriptions cannot be changed once they are made.
package localcloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// Options of a Cloud.
type Options struct {
	// Project that topics and subscriptions belong to. Required.
	Project string
	// InMemory keeps off the network: clients come from Client or Dial, and a
	// subscription's Endpoint must be a Handler of this process.
	InMemory bool
	// Forget keeps nothing for Published, which then returns nothing: for a run
	// without an end.
	Forget bool
	// Backlog bounds, in bytes, what waits in one subscription to pull from: beyond
	// it the oldest messages are dropped, with a line in the log. 0 is DefaultBacklog.
	Backlog int
	// Logger gets one debug record for each refused delivery, and errors of the
	// Cloud itself. Required.
	Logger *slog.Logger
}

// DefaultBacklog is the Backlog that Options leave out: 128 MiB, since nobody may ever
// pull from a subscription that is there for those who like to look.
const DefaultBacklog = 128 << 20

// Cloud is a running Pub/Sub. Close it.
type Cloud struct {
	opts   Options
	server *grpc.Server
	listen net.Listener
	rest   *rest // nil in memory
	conn   *grpc.ClientConn
	web    *web

	running     context.Context // of the dispatchers and pulls, which stop ends
	stop        context.CancelFunc
	requests    context.Context // of the requests under way, which abort ends
	abort       context.CancelFunc
	dispatchers sync.WaitGroup // with their requests
	serving     sync.WaitGroup

	closing sync.Once
	closed  error

	mu        sync.Mutex
	topics    map[string]*topic // by full name, as are all of these
	published map[string][]*pubsubpb.PubsubMessage
	messages  int // published so far
	pushes    map[string]*Subscription
	pulls     map[string]*pull
	serial    int // of the newest of these
}

// New starts a Cloud without topics.
func New(o Options) (*Cloud, error) {
	if o.Backlog == 0 {
		o.Backlog = DefaultBacklog
	}
	c := &Cloud{
		opts: o, topics: map[string]*topic{}, published: map[string][]*pubsubpb.PubsubMessage{},
		pushes: map[string]*Subscription{}, pulls: map[string]*pull{},
	}
	if err := c.listenOn(); err != nil {
		return nil, err
	}
	conn, err := c.Dial()
	if err != nil {
		return nil, errors.Join(err, c.listen.Close())
	}
	c.conn = conn
	c.web = newWeb(o.InMemory)
	c.running, c.stop = context.WithCancel(context.Background())
	c.requests, c.abort = context.WithCancel(context.Background())
	c.server = grpc.NewServer(grpc.MaxRecvMsgSize(maxRPC), grpc.WaitForHandlers(true))
	pubsubpb.RegisterPublisherServer(c.server, &publisher{cloud: c})
	pubsubpb.RegisterSubscriberServer(c.server, &subscriber{cloud: c})
	c.serve()
	return c, nil
}

// serve serves gRPC and, over TCP, HTTP/1 at the same port.
func (c *Cloud) serve() {
	calls := c.listen
	if !c.opts.InMemory {
		split := newSplitter(c.listen)
		calls = split.http2
		c.rest = newREST(c.conn)
		c.serving.Go(func() { c.told("accepts no more connections", split.run()) })
		c.serving.Go(func() { c.told("no longer serves HTTP", c.rest.serve(split.http1)) })
	}
	c.serving.Go(func() { c.told("no longer serves", c.server.Serve(calls)) })
}

// told logs why a part ended by itself.
func (c *Cloud) told(what string, err error) {
	if err != nil {
		c.opts.Logger.Error("local Pub/Sub "+what, "error", err)
	}
}

// maxRPC bounds one call in bytes: a batch of many messages of 10 MB is more
// than gRPC takes when not told.
const maxRPC = 1 << 30

const bufferSize = 256 << 10

func (c *Cloud) listenOn() error {
	if c.opts.InMemory {
		c.listen = bufconn.Listen(bufferSize)
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for local Pub/Sub: %w", err)
	}
	c.listen = l
	return nil
}

// Addr is the host and port to set PUBSUB_EMULATOR_HOST to, for other
// processes. It means nothing in memory.
func (c *Cloud) Addr() string { return c.listen.Addr().String() }

// Dial returns a new connection to Pub/Sub, which the caller closes.
func (c *Cloud) Dial(more ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRPC)),
	}
	if l, ok := c.listen.(*bufconn.Listener); ok {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
	}
	conn, err := grpc.NewClient("passthrough:///"+c.Addr(), append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("dialing local Pub/Sub: %w", err)
	}
	return conn, nil
}

// Client returns a new client of the project, which the caller closes.
func (c *Cloud) Client(ctx context.Context) (*pubsub.Client, error) {
	conn, err := c.Dial()
	if err != nil {
		return nil, err
	}
	client, err := pubsub.NewClient(ctx, c.opts.Project, option.WithGRPCConn(conn), option.WithTelemetryDisabled())
	if err != nil {
		return nil, fmt.Errorf("making a client of local Pub/Sub: %w", errors.Join(err, conn.Close()))
	}
	return client, nil
}

// CreateTopics makes topics, named without the project, or in full where they are
// another project's.
func (c *Cloud) CreateTopics(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if _, err := pubsubpb.NewPublisherClient(c.conn).CreateTopic(ctx, &pubsubpb.Topic{Name: c.topic(id)}); err != nil {
			return fmt.Errorf("creating topic %s: %w", id, err)
		}
	}
	return nil
}

// CreatePull makes a subscription to pull from by any client, with an ack deadline of 10
// to 600 s. It keeps messages for seven days. Names are as those of CreateTopics.
func (c *Cloud) CreatePull(ctx context.Context, topic, id string, deadline time.Duration) error {
	_, err := pubsubpb.NewSubscriberClient(c.conn).CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: c.subscription(id), Topic: c.topic(topic), AckDeadlineSeconds: int32(deadline.Seconds()),
	})
	if err != nil {
		return fmt.Errorf("creating subscription %s: %w", id, err)
	}
	return nil
}

// Published returns every message that was ever published to a topic, in order; none
// under Options.Forget.
// The messages share memory with the Cloud: read only.
func (c *Cloud) Published(topic string) []push.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []push.Message
	for _, m := range c.published[c.topic(topic)] {
		out = append(out, received(m))
	}
	return out
}

// received is a message as the rest of the program has it.
func received(m *pubsubpb.PubsubMessage) push.Message {
	return push.Message{
		ID: m.MessageId, PublishTime: m.PublishTime.AsTime(), OrderingKey: m.OrderingKey,
		Attributes: m.Attributes, Data: m.Data,
	}
}

// Stop begins no delivery any more, and ends the streams of those who pull. Deliveries
// under way end, and what they publish is taken, until Close.
func (c *Cloud) Stop() { c.stop() }

// Close stops delivering, waits for the requests under way until ctx ends and
// cuts off those that are left, of which the error tells. Then it waits for all
// that it started, a subscription's Handler that is still at work included.
// Messages not yet acknowledged are gone.
func (c *Cloud) Close(ctx context.Context) error {
	c.closing.Do(func() { c.closed = c.shutDown(ctx) })
	return c.closed
}

func (c *Cloud) shutDown(ctx context.Context) error {
	c.stop()
	release := context.AfterFunc(ctx, c.abort)
	c.dispatchers.Wait()
	var err error
	if !release() {
		err = fmt.Errorf("closing local Pub/Sub with requests under way: %w", context.Cause(ctx))
	}
	c.abort()
	err = errors.Join(err, c.web.close())
	if c.rest != nil {
		err = errors.Join(err, c.rest.close())
	}
	err = errors.Join(err, c.conn.Close())
	c.server.Stop()
	// The listener of the port, which the server has where it is in memory.
	if closed := c.listen.Close(); !c.opts.InMemory {
		err = errors.Join(err, closed)
	}
	c.serving.Wait()
	return err
}

func (c *Cloud) topic(id string) string        { return c.full("topics", id) }
func (c *Cloud) subscription(id string) string { return c.full("subscriptions", id) }

func (c *Cloud) full(kind, id string) string {
	if strings.HasPrefix(id, "projects/") {
		return id
	}
	return "projects/" + c.opts.Project + "/" + kind + "/" + id
}
