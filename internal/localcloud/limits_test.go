package localcloud_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
)

// One message over a limit makes the whole request fail, as in Pub/Sub.
func TestARequestOverALimitIsRefusedWhole(t *testing.T) {
	c := start(t, localcloud.Options{})
	if err := c.CreateTopics(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	conn, err := c.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pubsubpb.NewPublisherClient(conn)
	text := func(n int) string { return strings.Repeat("x", n) }
	attributes := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint(i)] = ""
		}
		return out
	}
	good := &pubsubpb.PubsubMessage{Data: []byte("1")}
	many := func(n int) (out []*pubsubpb.PubsubMessage) {
		for range n {
			out = append(out, &pubsubpb.PubsubMessage{Data: []byte("1")})
		}
		return out
	}
	for name, test := range map[string]struct{ within, over []*pubsubpb.PubsubMessage }{
		"value":         {[]*pubsubpb.PubsubMessage{{Attributes: map[string]string{"a": text(1024)}}}, []*pubsubpb.PubsubMessage{good, {Attributes: map[string]string{"a": text(1025)}}}},
		"name":          {[]*pubsubpb.PubsubMessage{{Attributes: map[string]string{text(256): ""}}}, []*pubsubpb.PubsubMessage{good, {Attributes: map[string]string{text(257): ""}}}},
		"empty name":    {nil, []*pubsubpb.PubsubMessage{good, {Attributes: map[string]string{"": "v"}}}},
		"reserved name": {nil, []*pubsubpb.PubsubMessage{good, {Attributes: map[string]string{"google": "v"}}}},
		"attributes":    {[]*pubsubpb.PubsubMessage{{Attributes: attributes(100)}}, []*pubsubpb.PubsubMessage{good, {Attributes: attributes(101)}}},
		"ordering key":  {[]*pubsubpb.PubsubMessage{{Data: []byte("1"), OrderingKey: text(1024)}}, []*pubsubpb.PubsubMessage{{Data: []byte("1"), OrderingKey: text(1025)}}},
		"two keys":      {nil, []*pubsubpb.PubsubMessage{{Data: []byte("1"), OrderingKey: "a"}, {Data: []byte("1"), OrderingKey: "b"}}},
		"nothing":       {nil, []*pubsubpb.PubsubMessage{good, {}}},
		"bytes":         {[]*pubsubpb.PubsubMessage{{Data: make([]byte, 9_900_000)}}, []*pubsubpb.PubsubMessage{{Data: make([]byte, 6_000_000)}, {Data: make([]byte, 6_000_000)}}},
		"messages":      {many(1000), many(1001)},
		"no message":    {nil, nil},
	} {
		before := len(c.Published("t"))
		_, err := client.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: "projects/my-project/topics/t", Messages: test.over})
		if status.Code(err) != codes.InvalidArgument || len(c.Published("t")) != before {
			t.Errorf("%s, over the limit: %v, %d messages stored", name, err, len(c.Published("t"))-before)
		}
		if test.within == nil {
			continue
		}
		if _, err := client.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: "projects/my-project/topics/t", Messages: test.within}); err != nil {
			t.Errorf("%s, at the limit: %v", name, err)
		}
	}
}
