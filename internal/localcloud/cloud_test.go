package localcloud_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// inBubble runs a test with a Cloud in memory, on the bubble's time.
func inBubble(t *testing.T, test func(t *testing.T, c *localcloud.Cloud)) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, localcloud.Options{InMemory: true})
		test(t, c)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func start(t *testing.T, o localcloud.Options) *localcloud.Cloud {
	t.Helper()
	o.Project, o.Logger = "my-project", slog.New(slog.DiscardHandler)
	c, err := localcloud.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// events is a push subscription to flights-events, for a test to complete.
func events() localcloud.Push {
	return localcloud.Push{
		ID: "flights-events", Topic: "flights-events",
		AckDeadline: 300 * time.Second, MinBackoff: 10 * time.Second, MaxBackoff: 300 * time.Second,
		MaxAttempts: 100, DeadLetterTopic: "flights-undelivered", Retention: 7 * 24 * time.Hour,
	}
}

// deploy makes the topics of flights, a subscription to pull from what is given up on,
// and the subscription that pushes events to h.
func deploy(t *testing.T, c *localcloud.Cloud, h http.Handler, tune func(*localcloud.Push)) *localcloud.Subscription {
	t.Helper()
	p := events()
	p.Handler = h
	if tune != nil {
		tune(&p)
	}
	if err := c.CreateTopics(t.Context(), "flights-events", "flights-undelivered"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreatePull(t.Context(), "flights-undelivered", "flights-undelivered", time.Minute); err != nil {
		t.Fatal(err)
	}
	s, err := c.CreatePush(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// publish publishes one message after the other, as a client does that needs
// each to be durable, and returns their ids.
func publish(t *testing.T, c *localcloud.Cloud, messages ...*pubsub.Message) []string {
	t.Helper()
	client, err := c.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Errorf("closing client: %v", err)
		}
	}()
	p := client.Publisher("flights-events")
	defer p.Stop()
	p.EnableMessageOrdering = true
	ids := make([]string, len(messages))
	for i, m := range messages {
		if ids[i], err = p.Publish(t.Context(), m).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func text(s string) *pubsub.Message { return &pubsub.Message{Data: []byte(s)} }

// function is a handler built as the real ones are. It keeps what it was sent
// and gives the verdict on it.
type function struct {
	http.Handler
	mu   sync.Mutex
	got  []push.Message
	when []time.Time
}

func newFunction(verdict func(ctx context.Context, m push.Message) error) *function {
	f := &function{}
	f.Handler = push.Handler(push.Config{Budget: 270 * time.Second, Logger: slog.New(slog.DiscardHandler)},
		func(ctx context.Context, d *push.Delivery) error {
			if d.Malformed != nil {
				panic(d.Malformed)
			}
			f.mu.Lock()
			f.got = append(f.got, d.Message)
			f.when = append(f.when, time.Now())
			f.mu.Unlock()
			return verdict(ctx, d.Message)
		})
	return f
}

func accept(context.Context, push.Message) error { return nil }

func refuse(context.Context, push.Message) error { return fmt.Errorf("no") }

func (f *function) data() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, m := range f.got {
		out = append(out, string(m.Data))
	}
	return out
}

func idle(t *testing.T, s *localcloud.Subscription) localcloud.Counts {
	t.Helper()
	if err := s.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.Counts()
}

func TestMessageArrivesAsItWasPublished(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		f := newFunction(accept)
		s := deploy(t, c, f, nil)
		m := &pubsub.Message{Data: []byte("{\"a\":\"<\xff>\"}"), Attributes: map[string]string{"k": "<v>"}, OrderingKey: "key"}
		ids := publish(t, c, m)
		if n, want := idle(t, s), (localcloud.Counts{Published: 1, Delivered: 1, Acked: 1}); n != want {
			t.Errorf("counts %+v, want %+v", n, want)
		}
		got := f.got[0]
		if got.ID != ids[0] || string(got.Data) != string(m.Data) || !maps.Equal(got.Attributes, m.Attributes) ||
			got.OrderingKey != "key" || got.DeliveryAttempt != 1 || got.Subscription != "projects/my-project/subscriptions/flights-events" {
			t.Errorf("delivered %+v", got)
		}
		if age := time.Since(got.PublishTime).Abs(); age > time.Second {
			t.Errorf("published at %v, %v ago", got.PublishTime, age)
		}
		published := c.Published("flights-events")
		if len(published) != 1 || published[0].ID != ids[0] || !published[0].PublishTime.Equal(got.PublishTime) {
			t.Errorf("published %+v", published)
		}
	})
}

func TestRefusedMessageComesAgainWithTheSameIdentityAndLongerWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		attempts := 0
		f := newFunction(func(ctx context.Context, m push.Message) error {
			if attempts++; attempts < 9 {
				return refuse(ctx, m)
			}
			return nil
		})
		s := deploy(t, c, f, nil)
		publish(t, c, text("x"))
		if n, want := idle(t, s), (localcloud.Counts{Published: 1, Delivered: 9, Refused: 8, Acked: 1}); n != want {
			t.Errorf("counts %+v, want %+v", n, want)
		}
		for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300, 300} {
			if wait := f.when[i+1].Sub(f.when[i]); wait != want*time.Second {
				t.Errorf("waited %v after refusal %d, want %v", wait, i+1, want*time.Second)
			}
			if a, b := f.got[0], f.got[i+1]; a.ID != b.ID || !a.PublishTime.Equal(b.PublishTime) || b.DeliveryAttempt != i+2 {
				t.Errorf("delivery %d has another identity: %+v", i+2, b)
			}
		}
	})
}

