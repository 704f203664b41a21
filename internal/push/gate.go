package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Cloud Run kills an instance ten seconds after SIGTERM. Until then what is in flight
// finishes, within DrainPatience of its own accord and within DrainTime in all; the rest
// is for closing connections and flushing telemetry.
const (
	DrainPatience = 7 * time.Second
	DrainTime     = 8 * time.Second
)

// Gate lets requests through until it is drained. The zero value is open. One
// Gate may wrap several handlers.
type Gate struct {
	mu       sync.Mutex
	inFlight map[*request]struct{}
	idle     chan struct{} // not nil once draining; closed when nothing is in flight
}

// request is one in flight.
type request struct{ cancel context.CancelCauseFunc }

// ErrStopping is the cause that ends the context of a request which a drain cannot wait
// for any longer.
var ErrStopping = errors.New("the instance is stopping")

// Wrap returns h behind the gate. Once Drain has begun every new request is
// refused with 503, and its connection closed so that the caller goes
// elsewhere.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		q := &request{cancel}
		if !g.enter(q) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer g.leave(q)
		h.ServeHTTP(w, r.WithContext(ctx))
		// The reply must be on its way before Drain may end the process: what it
		// acknowledges would be delivered again. Where it cannot be sent nobody reads it.
		_ = http.NewResponseController(w).Flush()
	})
}

// Drain closes the gate for good and waits for the requests in flight. Those that have
// not ended after patience are told to, by their contexts. It fails, saying how many are
// left, when ctx ends first.
func (g *Gate) Drain(ctx context.Context, patience time.Duration) error {
	idle := g.shut()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	g.hurry()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inFlight) == 0 {
		return nil
	}
	return fmt.Errorf("draining: %d requests still in flight: %w", len(g.inFlight), context.Cause(ctx))
}

// shut lets nobody in any more.
func (g *Gate) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == nil {
		g.idle = make(chan struct{})
		if len(g.inFlight) == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

// hurry ends the contexts of what is in flight.
func (g *Gate) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for q := range g.inFlight {
		q.cancel(ErrStopping)
	}
}

func (g *Gate) enter(q *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		return false
	}
	if g.inFlight == nil {
		g.inFlight = map[*request]struct{}{}
	}
	g.inFlight[q] = struct{}{}
	return true
}

func (g *Gate) leave(q *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inFlight, q)
	if len(g.inFlight) == 0 && g.idle != nil {
		close(g.idle)
	}
}
