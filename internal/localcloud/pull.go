package localcloud

import (
	"container/heap"
	"fmt"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

// pull is a subscription to pull from: messages wait, oldest first, are held by a consumer
// for a time, and come again where they were refused or the time is over. It knows
// nothing of gRPC.
type pull struct {
	proto    *pubsubpb.Subscription // as made; read only
	deadline time.Duration          // of a Pull
	serial   int                    // of the subscription in its Cloud, so that no ack id is another's
	gone     chan struct{}          // closed when it is deleted
	wake     chan struct{}          // holds one; a deadline is sooner than all others

	most    int    // bytes that may wait
	dropped func() // is called when the first message is dropped since a consumer took one

	mu      sync.Mutex
	number  uint64 // of the newest message
	bytes   int    // of what waits: not held and not settled
	drops   bool   // messages have been dropped since a consumer took one
	ready   oldestFirst
	held    map[string]*waiting // by ack id
	expires soonestFirst
	keys    map[string]*keyed // of an ordered subscription: what is not settled
	changed chan struct{}     // closes when there may be more to take; nil while nobody waits
}

// waiting is a message that is not settled. All but the first two change, under the lock.
type waiting struct {
	number     uint64 // grows in the order of publishing
	message    *pubsubpb.PubsubMessage
	deliveries int
	ackID      string // empty while it is not held
	holder     *consumer
	until      time.Time
	looked     time.Time // when what is expected of it is due
	acked      bool      // of a key of which an earlier one is held
}

// keyed are the messages of one ordering key. They are held several at a time, in order
// and by one consumer; the next only when all of these are settled. The first that is not
// held is ready when none is held. Where one comes again, all that were sent after it do,
// acknowledged ones included: clients go on with the next when they have refused one.
// Source: https://docs.cloud.google.com/pubsub/docs/ordering
type keyed struct{ held, behind []*waiting }

// consumer is a stream or one Pull. Zero bounds are none.
type consumer struct {
	maxMessages, maxBytes int
	deadline              time.Duration // how long it holds a message that it says nothing of

	messages, bytes int // held; under the subscription's lock, as is deadline
}

func (c *consumer) mayTake() bool {
	return (c.maxMessages <= 0 || c.messages < c.maxMessages) && (c.maxBytes <= 0 || c.bytes < c.maxBytes)
}

func newPull(proto *pubsubpb.Subscription, deadline time.Duration, most int, dropped func()) *pull {
	return &pull{
		proto: proto, deadline: deadline, most: most, dropped: dropped, gone: make(chan struct{}), wake: make(chan struct{}, 1),
		held: map[string]*waiting{}, keys: map[string]*keyed{},
	}
}

// enqueue takes over published messages.
func (p *pull) enqueue(messages []*pubsubpb.PubsubMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		p.number++
		w := &waiting{number: p.number, message: m}
		p.bytes += footprint(m)
		key := p.key(w)
		if key == "" {
			heap.Push(&p.ready, w)
			continue
		}
		k := p.keys[key]
		if k == nil {
			k = &keyed{}
			p.keys[key] = k
			heap.Push(&p.ready, w)
		}
		k.behind = append(k.behind, w)
	}
	p.trim(messages)
	p.announce()
}

// trim drops messages when new ones have come: those past their retention, and the oldest
// of those that are more than may wait.
func (p *pull) trim(latest []*pubsubpb.PubsubMessage) {
	if len(latest) == 0 {
		return
	}
	now := latest[len(latest)-1].PublishTime.AsTime()
	for len(p.ready) > 0 {
		expired := p.expired(p.ready[0], now)
		if !expired && p.bytes <= p.most {
			return
		}
		if !expired && !p.drops {
			p.drops = true
			p.dropped()
		}
		w := heap.Pop(&p.ready).(*waiting)
		p.bytes -= footprint(w.message)
		if key := p.key(w); key != "" {
			k := p.keys[key]
			k.behind[0] = nil
			k.behind = k.behind[1:]
			p.release(key)
		}
	}
}

func (p *pull) expired(w *waiting, now time.Time) bool {
	return now.Sub(w.message.PublishTime.AsTime()) > p.proto.MessageRetentionDuration.AsDuration()
}

// messageOverhead is about what a message takes in memory beside its content, in bytes.
const messageOverhead = 512

// footprint is about what a message takes in memory, in bytes.
func footprint(m *pubsubpb.PubsubMessage) int { return proto.Size(m) + messageOverhead }

// key is what a message is ordered by; empty where it is not.
func (p *pull) key(w *waiting) string {
	if !p.proto.EnableMessageOrdering {
		return ""
	}
	return w.message.OrderingKey
}

