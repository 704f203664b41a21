package localcloud

import (
	"container/heap"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

const (
	// longestDeadline is the longest ack deadline that Pub/Sub has.
	longestDeadline = 600 * time.Second
	// Requests under way: how many to begin with, and at most (which is also
	// what an instance of Cloud Run takes at most).
	firstWindow   = 3
	largestWindow = 1000
)

// Push describes a push subscription.
type Push struct {
	// ID and Topic are named without the project.
	ID, Topic string
	// Endpoint is the URL that messages are sent to, or Handler what the Cloud
	// serves over HTTP for them: one of the two.
	Endpoint string
	Handler  http.Handler
	// AckDeadline is how long a request may take. Required.
	AckDeadline time.Duration
	// MinBackoff and MaxBackoff bound the wait before a message is sent again:
	// it doubles with every refusal. Required.
	MinBackoff, MaxBackoff time.Duration
	// MaxAttempts is after how many refusals a message is forwarded to
	// DeadLetterTopic; 0 means never.
	MaxAttempts     int
	DeadLetterTopic string
	// Retention is the age at which a message is dropped. Required.
	Retention time.Duration
	// Ordered sends messages of one ordering key one after the other, in the
	// order in which they were published.
	Ordered bool
}

// PushOf returns the push subscription that is deployed as s, without its endpoint.
func PushOf(s *lint.Subscription) Push {
	return Push{
		ID: s.ID, Topic: s.Topic, AckDeadline: time.Duration(s.AckDeadline),
		MinBackoff: time.Duration(s.MinBackoff), MaxBackoff: time.Duration(s.MaxBackoff),
		MaxAttempts: s.MaxAttempts, DeadLetterTopic: s.DeadLetterTopic, Retention: time.Duration(s.Retention), Ordered: s.Ordered,
	}
}

// Subscription delivers to one endpoint until its Cloud is closed.
type Subscription struct {
	cloud *Cloud
	p     Push
	name  string // full
	url   string
	stats stats
	ended chan outcome
	wake  chan struct{} // holds one; the inbox is not empty

	mu    sync.Mutex
	inbox []*pubsubpb.PubsubMessage // published, not yet the dispatcher's

	// The dispatcher's own.
	ready    []*delivery
	delayed  dueFirst
	keys     map[string][]*delivery // of an ordered subscription: not settled, in order
	inFlight int
	window   int
}

// delivery is a message on its way.
type delivery struct {
	message push.Message
	refused int
	due     time.Time
}

// CreatePush makes a push subscription and starts to deliver what is published
// to its topic from now on.
func (c *Cloud) CreatePush(ctx context.Context, p Push) (*Subscription, error) {
	topics := []string{p.Topic}
	if p.MaxAttempts > 0 {
		topics = append(topics, p.DeadLetterTopic)
	}
	for _, id := range topics {
		_, err := pubsubpb.NewPublisherClient(c.conn).GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: c.topic(id)})
		if err != nil {
			return nil, fmt.Errorf("creating subscription %s: topic %s: %w", p.ID, id, err)
		}
	}
	s := &Subscription{
		cloud: c, p: p, name: c.subscription(p.ID), url: p.Endpoint,
		ended: make(chan outcome), wake: make(chan struct{}, 1),
		keys: map[string][]*delivery{}, window: firstWindow,
	}
	if p.Handler != nil {
		var err error
		if s.url, err = c.web.serve(p.Handler); err != nil {
			return nil, err
		}
	}
	if err := c.addPush(s); err != nil {
		return nil, err
	}
	c.dispatchers.Go(s.run)
	return s, nil
}

// Counts returns the counts of this moment.
func (s *Subscription) Counts() Counts {
	counts, _ := s.stats.read()
	return counts
}

// Wait returns when until says so of the counts; it is asked at every change.
// Where ctx ends first, the error is its cause.
func (s *Subscription) Wait(ctx context.Context, until func(Counts) bool) error {
	if err := s.stats.wait(ctx, until); err != nil {
		return fmt.Errorf("waiting for subscription %s: %w", s.p.ID, err)
	}
	return nil
}

// Idle waits until every message published so far is settled.
func (s *Subscription) Idle(ctx context.Context) error {
	return s.Wait(ctx, func(n Counts) bool { return n.Settled() >= n.Published })
}

