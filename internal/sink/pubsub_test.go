package sink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
)

func cloud(t *testing.T, topics ...string) *localcloud.Cloud {
	t.Helper()
	c, err := localcloud.New(localcloud.Options{Project: "p", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	if err := c.CreateTopics(t.Context(), topics...); err != nil {
		t.Fatal(err)
	}
	return c
}

// publisher returns the sink of a topic, over a connection on which each request to
// publish passes through faults, where that is not nil.
func publisher(t *testing.T, c *localcloud.Cloud, topic string, faults func(ctx context.Context, r *pubsubpb.PublishRequest, send func() error) error) *sink.PubSub {
	t.Helper()
	conn, err := c.Dial(grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		send := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
		if r, ok := req.(*pubsubpb.PublishRequest); ok && faults != nil {
			return faults(ctx, r, send)
		}
		return send()
	}))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(context.Background(), "p", option.WithGRPCConn(conn), option.WithTelemetryDisabled())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return sink.NewPubSub(client, topic)
}

func TestPubSubHasEveryRecordWhenSendReturns(t *testing.T) {
	c := cloud(t, "out")
	s := publisher(t, c, "out", nil)
	var records []relay.Record
	for i := range 3000 {
		records = append(records, relay.Record{
			Key: fmt.Sprint(i), Body: fmt.Appendf(nil, `{"n":%d}`, i), OrderingKey: fmt.Sprint(i % 3), Attributes: map[string]string{"kind": "row"},
		})
	}
	if errs := s.Send(t.Context(), records); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	last := map[string]int{}
	published := c.Published("out")
	for _, m := range published {
		var body struct{ N int }
		if err := json.Unmarshal(m.Data, &body); err != nil {
			t.Fatal(err)
		}
		if m.Attributes["kind"] != "row" || m.Attributes[sink.IDAttribute] != records[body.N].ID() {
			t.Fatalf("record %d has attributes %v", body.N, m.Attributes)
		}
		if at, seen := last[m.OrderingKey]; seen && at > body.N {
			t.Errorf("of key %s, %d comes after %d", m.OrderingKey, body.N, at)
		}
		last[m.OrderingKey] = body.N
	}
	if len(published) != len(records) {
		t.Errorf("%d messages of %d", len(published), len(records))
	}
}

func TestWhatIsOverALimitOfPubSubIsRejectedAlone(t *testing.T) {
	many := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint("a", i)] = "v"
		}
		return out
	}
	text := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		fits, over relay.Record
	}{
		"value":        {relay.Record{Attributes: map[string]string{"a": text(1024)}}, relay.Record{Attributes: map[string]string{"a": text(1025)}}},
		"name":         {relay.Record{Attributes: map[string]string{text(256): ""}}, relay.Record{Attributes: map[string]string{text(257): ""}}},
		"no name":      {relay.Record{}, relay.Record{Attributes: map[string]string{"": "v"}}},
		"reserved":     {relay.Record{Attributes: map[string]string{"agoog": "v"}}, relay.Record{Attributes: map[string]string{"googol": "v"}}},
		"attributes":   {relay.Record{Attributes: many(99)}, relay.Record{Attributes: many(100)}}, // and recordId
		"ordering key": {relay.Record{OrderingKey: text(1024)}, relay.Record{OrderingKey: text(1025)}},
		"value's text": {relay.Record{Attributes: map[string]string{"a": "\u00ff"}}, relay.Record{Attributes: map[string]string{"a": "\xff"}}},
		"name's text":  {relay.Record{Attributes: map[string]string{"\u00ff": "a"}}, relay.Record{Attributes: map[string]string{"\xff": "a"}}},
		"key's text":   {relay.Record{OrderingKey: "\u00ff"}, relay.Record{OrderingKey: "\xff"}},
		"size":         {relay.Record{Body: make([]byte, 9_995_000)}, relay.Record{Body: make([]byte, 10_000_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := cloud(t, "out")
			var requests atomic.Int32
			s := publisher(t, cloud, "out", func(_ context.Context, _ *pubsubpb.PublishRequest, send func() error) error {
				requests.Add(1)
				return send()
			})
			errs := s.Send(t.Context(), []relay.Record{{Key: "a", Body: []byte("1")}, c.over, c.fits, {Key: "c", Body: []byte("3")}})
			var rejected *retry.Rejected
			if len(errs) != 4 || errs[0] != nil || errs[2] != nil || errs[3] != nil || !errors.As(errs[1], &rejected) {
				t.Errorf("errors %v", errs)
			}
			if n := len(cloud.Published("out")); n != 3 || requests.Load() > 3 {
				t.Errorf("%d messages in %d requests, want the three that fit, and none refused", n, requests.Load())
			}
			if strings.Contains(fmt.Sprint(errs[1]), "xxx") {
				t.Errorf("the reason quotes the record: %v", errs[1])
			}
		})
	}
}

