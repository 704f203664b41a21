package deadletter

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// held is a Pub/Sub that keeps every Publish waiting until release closes.
type held struct {
	pubsubpb.UnimplementedPublisherServer
	release chan struct{}

	mu      sync.Mutex
	arrived int
}

func (h *held) Publish(_ context.Context, r *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	h.mu.Lock()
	h.arrived += len(r.Messages)
	h.mu.Unlock()
	<-h.release
	return &pubsubpb.PublishResponse{MessageIds: make([]string, len(r.Messages))}, nil
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.arrived
}

// connect returns a client of the server, in memory, and what ends both.
func (h *held) connect(t *testing.T) (*pubsub.Client, func()) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	pubsubpb.RegisterPublisherServer(s, h)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ends with Stop
	conn, err := grpc.NewClient("passthrough:///held", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "p", option.WithGRPCConn(conn), option.WithTelemetryDisabled())
	if err != nil {
		t.Fatal(err)
	}
	return client, func() { _ = client.Close(); _ = conn.Close(); s.Stop(); serving.Wait() }
}

// No more letters are under way than may be outstanding, however many there are and
// however long it takes; the others follow as those are stored.
//
// covers: FAIL-16
func TestOutstandingLettersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{release: make(chan struct{})}
		client, end := h.connect(t)
		defer end()
		p := NewPublisher(client.Publisher("letters"))
		letters := make([]Letter, 3*maxOutstanding)
		for i := range letters {
			letters[i] = Letter{Kind: KindRecord, MessageID: fmt.Sprint(i), Time: publishTime, Data: []byte("x")}
		}
		done := make(chan error, 1)
		go func() { done <- p.Put(t.Context(), letters) }()
		time.Sleep(time.Second) // far less than a publish may take
		synctest.Wait()
		if _, outstanding := p.Stats(); h.count() != maxOutstanding || outstanding != int64(len(letters)) {
			t.Errorf("%d letters are under way, of %d that wait; want %d", h.count(), outstanding, maxOutstanding)
		}
		close(h.release)
		if err := <-done; err != nil || h.count() != len(letters) {
			t.Errorf("%d letters are stored, %v", h.count(), err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A publish that is never answered ends after a minute, with an error.
//
// covers: FAIL-16, FAIL-18
func TestAPublishThatIsNotAnsweredEndsInAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{release: make(chan struct{})}
		client, end := h.connect(t)
		defer end()
		p := NewPublisher(client.Publisher("letters"))
		start := time.Now()
		err := p.Put(t.Context(), []Letter{{Kind: KindRecord, Time: publishTime, Data: []byte("x")}})
		if took := time.Since(start); err == nil || took < time.Minute || took > 61*time.Second {
			t.Errorf("%v after %s", err, took)
		}
		close(h.release)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The topic must exist: nothing makes it, and the error names it.
//
// covers: FAIL-16
func TestTheTopicMustExist(t *testing.T) {
	p, srv := publisher(t, false)
	err := p.Put(t.Context(), []Letter{{Kind: KindRecord, Time: publishTime, Data: []byte("x")}})
	if err == nil || !strings.Contains(err.Error(), "projects/p/topics/letters") || len(srv.Messages()) != 0 {
		t.Errorf("%v", err)
	}
}