// enqueue takes over published messages.
func (s *Subscription) enqueue(messages []*pubsubpb.PubsubMessage) {
	s.stats.update(func(n *Counts) { n.Published += int64(len(messages)) })
	s.mu.Lock()
	s.inbox = append(s.inbox, messages...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // the dispatcher will look anyway
	}
}

// run is the dispatcher: it alone decides what is sent when.
func (s *Subscription) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	running := s.cloud.running
	for running.Err() == nil {
		s.send()
		if len(s.delayed) > 0 {
			timer.Reset(time.Until(s.delayed[0].due))
		}
		select {
		case <-s.wake:
			s.accept()
		case o := <-s.ended:
			s.settle(o)
		case <-timer.C:
			s.resume(time.Now())
		case <-running.Done():
		}
	}
	for s.inFlight > 0 {
		s.settle(<-s.ended)
	}
}

// accept readies what is new, or puts it behind the others of its key.
func (s *Subscription) accept() {
	s.mu.Lock()
	messages := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	for _, m := range messages {
		d := &delivery{message: received(m)}
		d.message.Subscription = s.name
		if !s.isOrdered(d) {
			s.ready = append(s.ready, d)
			continue
		}
		key := d.message.OrderingKey
		s.keys[key] = append(s.keys[key], d)
		if len(s.keys[key]) == 1 {
			s.ready = append(s.ready, d)
		}
	}
}

func (s *Subscription) isOrdered(d *delivery) bool {
	return s.p.Ordered && d.message.OrderingKey != ""
}

// send starts as many requests as the window allows.
func (s *Subscription) send() {
	for len(s.ready) > 0 && s.inFlight < s.window {
		d := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		if time.Since(d.message.PublishTime) > s.p.Retention {
			s.stats.update(func(n *Counts) { n.Expired++ })
			s.next(d)
			continue
		}
		s.inFlight++
		s.cloud.dispatchers.Go(func() { s.ended <- s.deliver(d) })
	}
}

// settle acts on a delivery's outcome. The window grows by one with every
// success, so that it doubles from one round of requests to the next, and
// halves with every refusal.
func (s *Subscription) settle(o outcome) {
	s.inFlight--
	switch {
	case o.acked:
		s.window = min(s.window+1, largestWindow)
		s.stats.update(func(n *Counts) { n.Delivered++; n.Acked++ })
		s.next(o.delivery)
	case o.forwarded:
		s.window = max(s.window/2, 1)
		s.stats.update(func(n *Counts) { n.Delivered++; n.Refused++; n.Forwarded++ })
		s.next(o.delivery)
	default:
		s.window = max(s.window/2, 1)
		o.delivery.refused++
		o.delivery.due = time.Now().Add(s.p.backoff(o.delivery.refused))
		heap.Push(&s.delayed, o.delivery)
		s.stats.update(func(n *Counts) { n.Delivered++; n.Refused++ })
	}
}

// backoff is the wait after the given number of refusals.
func (p Push) backoff(refused int) time.Duration {
	wait := p.MinBackoff
	for range refused - 1 {
		if wait >= p.MaxBackoff {
			break
		}
		wait *= 2
	}
	return min(wait, p.MaxBackoff)
}

// next readies the message behind one that is settled.
func (s *Subscription) next(d *delivery) {
	if !s.isOrdered(d) {
		return
	}
	key := d.message.OrderingKey
	rest := s.keys[key][1:]
	if len(rest) == 0 {
		delete(s.keys, key)
		return
	}
	s.keys[key] = rest
	s.ready = append(s.ready, rest[0])
}

// resume readies what has waited long enough.
func (s *Subscription) resume(now time.Time) {
	for len(s.delayed) > 0 && !s.delayed[0].due.After(now) {
		s.ready = append(s.ready, heap.Pop(&s.delayed).(*delivery))
	}
}

// dueFirst is a heap.
type dueFirst []*delivery

func (h dueFirst) Len() int           { return len(h) }
func (h dueFirst) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueFirst) Push(x any)        { *h = append(*h, x.(*delivery)) }
func (h *dueFirst) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return d
}
