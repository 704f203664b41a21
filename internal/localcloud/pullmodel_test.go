package localcloud

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

// pullModel is what a subscription must look like from outside.
type pullModel struct {
	pull      *pull
	now       time.Time
	consumers []*consumer
	keys      []string         // of each message
	held      map[string]lease // by ack id
	settled   []bool           // acknowledged, at least once
}

type lease struct {
	message int
	until   time.Time
	by      *consumer
}

func newPullModel(ordered bool) *pullModel {
	m := &pullModel{now: time.Unix(1e9, 0), held: map[string]lease{}}
	m.pull = newPull(&pubsubpb.Subscription{EnableMessageOrdering: ordered, MessageRetentionDuration: durationpb.New(1000 * time.Hour)}, time.Minute, DefaultBacklog, func() {})
	for i := range 3 {
		m.consumers = append(m.consumers, &consumer{maxMessages: 2 * i, deadline: time.Minute})
	}
	return m
}

func (m *pullModel) publish(key string) {
	m.pull.enqueue([]*pubsubpb.PubsubMessage{{
		Data: fmt.Append(nil, len(m.keys)), OrderingKey: key, PublishTime: timestamppb.New(m.now),
	}})
	m.keys, m.settled = append(m.keys, key), append(m.settled, false)
}

// ordered is the key of a message; empty where it has none that counts.
func (m *pullModel) ordered(i int) string {
	if !m.pull.proto.EnableMessageOrdering {
		return ""
	}
	return m.keys[i]
}

func (m *pullModel) isHeld(i int) bool {
	for _, l := range m.held {
		if l.message == i {
			return true
		}
	}
	return false
}

func (m *pullModel) take(t *rapid.T, c *consumer, limit int) []string {
	var ids []string
	got, _ := m.pull.take(c, limit, m.now)
	for _, r := range got {
		var i int
		if _, err := fmt.Sscan(string(r.Message.Data), &i); err != nil {
			t.Fatal(err)
		}
		if m.isHeld(i) {
			t.Fatalf("message %d is held and comes again", i)
		}
		for j := range i {
			if key := m.ordered(i); key != "" && key == m.ordered(j) && !m.isHeld(j) && !m.settled[j] {
				t.Fatalf("message %d comes before %d, of the same key", i, j)
			}
		}
		m.held[r.AckId] = lease{i, m.now.Add(c.deadline), c}
		ids = append(ids, r.AckId)
	}
	holds := 0
	for _, l := range m.held {
		if l.by == c {
			holds++
		}
	}
	if c.maxMessages > 0 && holds > c.maxMessages || len(got) > limit {
		t.Fatalf("a consumer holds %d of at most %d, after taking %d of at most %d", holds, c.maxMessages, len(got), limit)
	}
	return ids
}

// giveBack ends a lease, and with it those of its key that are behind it, which are to be
// acknowledged again.
func (m *pullModel) giveBack(id string) {
	l, ok := m.held[id]
	if !ok {
		return
	}
	delete(m.held, id)
	if m.ordered(l.message) == "" {
		return
	}
	for other, o := range m.held {
		if o.message > l.message && m.ordered(o.message) == m.ordered(l.message) {
			delete(m.held, other)
		}
	}
	for i := l.message + 1; i < len(m.keys); i++ {
		if m.ordered(i) == m.ordered(l.message) {
			m.settled[i] = false
		}
	}
}

func (m *pullModel) acknowledge(id string) {
	if l, ok := m.held[id]; ok {
		delete(m.held, id)
		m.settled[l.message] = true
	}
	m.pull.acknowledge([]string{id})
}

func (m *pullModel) advance(d time.Duration) {
	m.now = m.now.Add(d)
	m.pull.expire(m.now)
	var over []string
	for id, l := range m.held {
		if !l.until.After(m.now) {
			over = append(over, id)
		}
	}
	for _, id := range over {
		m.giveBack(id)
	}
}

// anID draws an ack id of now or of before.
func (m *pullModel) anID(t *rapid.T, all []string) string {
	return rapid.SampledFrom(append(slices.Clone(all), "none")).Draw(t, "id")
}

func TestASubscriptionLosesNothingAndKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newPullModel(rapid.Bool().Draw(t, "ordered"))
		var all []string
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) { m.publish(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")) },
			"take": func(t *rapid.T) {
				c := rapid.SampledFrom(m.consumers).Draw(t, "consumer")
				all = append(all, m.take(t, c, rapid.IntRange(1, 5).Draw(t, "limit"))...)
			},
			"acknowledge": func(t *rapid.T) { m.acknowledge(m.anID(t, all)) },
			"refuse": func(t *rapid.T) {
				id := m.anID(t, all)
				m.pull.modify([]string{id}, 0, m.now)
				m.giveBack(id)
			},
			"prolong": func(t *rapid.T) {
				id, d := m.anID(t, all), time.Duration(rapid.IntRange(1, 600).Draw(t, "seconds"))*time.Second
				m.pull.modify([]string{id}, d, m.now)
				if l, ok := m.held[id]; ok {
					l.until = m.now.Add(d)
					m.held[id] = l
				}
			},
			"wait": func(t *rapid.T) { m.advance(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second) },
		})
		for range len(m.keys) + 1 {
			m.advance(time.Hour)
			for ids := m.take(t, m.consumers[0], 1000); len(ids) > 0; ids = m.take(t, m.consumers[0], 1000) {
				for _, id := range ids {
					m.acknowledge(id)
				}
			}
		}
		for i, settled := range m.settled {
			if !settled {
				t.Errorf("message %d is lost", i)
			}
		}
		if len(m.pull.ready)+len(m.pull.held)+len(m.pull.keys) > 0 {
			t.Errorf("left: %d ready, %d held, %d keys", len(m.pull.ready), len(m.pull.held), len(m.pull.keys))
		}
		if m.pull.bytes != 0 {
			t.Errorf("%d bytes are said to wait", m.pull.bytes)
		}
		for _, c := range m.consumers {
			if c.messages != 0 || c.bytes != 0 {
				t.Errorf("a consumer counts %d messages, %d bytes", c.messages, c.bytes)
			}
		}
	})
}