func TestMessageRefusedTooOftenIsForwardedUnderANewID(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		f := newFunction(refuse)
		s := deploy(t, c, f, nil)
		ids := publish(t, c, &pubsub.Message{Data: []byte("x"), Attributes: map[string]string{"a": "b"}})
		begin := time.Now()
		if n, want := idle(t, s), (localcloud.Counts{Published: 1, Delivered: 100, Refused: 100, Forwarded: 1}); n != want {
			t.Errorf("counts %+v, want %+v", n, want)
		}
		// 10+20+40+80+160 s, then 94 waits of 300 s.
		if took := time.Since(begin); took.Round(time.Second) != 310*time.Second+94*300*time.Second {
			t.Errorf("took %v", took)
		}
		moved := c.Published("flights-undelivered")
		if len(moved) != 1 || string(moved[0].Data) != "x" || moved[0].ID == ids[0] {
			t.Fatalf("undelivered: %+v", moved)
		}
		want := map[string]string{
			"a": "b",
			"CloudPubSubDeadLetterSourceDeliveryCount":       "100",
			"CloudPubSubDeadLetterSourceSubscription":        "flights-events",
			"CloudPubSubDeadLetterSourceSubscriptionProject": "my-project",
			"CloudPubSubDeadLetterSourceTopicPublishTime":    f.got[0].PublishTime.Format("2006-01-02T15:04:05.000+00:00"),
		}
		if !maps.Equal(moved[0].Attributes, want) {
			t.Errorf("attributes %v, want %v", moved[0].Attributes, want)
		}
	})
}

func TestMessageThatCannotBeForwardedIsDeliveredAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		f := newFunction(refuse)
		s := deploy(t, c, f, func(p *localcloud.Push) { p.MaxAttempts = 5 })
		conn, err := c.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		topic := "projects/my-project/topics/flights-undelivered"
		_, err = pubsubpb.NewPublisherClient(conn).DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		publish(t, c, text("x"))
		if err := s.Wait(t.Context(), func(n localcloud.Counts) bool { return n.Refused == 7 }); err != nil {
			t.Fatal(err)
		}
		if err := c.CreateTopics(t.Context(), "flights-undelivered"); err != nil {
			t.Fatal(err)
		}
		if n := idle(t, s); n.Forwarded != 1 || n.Refused != 8 {
			t.Errorf("counts %+v", n)
		}
	})
}

func TestMessageIsDroppedAtTheEndOfItsRetention(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		f := newFunction(refuse)
		s := deploy(t, c, f, func(p *localcloud.Push) { p.MaxAttempts, p.Retention = 0, time.Hour })
		publish(t, c, text("x"))
		n := idle(t, s)
		if n.Expired != 1 || n.Acked+n.Forwarded != 0 {
			t.Errorf("counts %+v", n)
		}
		if last := f.when[len(f.when)-1].Sub(f.when[0]); last > time.Hour || last < 55*time.Minute {
			t.Errorf("last delivered %v after the first", last)
		}
		if f.got[0].DeliveryAttempt != 0 {
			t.Error("deliveryAttempt without a dead-letter policy")
		}
	})
}

