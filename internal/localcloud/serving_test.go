package localcloud

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exhausted is what Accept says where a process has all the files that it may have.
type exhausted struct{ error }

func (exhausted) Temporary() bool { return true }

// failingListener fails before it accepts.
type failingListener struct {
	net.Listener
	failures int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, exhausted{errors.New("too many open files")}
	}
	return l.Listener.Accept()
}

func TestAPortGoesOnAcceptingWhenFilesWereShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := newPipeListener("local")
		s := newSplitter(&failingListener{pipes, 3})
		ended := make(chan error, 1)
		go func() { ended <- s.run() }()
		client, err := pipes.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = client.Write([]byte("GET /")) }()
		conn, err := s.http1.Accept()
		if err != nil {
			t.Fatalf("%v; the port has ended with %v", err, <-ended)
		}
		if err := errors.Join(conn.Close(), client.Close(), pipes.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsHeldIsLookedAtOnceHoweverOftenItsTimeChanges(t *testing.T) {
	p := newPull(&pubsubpb.Subscription{}, time.Minute, DefaultBacklog, func() {})
	now := time.Unix(1e9, 0)
	w := &waiting{message: &pubsubpb.PubsubMessage{}}
	p.hold(w, &consumer{deadline: time.Minute}, now)
	for range 1000 {
		for _, d := range []time.Duration{600 * time.Second, 10 * time.Second} {
			p.modify([]string{w.ackID}, d, now)
		}
		now = now.Add(time.Second)
		p.expire(now)
	}
	if n := len(p.expires); n > 2 {
		t.Errorf("one message is waited for %d times", n)
	}
	if p.expire(now.Add(10 * time.Second)); len(p.held) != 0 {
		t.Error("it is held when its time is over")
	}
}

func TestAfterStopWhatWasPublishedBeforeIsNotSent(t *testing.T) {
	c, err := New(Options{Project: "my-project", InMemory: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	for range 100 { // where two things are to be done, chance decides which is first
		s := &Subscription{
			cloud: c, url: "http://nowhere.local/", ended: make(chan outcome), wake: make(chan struct{}, 1), window: firstWindow,
			p: Push{AckDeadline: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Second, Retention: time.Hour},
		}
		s.enqueue([]*pubsubpb.PubsubMessage{{PublishTime: timestamppb.Now()}})
		if s.run(); s.Counts().Delivered > 0 {
			t.Fatal("it was sent")
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
