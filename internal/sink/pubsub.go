// Package sink guarantees that a record is durable where it was sent when Send returns
// without an error for it, that nothing of it leaves once the context of Send has ended,
// and that every record carries an id by which a replay shows.
package sink

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// IDAttribute is the attribute of a message that holds the record's id.
const IDAttribute = "recordId"

// Pub/Sub's limits, in bytes where nothing else is said. A request over one of them fails
// as a whole. Source: cloud.google.com/pubsub/quotas#resource_limits; that names must not
// begin with goog, cloud.google.com/pubsub/docs/publisher#using-attributes.
const (
	maxMessage     = 10_000_000 - 4096 // the request around it comes out of it
	maxAttributes  = 100
	maxName        = 256
	maxValue       = 1024
	maxOrderingKey = 1024
	reservedPrefix = "goog"
)

const (
	// requestMessages and requestBytes end a request.
	requestMessages = 1000
	requestBytes    = 4 << 20
	// requestsAtOnce bounds the requests of one Send that are under way.
	requestsAtOnce = 64
	// requestTimeout bounds one request with its retries: a peer that is silent is given
	// up on in time for the lease to be given back.
	requestTimeout = 20 * time.Second
	// margin is how long before the end of Send's context the last byte leaves: what has
	// left by then is stored, or lost, when the lease is over.
	margin = time.Second
)

// PubSub publishes a message for each record: the body as data, the id as an attribute.
// The requests are its own, not those of a pubsub.Publisher, which goes on sending when
// its caller has left. It is safe for concurrent use.
type PubSub struct {
	client *pubsub.Client
	topic  string // projects/P/topics/T
}

// NewPubSub returns a PubSub on a topic: its id in the client's project, or its full name.
func NewPubSub(client *pubsub.Client, topic string) *PubSub {
	if !strings.HasPrefix(topic, "projects/") {
		topic = "projects/" + client.Project() + "/topics/" + topic
	}
	return &PubSub{client: client, topic: topic}
}

// Send implements relay.Sink. Of the records of one ordering key, those after one that is
// not known to be durable are not sent.
func (p *PubSub) Send(ctx context.Context, records []relay.Record) []error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
		defer cancel()
	}
	errs := make([]error, len(records))
	var requests errgroup.Group
	requests.SetLimit(requestsAtOnce)
	for _, l := range lanes(records, errs) {
		requests.Go(func() error {
			p.publish(ctx, l, errs)
			return nil
		})
	}
	_ = requests.Wait()
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// lane is what is sent in order, one request after another: the records of one ordering
// key, or as many of those without as one request takes.
type lane struct {
	messages []*pubsubpb.PubsubMessage
	records  []int // of each message
	bytes    int
}

func (l *lane) add(m *pubsubpb.PubsubMessage, record int) {
	l.messages, l.records, l.bytes = append(l.messages, m), append(l.records, record), l.bytes+proto.Size(m)
}

// lanes makes the messages, and rejects those that no request may carry. All messages of
// a request must have one ordering key (google.pubsub.v1.PubsubMessage.ordering_key).
func lanes(records []relay.Record, errs []error) []*lane {
	var out []*lane
	open := map[string]*lane{} // by ordering key
	for i := range records {
		m := message(&records[i])
		if fault := faultOf(m); fault != "" {
			errs[i] = &retry.Rejected{Reason: fault}
			continue
		}
		l := open[m.OrderingKey]
		if l == nil || m.OrderingKey == "" && requestEnds(len(l.messages), l.bytes, m) {
			l = &lane{}
			open[m.OrderingKey] = l
			out = append(out, l)
		}
		l.add(m, i)
	}
	return out
}

// requestEnds reports whether a message is one too many for a request.
func requestEnds(messages, bytes int, m *pubsubpb.PubsubMessage) bool {
	return messages == requestMessages || messages > 0 && bytes+proto.Size(m) > requestBytes
}

