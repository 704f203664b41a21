package relay

import (
	"context"
	"sync"
	"time"
)

// queue is the batch that is being filled: one goroutine puts, another takes. With the
// batch under way and the one unit that did not fit, it is all that is held.
type queue[U any] struct {
	maxRows  int
	maxBytes int64
	size     func(U) Size
	memory   *share

	mu    sync.Mutex
	batch []U
	spare []U // of an earlier batch, to fill again
	bytes int64
	ended bool
	err   error // of the source, once ended

	some  chan struct{} // holds one: there is a unit, or the source has ended
	full  chan struct{} // holds one: the batch needs no more
	taken chan struct{} // holds one: there is room again
}

func newQueue[U any](maxRows int, maxBytes int64, size func(U) Size, memory *share) *queue[U] {
	return &queue[U]{
		maxRows: maxRows, maxBytes: maxBytes, size: size, memory: memory,
		some: make(chan struct{}, 1), full: make(chan struct{}, 1), taken: make(chan struct{}, 1),
	}
}

// put adds a unit once it fits, and reports whether it did before ctx ended.
func (q *queue[U]) put(ctx context.Context, u U) bool {
	size := q.size(u)
	// If there is no room, the batch at hand is sent at once, which makes room.
	if !q.memory.acquire(ctx, size.Bytes, func() { signal(q.full) }) {
		return false
	}
	for !q.add(u, size) {
		select {
		case <-q.taken:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (q *queue[U]) add(u U, size Size) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batch) > 0 && (len(q.batch) >= q.maxRows || q.bytes+size.Bytes > q.maxBytes) {
		signal(q.full)
		return false
	}
	q.batch, q.bytes = append(q.batch, u), q.bytes+size.Bytes
	if len(q.batch) == 1 {
		signal(q.some)
	}
	if q.isFull() {
		signal(q.full)
	}
	return true
}

func (q *queue[U]) isFull() bool { return len(q.batch) >= q.maxRows || q.bytes >= q.maxBytes }

// finish says that the source has ended.
func (q *queue[U]) finish(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended, q.err = true, err
	signal(q.some)
	signal(q.full)
}

// take returns the next batch: full, or as it is after linger, or empty if wake
// comes first. It reports false if the source has ended and nothing is left, or ctx
// has ended.
func (q *queue[U]) take(ctx context.Context, linger time.Duration, wake <-chan time.Time) ([]U, bool) {
	select {
	case <-q.some:
	case <-wake:
		return nil, true
	case <-ctx.Done():
		return nil, false
	}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-q.full:
	case <-timer.C:
	case <-ctx.Done():
		return nil, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.batch
	q.batch, q.spare, q.bytes = q.spare, nil, 0
	unsignal(q.full)
	if q.ended {
		signal(q.some)
		signal(q.full)
	}
	signal(q.taken)
	return batch, len(batch) > 0
}

// recycle takes back the space of a batch that is done with and cleared.
func (q *queue[U]) recycle(batch []U) {
	q.mu.Lock()
	q.spare = batch[:0]
	q.mu.Unlock()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func unsignal(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