// announce wakes those who wait for a change.
func (p *pull) announce() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// take gives a consumer what it may hold now, at most limit messages; where that is
// nothing, a channel that closes when it may be more.
func (p *pull) take(c *consumer, limit int, now time.Time) ([]*pubsubpb.ReceivedMessage, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &batch{pull: p, consumer: c, limit: limit, now: now}
	for len(p.ready) > 0 && b.isOpen() {
		w := heap.Pop(&p.ready).(*waiting)
		if key := p.key(w); key != "" {
			b.addKeyed(p.keys[key])
			p.release(key)
			continue
		}
		b.add(w)
	}
	if len(b.out) > 0 {
		return b.out, nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return nil, p.changed
}

// batch is what one consumer takes at once.
type batch struct {
	pull     *pull
	consumer *consumer
	limit    int
	now      time.Time
	bytes    int
	out      []*pubsubpb.ReceivedMessage
}

func (b *batch) isOpen() bool {
	return len(b.out) < b.limit && b.bytes < responseBytes && b.consumer.mayTake()
}

// add has the consumer hold a message, unless it is past its retention.
func (b *batch) add(w *waiting) (held bool) {
	b.pull.bytes -= footprint(w.message)
	if b.pull.expired(w, b.now) {
		return false
	}
	b.pull.drops = false
	b.pull.hold(w, b.consumer, b.now)
	b.bytes += size(w)
	b.out = append(b.out, &pubsubpb.ReceivedMessage{AckId: w.ackID, Message: w.message})
	return true
}

func (b *batch) addKeyed(k *keyed) {
	for len(k.behind) > 0 && b.isOpen() {
		w := k.behind[0]
		k.behind[0] = nil
		k.behind = k.behind[1:]
		if b.add(w) {
			k.held = append(k.held, w)
		}
	}
}

// size is what a message counts in the flow control of clients, in bytes.
func size(w *waiting) int { return len(w.message.Data) }

func (p *pull) hold(w *waiting, c *consumer, now time.Time) {
	w.deliveries++
	w.ackID = fmt.Sprintf("%d-%d-%d", p.serial, w.number, w.deliveries)
	w.holder, w.until = c, now.Add(c.deadline)
	c.messages++
	c.bytes += size(w)
	p.held[w.ackID] = w
	p.expect(w)
}

// letGo ends a hold, however it ended.
func (p *pull) letGo(w *waiting) {
	delete(p.held, w.ackID)
	w.holder.messages--
	w.holder.bytes -= size(w)
	w.ackID, w.holder = "", nil
}

// release readies the next of a key when none is held.
func (p *pull) release(key string) {
	k := p.keys[key]
	switch {
	case len(k.held) > 0:
	case len(k.behind) > 0:
		heap.Push(&p.ready, k.behind[0])
	default:
		delete(p.keys, key)
	}
}

// acknowledge settles messages. An id that is not held any more means nothing: its
// message comes again.
func (p *pull) acknowledge(ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		w := p.held[id]
		if w == nil {
			continue
		}
		p.letGo(w)
		if key := p.key(w); key != "" {
			k := p.keys[key]
			for w.acked = true; len(k.held) > 0 && k.held[0].acked; {
				k.held = k.held[1:]
			}
			p.release(key)
		}
	}
	p.announce()
}

// modify holds messages for a time from now; none gives them back.
func (p *pull) modify(ids []string, d time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		w := p.held[id]
		if w == nil {
			continue
		}
		if d == 0 {
			p.giveBack(w)
			continue
		}
		w.until = now.Add(d)
		if w.until.Before(w.looked) { // else it is looked at in time
			p.expect(w)
		}
	}
	p.announce()
}

func (p *pull) setDeadline(c *consumer, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.deadline = d
}

// giveBack readies a message that is held to come again.
func (p *pull) giveBack(w *waiting) {
	key := p.key(w)
	if key == "" {
		p.letGo(w)
		p.bytes += footprint(w.message)
		heap.Push(&p.ready, w)
		return
	}
	k := p.keys[key]
	at := slices.Index(k.held, w)
	for _, after := range k.held[at:] {
		p.bytes += footprint(after.message)
		if !after.acked {
			p.letGo(after)
		}
		after.acked = false
	}
	k.behind = append(slices.Clone(k.held[at:]), k.behind...)
	k.held = k.held[:at:at]
	p.release(key)
}

// expect has run look at a message when its time is over.
func (p *pull) expect(w *waiting) {
	e := expiry{at: w.until, ackID: w.ackID}
	w.looked = e.at
	if len(p.expires) == 0 || e.at.Before(p.expires[0].at) {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	heap.Push(&p.expires, e)
}

// run gives back messages whose time is over, until the subscription is deleted or stop
// closes.
func (p *pull) run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next, any := p.expire(time.Now()); any {
			timer.Reset(time.Until(next))
		}
		select {
		case <-p.wake:
		case <-timer.C:
		case <-p.gone:
			return
		case <-stop:
			return
		}
	}
}

// expire gives back what is due, and says when to look again.
func (p *pull) expire(now time.Time) (next time.Time, any bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	returned := false
	for len(p.expires) > 0 && !p.expires[0].at.After(now) {
		e := heap.Pop(&p.expires).(expiry)
		w := p.held[e.ackID]
		switch {
		case w == nil, !w.looked.Equal(e.at): // settled; expected sooner since
		case w.until.After(now):
			p.expect(w)
		default:
			p.giveBack(w)
			returned = true
		}
	}
	if returned {
		p.announce()
	}
	if len(p.expires) == 0 {
		return time.Time{}, false
	}
	return p.expires[0].at, true
}

// expiry is when to look at a message that is held. It may have been settled by then, or
// its time prolonged.
type expiry struct {
	at    time.Time
	ackID string
}

// soonestFirst is a heap.
type soonestFirst []expiry

func (h soonestFirst) Len() int           { return len(h) }
func (h soonestFirst) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h soonestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *soonestFirst) Push(x any)        { *h = append(*h, x.(expiry)) }
func (h *soonestFirst) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

// oldestFirst is a heap.
type oldestFirst []*waiting

func (h oldestFirst) Len() int           { return len(h) }
func (h oldestFirst) Less(i, j int) bool { return h[i].number < h[j].number }
func (h oldestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *oldestFirst) Push(x any)        { *h = append(*h, x.(*waiting)) }
func (h *oldestFirst) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}
