package push

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// expansion is how many times its body's length a request may take until it is
// answered: a 10 MB message is a 13 MB body, a tree of values, and entries.
const expansion = 7

// admission bounds the memory of all requests under way. First come, first
// served: a large request is not overtaken by small ones for ever.
type admission struct {
	bound int64 // 0: none
	limit int64 // of one body
	wait  time.Duration
	sem   *semaphore.Weighted
}

func newAdmission(bound, limit int64, wait time.Duration) *admission {
	return &admission{bound: bound, limit: limit, wait: wait, sem: semaphore.NewWeighted(bound)}
}

// enter waits until the request's reservation fits beside the others and
// returns what gives it back. It fails when that takes longer than the bound or
// ctx ends.
func (a *admission) enter(ctx context.Context, contentLength int64) (release func(), err error) {
	if a.bound == 0 {
		return func() {}, nil
	}
	n := a.reservation(contentLength)
	if !a.sem.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(ctx, a.wait)
		defer cancel()
		if err := a.sem.Acquire(ctx, n); err != nil {
			return nil, err
		}
	}
	return func() { a.sem.Release(n) }, nil
}

// reservation is in bytes. What is over the cap is not kept, so that its
// reservation is nothing.
func (a *admission) reservation(contentLength int64) int64 {
	switch {
	case contentLength > a.limit:
		return 0
	case contentLength < 0:
		contentLength = a.limit
	}
	return min(contentLength*expansion, a.bound)
}