// Codes as Pub/Sub reads them; 102 comes alone, with no answer behind it.
func TestOnlyFiveCodesAcknowledge(t *testing.T) {
	codes := []int{200, 201, 202, 204, 203, 205, 206, 301, 302, 304, 307, 400, 404, 408, 429, 500, 502, 503, 504, 102}
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		var mu sync.Mutex
		seen := map[int]int{}
		s := deploy(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var e struct{ Message struct{ Data []byte } }
			if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
				t.Error(err)
			}
			var code int
			if _, err := fmt.Sscan(string(e.Message.Data), &code); err != nil {
				t.Error(err)
			}
			mu.Lock()
			seen[code]++
			first := seen[code] == 1
			mu.Unlock()
			if !first {
				code = http.StatusNoContent
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
			if code == http.StatusProcessing {
				<-r.Context().Done()
			}
		}), nil)
		for _, code := range codes {
			publish(t, c, text(fmt.Sprint(code)))
		}
		idle(t, s)
		for _, code := range codes {
			want := 2
			if slices.Contains([]int{102, 200, 201, 202, 204}, code) {
				want = 1
			}
			if seen[code] != want {
				t.Errorf("%d: delivered %d times, want %d", code, seen[code], want)
			}
		}
	})
}

func TestRequestLongerThanTheAckDeadlineIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		hung := 0
		s := deploy(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			if hung++; hung == 1 {
				<-r.Context().Done()
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}), nil)
		publish(t, c, text("x"))
		begin := time.Now()
		if n := idle(t, s); n.Refused != 1 || n.Acked != 1 {
			t.Errorf("counts %+v", n)
		}
		if took := time.Since(begin).Round(time.Second); took != 310*time.Second {
			t.Errorf("took %v, want the ack deadline and the first backoff", took)
		}
	})
}

func TestConcurrencyGrowsWithSuccessAndShrinksWithRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		var mu sync.Mutex
		var atOnce, most int
		overloaded := false
		f := newFunction(func(ctx context.Context, _ push.Message) error {
			mu.Lock()
			atOnce++
			most = max(most, atOnce)
			no := overloaded
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			atOnce--
			mu.Unlock()
			if no {
				return push.ErrOverloaded
			}
			return nil
		})
		s := deploy(t, c, f, nil)
		publish1000 := func() {
			client, err := c.Client(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			p := client.Publisher("flights-events")
			var results []*pubsub.PublishResult
			for range 1000 {
				results = append(results, p.Publish(t.Context(), text("x")))
			}
			p.Stop()
			for _, r := range results {
				if _, err := r.Get(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		publish1000()
		time.Sleep(500 * time.Millisecond)
		peak := func() int { mu.Lock(); defer mu.Unlock(); return most }
		if n := peak(); n != 3 {
			t.Errorf("%d requests at once to begin with, want 3", n)
		}
		idle(t, s)
		if n := peak(); n < 200 {
			t.Errorf("at most %d requests at once, want growth", n)
		}

		mu.Lock()
		overloaded = true
		mu.Unlock()
		publish1000()
		time.Sleep(5 * time.Second)
		mu.Lock()
		if atOnce > 1 {
			t.Errorf("%d requests at once to an overloaded function", atOnce)
		}
		overloaded = false
		mu.Unlock()
		if n := idle(t, s); n.Acked != 2000 {
			t.Errorf("counts %+v", n)
		}
	})
}

func TestOrderedMessagesOfAKeyComeOneAfterTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		var mu sync.Mutex
		busy := map[string]bool{}
		tries := map[string]int{}
		f := newFunction(func(_ context.Context, m push.Message) error {
			mu.Lock()
			if busy[m.OrderingKey] {
				t.Errorf("two messages of key %s at once", m.OrderingKey)
			}
			busy[m.OrderingKey] = true
			tries[string(m.Data)]++
			again := tries[string(m.Data)] == 1 && strings.HasSuffix(string(m.Data), "3")
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			busy[m.OrderingKey] = false
			mu.Unlock()
			if again {
				return fmt.Errorf("no")
			}
			return nil
		})
		s := deploy(t, c, f, func(p *localcloud.Push) { p.Ordered = true })
		var messages []*pubsub.Message
		for i := range 20 {
			for _, key := range []string{"a", "b", "c"} {
				messages = append(messages, &pubsub.Message{Data: fmt.Appendf(nil, "%s%02d", key, i), OrderingKey: key})
			}
		}
		publish(t, c, messages...)
		idle(t, s)
		for _, key := range []string{"a", "b", "c"} {
			var got, want []string
			for _, d := range f.data() {
				if strings.HasPrefix(d, key) {
					got = append(got, d)
				}
			}
			for i := range 20 {
				want = append(want, fmt.Sprintf("%s%02d", key, i))
				if i%10 == 3 {
					want = append(want, fmt.Sprintf("%s%02d", key, i))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("key %s: %v, want %v", key, got, want)
			}
		}
	})
}

