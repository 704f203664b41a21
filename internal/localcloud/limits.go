package localcloud

import (
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// What one request to publish may hold; bytes where nothing else is said. Source:
// cloud.google.com/pubsub/quotas#resource_limits.
const (
	mostMessages    = 1000 // in a request
	mostBytes       = 10_000_000
	mostAttributes  = 100
	longestName     = 256
	longestValue    = 1024
	longestOrdering = 1024
)

// checkPublish refuses a request as a whole if one message of it is over a limit, as
// Pub/Sub does.
func checkPublish(r *pubsubpb.PublishRequest) error {
	switch {
	case len(r.Messages) == 0:
		return status.Error(codes.InvalidArgument, "a request must have messages")
	case len(r.Messages) > mostMessages:
		return status.Errorf(codes.InvalidArgument, "a request has %d messages, the most is %d", len(r.Messages), mostMessages)
	}
	total := 0
	for i, m := range r.Messages {
		if err := checkMessage(m); err != nil {
			return status.Errorf(codes.InvalidArgument, "message %d has %s", i, err)
		}
		if m.OrderingKey != r.Messages[0].OrderingKey {
			return status.Errorf(codes.InvalidArgument, "message %d has another ordering key than the first: a request has one", i)
		}
		total += proto.Size(m)
	}
	if total > mostBytes {
		return status.Errorf(codes.InvalidArgument, "a request has messages of %d bytes, the most is %d", total, mostBytes)
	}
	return nil
}

// fault names the limit that a message is over.
type fault string

func (f fault) Error() string { return string(f) }

func checkMessage(m *pubsubpb.PubsubMessage) error {
	switch {
	case len(m.Data) == 0 && len(m.Attributes) == 0:
		return fault("neither data nor attributes")
	case len(m.Attributes) > mostAttributes:
		return fault("more than 100 attributes")
	case len(m.OrderingKey) > longestOrdering:
		return fault("an ordering key of more than 1,024 bytes")
	}
	for name, value := range m.Attributes {
		switch {
		case name == "" || len(name) > longestName:
			return fault("an attribute whose name has not 1 to 256 bytes")
		case strings.HasPrefix(name, "goog"):
			return fault("an attribute whose name begins with goog")
		case len(value) > longestValue:
			return fault("an attribute of more than 1,024 bytes")
		}
	}
	return nil
}