func TestATopicThatIsNotThereFailsEveryRecordAndRejectsNone(t *testing.T) {
	s := publisher(t, cloud(t), "out", nil)
	for range 2 {
		errs := s.Send(t.Context(), []relay.Record{{Key: "a", Body: []byte("secret"), OrderingKey: "k"}, {Key: "b", Body: []byte("secret")}})
		for i, err := range errs {
			var rejected *retry.Rejected
			if err == nil || errors.As(err, &rejected) || retry.Classify(err).Code != codes.NotFound || !strings.Contains(err.Error(), "projects/p/topics/out, which does not exist") {
				t.Errorf("record %d: %v", i, err)
			}
		}
		if len(errs) != 2 {
			t.Fatalf("errors %v", errs)
		}
	}
}

// Pub/Sub refuses what this program does not know to be wrong, as a topic's schema does:
// one message makes its whole request fail.
func TestAMessageThatPubSubRefusesIsFoundAmongTheOthers(t *testing.T) {
	for _, key := range []string{"", "k"} {
		c := cloud(t, "out")
		s := publisher(t, c, "out", func(_ context.Context, r *pubsubpb.PublishRequest, send func() error) error {
			if slices.ContainsFunc(r.Messages, func(m *pubsubpb.PubsubMessage) bool { return strings.HasPrefix(string(m.Data), "bad") }) {
				return status.Error(codes.InvalidArgument, "secret: the message does not match its schema")
			}
			return send()
		})
		var records []relay.Record
		for i := range 20 {
			body := fmt.Sprint(i)
			if i == 7 || i == 19 {
				body = "bad"
			}
			records = append(records, relay.Record{Key: fmt.Sprint(i), Body: []byte(body), OrderingKey: key})
		}
		errs := s.Send(t.Context(), records)
		for i, err := range errs {
			var rejected *retry.Rejected
			if bad := i == 7 || i == 19; bad != errors.As(err, &rejected) || !bad && err != nil || strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("record %d: %v", i, err)
			}
		}
		var got []string
		for _, m := range c.Published("out") {
			got = append(got, string(m.Data))
		}
		if len(errs) != 20 || len(got) != 18 || !slices.IsSortedFunc(got, func(a, b string) int { return len(a)*100 + strings.Compare(a, b) - len(b)*100 }) {
			t.Errorf("%d errors, published %v", len(errs), got)
		}
	}
}

// After a record of a key that failed, nothing of the key comes, so that none comes late.
func TestNothingOfAnOrderingKeyIsSentAfterAFailure(t *testing.T) {
	c := cloud(t, "out")
	var requests atomic.Int32
	s := publisher(t, c, "out", func(_ context.Context, r *pubsubpb.PublishRequest, send func() error) error {
		if r.Messages[0].OrderingKey == "a" && requests.Add(1) == 2 {
			return status.Error(codes.FailedPrecondition, "")
		}
		return send()
	})
	var records []relay.Record
	for i := range 5000 {
		records = append(records, relay.Record{Key: fmt.Sprint(i), Body: []byte("1"), OrderingKey: string("ab"[i%2])})
	}
	errs := s.Send(t.Context(), records)
	counts := map[string]int{}
	for _, m := range c.Published("out") {
		counts[m.OrderingKey]++
	}
	if want := map[string]int{"a": 1000, "b": 2500}; !maps.Equal(counts, want) {
		t.Errorf("published %v, want %v", counts, want)
	}
	for i, err := range errs {
		if failed := i%2 == 0 && i >= 2000; failed != (err != nil) {
			t.Fatalf("record %d: %v", i, err)
		}
	}
}

// When the lease is over, what was not stored never is: neither what waits for its turn
// nor what is under way, nor by a retry.
func TestNothingLeavesWhenTheContextHasEnded(t *testing.T) {
	for name, slow := range map[string]func(ctx context.Context, send func() error) error{
		"a slow network": func(ctx context.Context, send func() error) error {
			select {
			case <-time.After(7 * time.Second):
			case <-ctx.Done():
			}
			return send()
		},
		"an outage that ends late": func(context.Context, func() error) error {
			time.Sleep(100 * time.Millisecond)
			return status.Error(codes.Unavailable, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := localcloud.New(localcloud.Options{Project: "p", InMemory: true, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close(context.Background()) })
				if err := c.CreateTopics(t.Context(), "out"); err != nil {
					t.Fatal(err)
				}
				over := time.Now().Add(10 * time.Second)
				s := publisher(t, c, "out", func(ctx context.Context, _ *pubsubpb.PublishRequest, send func() error) error { return slow(ctx, send) })
				ctx, cancel := context.WithDeadline(t.Context(), over)
				defer cancel()
				var records []relay.Record
				for i := range 4000 { // of one key: request by request
					records = append(records, relay.Record{Key: fmt.Sprint(i), Body: []byte("1"), OrderingKey: "k"})
				}
				errs := s.Send(ctx, records)
				if time.Now().After(over) {
					t.Errorf("Send returned %s after its context's end", time.Since(over))
				}
				failed := 0
				for _, err := range errs {
					if err != nil {
						failed++
					}
				}
				stored := len(c.Published("out"))
				time.Sleep(5 * time.Minute)
				if after := len(c.Published("out")); after != stored || stored+failed != 4000 || failed == 0 {
					t.Errorf("%d stored when Send returned, with %d failures, and %d five minutes later", stored, failed, after)
				}
			})
		})
	}
}