func TestDeadLettersCanBePulled(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		s := deploy(t, c, newFunction(refuse), func(p *localcloud.Push) { p.MaxAttempts = 5 })
		publish(t, c, text("x"))
		idle(t, s)
		conn, err := c.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r, err := pubsubpb.NewSubscriberClient(conn).Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: "projects/my-project/subscriptions/flights-undelivered", MaxMessages: 10,
		})
		if err != nil || len(r.ReceivedMessages) != 1 || string(r.ReceivedMessages[0].Message.Data) != "x" {
			t.Errorf("pulled %v, %v", r, err)
		}
	})
}

func TestCloseFinishesWhatIsUnderWayAndSendsNothingMore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		f := newFunction(func(context.Context, push.Message) error { time.Sleep(time.Minute); return nil })
		s := deploy(t, c, f, nil)
		for range 10 {
			publish(t, c, text("x"))
		}
		time.Sleep(time.Second)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := s.Counts(); n.Acked != 3 || n.Delivered != 3 {
			t.Errorf("counts %+v", n)
		}
	})
}

func TestCloseCutsOffWhatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, localcloud.Options{InMemory: true})
		f := newFunction(func(ctx context.Context, _ push.Message) error { <-ctx.Done(); return ctx.Err() })
		s := deploy(t, c, f, nil)
		publish(t, c, text("x"))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if err := c.Close(ctx); err == nil || !strings.Contains(err.Error(), "under way") {
			t.Errorf("close: %v", err)
		}
		if n := s.Counts(); n.Refused != 1 || n.Acked != 0 {
			t.Errorf("counts %+v", n)
		}
	})
}

func TestSubscriptionIsNotMadeTwiceNorWithoutItsTopics(t *testing.T) {
	inBubble(t, func(t *testing.T, c *localcloud.Cloud) {
		f := newFunction(accept)
		s := deploy(t, c, f, nil)
		for _, tune := range []func(*localcloud.Push){
			func(*localcloud.Push) {},
			func(p *localcloud.Push) { p.ID, p.Topic = "other", "absent" },
			func(p *localcloud.Push) { p.ID, p.DeadLetterTopic = "other", "absent" },
		} {
			p := events()
			p.Endpoint = "http://nowhere/"
			tune(&p)
			if _, err := c.CreatePush(t.Context(), p); err == nil {
				t.Errorf("created %+v", p)
			}
		}
		publish(t, c, text("x"))
		if n := idle(t, s); n.Acked != 1 || len(f.got) != 1 {
			t.Errorf("counts %+v", n)
		}
	})
}

// Over TCP any client that knows PUBSUB_EMULATOR_HOST reaches it, and the
// endpoint may belong to another process.
func TestThroughTCP(t *testing.T) {
	c := start(t, localcloud.Options{})
	f := newFunction(accept)
	endpoint := httptest.NewServer(f)
	defer endpoint.Close()
	s := deploy(t, c, nil, func(p *localcloud.Push) { p.Endpoint = endpoint.URL })
	served := newFunction(accept)
	second, err := c.CreatePush(t.Context(), localcloud.Push{
		ID: "second", Topic: "flights-events", Handler: served,
		AckDeadline: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Second, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}

	conn, err := grpc.NewClient(c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const messages = 2000
	for i := range messages {
		_, err := pubsubpb.NewPublisherClient(conn).Publish(t.Context(), &pubsubpb.PublishRequest{
			Topic: "projects/my-project/topics/flights-events", Messages: []*pubsubpb.PubsubMessage{{Data: fmt.Append(nil, i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*localcloud.Subscription{s, second} {
		if n, want := idle(t, s), (localcloud.Counts{Published: messages, Delivered: messages, Acked: messages}); n != want {
			t.Errorf("counts %+v, want %+v", n, want)
		}
	}
	for _, f := range []*function{f, served} {
		got := f.data()
		slices.Sort(got)
		if len(slices.Compact(got)) != messages {
			t.Errorf("%d different messages delivered, want %d", len(slices.Compact(got)), messages)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestACloudThatForgetsKeepsWhatWaitsAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, localcloud.Options{InMemory: true, Forget: true})
		var up atomic.Bool
		f := newFunction(func(context.Context, push.Message) error {
			if !up.Load() {
				return refuse(t.Context(), push.Message{})
			}
			return nil
		})
		s := deploy(t, c, f, nil)
		publish(t, c, text("a"))
		synctest.Wait()
		up.Store(true)
		idle(t, s)
		if got := f.data(); len(got) != 2 || len(c.Published("flights-events")) != 0 {
			t.Errorf("delivered %q, and %d messages are kept", got, len(c.Published("flights-events")))
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
