package localcloud

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
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
	p := newPull(&pubsubpb.Subscription{}, time.Minute)
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
