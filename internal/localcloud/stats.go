package localcloud

import (
	"context"
	"sync"
)

// Counts of a push subscription since it was created.
type Counts struct {
	Published int64 // messages published to its topic
	Delivered int64 // requests answered or given up
	Acked     int64 // messages acknowledged
	Refused   int64 // requests answered with anything else, or not at all
	Forwarded int64 // messages moved to the dead-letter topic
	Expired   int64 // messages dropped at the end of their retention
}

// Settled is how many messages will not be delivered again.
func (n Counts) Settled() int64 { return n.Acked + n.Forwarded + n.Expired }

// stats are counts that can be waited for.
type stats struct {
	mu      sync.Mutex
	counts  Counts
	changed chan struct{} // nil while nobody waits
}

func (s *stats) update(change func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.counts)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// read returns the counts and a channel that closes at the next change.
func (s *stats) read() (Counts, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.counts, s.changed
}

func (s *stats) wait(ctx context.Context, until func(Counts) bool) error {
	for {
		counts, changed := s.read()
		if until(counts) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
