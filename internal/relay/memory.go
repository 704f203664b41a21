package relay

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Memory bounds the bytes of units that all runs which share it hold at a time: read, and
// not yet done with. Each run may hold one unit more, which waits for its room; a unit
// that is larger than all of it waits until nothing else is held. A run whose sink is
// slow keeps its part, and so slows the others down. It is safe for concurrent use.
type Memory struct {
	total int64
	room  *semaphore.Weighted
}

// NewMemory returns a Memory of that many bytes, at least 1.
func NewMemory(bytes int64) *Memory {
	return &Memory{total: bytes, room: semaphore.NewWeighted(bytes)}
}

// share is the part of a Memory that one run holds. If of is nil, nothing is bounded.
type share struct {
	of *Memory

	mu   sync.Mutex
	held int64
}

func (m *Memory) share() *share { return &share{of: m} }

// acquire waits for room, and calls waiting first if there is none yet. It returns false if
// ctx ends before there is room.
func (s *share) acquire(ctx context.Context, bytes int64, waiting func()) bool {
	if s.of == nil {
		return true
	}
	bytes = s.counted(bytes)
	if !s.of.room.TryAcquire(bytes) {
		waiting()
		if s.of.room.Acquire(ctx, bytes) != nil {
			return false
		}
	}
	s.mu.Lock()
	s.held += bytes
	s.mu.Unlock()
	return true
}

// counted is how many bytes of the Memory a unit of that size takes.
func (s *share) counted(bytes int64) int64 {
	if s.of == nil {
		return 0
	}
	return min(bytes, s.of.total)
}

func (s *share) release(bytes int64) {
	if s.of == nil {
		return
	}
	s.mu.Lock()
	s.held -= bytes
	s.mu.Unlock()
	s.of.room.Release(bytes)
}

// close gives back what is left.
func (s *share) close() {
	if s.of != nil && s.held > 0 {
		s.of.room.Release(s.held)
	}
}
