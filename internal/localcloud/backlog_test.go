package localcloud_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
)

// backlog runs a test with a subscription that holds 100 KB.
func backlog(t *testing.T, ordered bool, test func(p *puller, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c, err := localcloud.New(localcloud.Options{
			Project: "my-project", InMemory: true, Backlog: 100_000, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		must(t, err)
		p := newPuller(t, c, func(s *pubsubpb.Subscription) { s.EnableMessageOrdering = ordered })
		test(p, &log)
		p.close()
		must(t, c.Close(t.Context()))
	})
}

// large are messages of 10 KB that begin with their number, from first on. They have a
// key, even where the subscription is not ordered, so that they are published in order.
func large(first, n int) []*pubsub.Message {
	var out []*pubsub.Message
	for i := range n {
		m := text(fmt.Sprintf("%03d%s", first+i, strings.Repeat("x", 10_000)))
		m.OrderingKey = "k"
		out = append(out, m)
	}
	return out
}

// all pulls and acknowledges what is there, and returns the numbers.
func (p *puller) all() string {
	p.t.Helper()
	var out []string
	for {
		got := p.pull(1000)
		if len(got) == 0 {
			return strings.Join(out, " ")
		}
		for _, m := range got {
			out = append(out, string(m.Message.Data[:3]))
		}
		p.acknowledge(got...)
	}
}

// A subscription from which nobody pulls keeps the newest messages, and says that it
// drops others; of a key the order stays.
func TestASubscriptionNobodyPullsIsBounded(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		backlog(t, ordered, func(p *puller, log *bytes.Buffer) {
			p.publish(large(0, 200)...)
			if got, want := p.all(), "191 192 193 194 195 196 197 198 199"; got != want {
				p.t.Errorf("ordered %v: left are %s, want %s", ordered, got, want)
			}
			if n := strings.Count(log.String(), "drops the oldest messages"); n != 1 || !strings.Contains(log.String(), outName) {
				p.t.Errorf("ordered %v: the log says it %d times:\n%s", ordered, n, log)
			}
			p.publish(large(0, 200)...)
			if got := p.all(); len(got) != len("191 192 193 194 195 196 197 198 199") {
				p.t.Errorf("ordered %v: left the second time are %s", ordered, got)
			}
			if n := strings.Count(log.String(), "drops the oldest messages"); n != 2 {
				p.t.Errorf("ordered %v: after someone pulled, the log says it %d times in all", ordered, n)
			}
		})
	}
}

// What is held, comes back and is settled counts as long as it waits.
func TestMessagesThatComeBackCountAgain(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		backlog(t, ordered, func(p *puller, log *bytes.Buffer) {
			for range 50 {
				p.publish(large(0, 5)...)
				p.modify(0, p.pull(5)...)
				if got, want := p.all(), "000 001 002 003 004"; got != want {
					p.t.Fatalf("ordered %v: %s, want %s", ordered, got, want)
				}
			}
			if log.Len() > 0 {
				p.t.Errorf("ordered %v:\n%s", ordered, log)
			}
			p.publish(large(0, 8)...)
			held := p.pull(8)
			p.publish(large(8, 8)...)
			p.modify(0, held...)
			p.publish(large(16, 1)...)
			if got := p.all(); !strings.HasSuffix(got, "016") || len(got) != len("008 009 010 011 012 013 014 015 016") {
				p.t.Errorf("ordered %v: left are %s", ordered, got)
			}
		})
	}
}

// What is past its retention goes when something new comes, not only when someone pulls.
func TestExpiredMessagesMakeRoom(t *testing.T) {
	backlog(t, false, func(p *puller, log *bytes.Buffer) {
		for range 20 {
			p.publish(large(0, 9)...)
			time.Sleep(8 * 24 * time.Hour)
		}
		if log.Len() > 0 {
			p.t.Errorf("messages were dropped that had expired before:\n%s", log)
		}
	})
}
