package deadletter

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

func publisher(t *testing.T, create bool, opts ...pstest.ServerReactorOption) (*Publisher, *pstest.Server) {
	t.Helper()
	srv := pstest.NewServer(opts...)
	conn, err := grpc.NewClient(srv.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "p", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	if create {
		if _, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/p/topics/letters"}); err != nil {
			t.Fatal(err)
		}
	}
	p := NewPublisher(client.Publisher("letters"))
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		_ = client.Close()
		_ = conn.Close()
		_ = srv.Close()
	})
	return p, srv
}

// covers: FAIL-08, FAIL-16, MET-11
func TestPutReturnsWhenEveryLetterIsStored(t *testing.T) {
	p, srv := publisher(t, true)
	letters := make([]Letter, 2500) // more than may be outstanding
	for i := range letters {
		letters[i] = Letter{Kind: KindRecord, MessageID: fmt.Sprint(i), Time: publishTime, Data: []byte("x")}
	}
	if err := p.Put(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range srv.Messages() {
		l, err := Decode(m.Data, m.Attributes)
		if err != nil {
			t.Fatal(err)
		}
		seen[l.MessageID] = true
	}
	if len(seen) != len(letters) {
		t.Errorf("%d letters are stored", len(seen))
	}
	if published, outstanding := p.Stats(); published != int64(len(letters)) || outstanding != 0 {
		t.Errorf("published %d, outstanding %d", published, outstanding)
	}
}

// covers: FAIL-18
func TestAFailingTopicIsAnError(t *testing.T) {
	p, _ := publisher(t, false)
	if err := p.Put(t.Context(), []Letter{{Kind: KindRecord, Time: publishTime, Data: []byte("x")}}); err == nil {
		t.Error("no error without a topic")
	}
	if published, _ := p.Stats(); published != 0 {
		t.Errorf("published %d", published)
	}
}

// covers: FAIL-18
func TestPutEndsWithItsContext(t *testing.T) {
	p, _ := publisher(t, true, pstest.WithErrorInjection("Publish", codes.Unavailable, "down"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Put(ctx, []Letter{{Kind: KindRecord, Time: publishTime, Data: []byte("x")}}); err == nil {
		t.Error("no error")
	}
}

// One letter that Pub/Sub would refuse does not take those along that are published with it.
func TestALetterThatPubSubRefusesIsNotSent(t *testing.T) {
	p, srv := publisher(t, true)
	letters := []Letter{
		{Kind: KindRecord, MessageID: "1", Time: publishTime, Data: []byte("x")},
		{Kind: KindRecord, MessageID: strings.Repeat("2", 2000), Time: publishTime, Data: []byte("x")},
		{Kind: KindOutput, MessageID: "3", Time: publishTime, Data: make([]byte, 10_000_000)},
		{Kind: KindRecord, MessageID: "4", Time: publishTime, Data: []byte("x")},
	}
	err := p.Put(t.Context(), letters)
	if err == nil || !strings.Contains(err.Error(), "2 of them failed: a dead letter cannot be published: its attribute messageId has 2000 bytes") {
		t.Errorf("%v", err)
	}
	if published, outstanding := p.Stats(); published != 2 || outstanding != 0 || len(srv.Messages()) != 2 {
		t.Errorf("published %d, outstanding %d, stored %d", published, outstanding, len(srv.Messages()))
	}
}