// publish sends a lane, up to the first request that fails.
func (p *PubSub) publish(ctx context.Context, l *lane, errs []error) {
	for begin := 0; begin < len(l.messages); {
		end, bytes := begin, 0
		for end < len(l.messages) && !requestEnds(end-begin, bytes, l.messages[end]) {
			bytes += proto.Size(l.messages[end])
			end++
		}
		done, err := p.send(ctx, l, begin, end, errs)
		if err != nil {
			for _, record := range l.records[done:] {
				errs[record] = err
			}
			return
		}
		begin = end
	}
}

// send makes one request or, where Pub/Sub refuses what is in it, one for each message:
// whose fault it was shows only then. It returns where it has stopped, and why.
func (p *PubSub) send(ctx context.Context, l *lane, begin, end int, errs []error) (int, error) {
	err := p.request(ctx, l.messages[begin:end])
	if err == nil || retry.Classify(err).Code != codes.InvalidArgument {
		return begin, err
	}
	for i := begin; i < end; i++ {
		if end-begin > 1 {
			err = p.request(ctx, l.messages[i:i+1])
		}
		switch {
		case err == nil:
		case retry.Classify(err).Code == codes.InvalidArgument:
			errs[l.records[i]] = &retry.Rejected{Reason: "Pub/Sub refuses the message: INVALID_ARGUMENT, also when it is sent alone"}
		default:
			return i, err
		}
	}
	return end, nil
}

// request is one call with its retries.
func (p *PubSub) request(ctx context.Context, messages []*pubsubpb.PubsubMessage) error {
	if ctx.Err() != nil {
		return fmt.Errorf("publishing to %s: %w", p.topic, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := p.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: p.topic, Messages: messages})
	if err != nil {
		return p.failure(err)
	}
	return nil
}

func message(r *relay.Record) *pubsubpb.PubsubMessage {
	attributes := make(map[string]string, len(r.Attributes)+1)
	maps.Copy(attributes, r.Attributes)
	attributes[IDAttribute] = r.ID()
	return &pubsubpb.PubsubMessage{Data: r.Body, Attributes: attributes, OrderingKey: r.OrderingKey}
}

// faultOf says which of Pub/Sub's limits a message is over; nothing of it is quoted.
func faultOf(m *pubsubpb.PubsubMessage) string {
	size := len(m.Data) + len(m.OrderingKey)
	for name, value := range m.Attributes {
		size += len(name) + len(value)
		switch {
		case len(name) == 0 || len(name) > maxName:
			return fmt.Sprintf("an attribute whose name has %d bytes; Pub/Sub takes 1 to %d", len(name), maxName)
		case len(value) > maxValue:
			return fmt.Sprintf("an attribute of %d bytes; Pub/Sub takes %d", len(value), maxValue)
		case strings.HasPrefix(name, reservedPrefix):
			return "an attribute whose name begins with " + reservedPrefix + ", which Pub/Sub keeps for itself"
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return "an attribute that is not text (UTF-8)"
		}
	}
	switch {
	case len(m.Attributes) > maxAttributes:
		return fmt.Sprintf("%d attributes, %s among them; Pub/Sub takes %d", len(m.Attributes), IDAttribute, maxAttributes)
	case len(m.OrderingKey) > maxOrderingKey:
		return fmt.Sprintf("an ordering key of %d bytes; Pub/Sub takes %d", len(m.OrderingKey), maxOrderingKey)
	case !utf8.ValidString(m.OrderingKey):
		return "an ordering key that is not text (UTF-8)"
	case size > maxMessage:
		return fmt.Sprintf("a message of %d bytes; Pub/Sub takes %d", size, maxMessage)
	}
	return ""
}

// failure keeps the service's text, which may quote a message, out of the error.
func (p *PubSub) failure(err error) error {
	code := retry.Classify(err).Code
	if code == codes.NotFound {
		return fmt.Errorf("publishing to %s, which does not exist: %w", p.topic, retry.Bare(code))
	}
	return fmt.Errorf("publishing to %s: %w", p.topic, retry.Bare(code))
}
