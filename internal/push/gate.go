package push

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// DrainSeconds is how long a Cloud Run instance may take from SIGTERM until
// what is in flight must have finished: it is killed ten seconds after the
// signal, and the last second is for flushing telemetry.
const DrainSeconds = 9

// Gate lets requests through until it is drained. The zero value is open. One
// Gate may wrap several handlers.
type Gate struct {
	mu       sync.Mutex
	inFlight int
	idle     chan struct{} // not nil once draining; closed when nothing is in flight
}

// Wrap returns h behind the gate. Once Drain has begun every new request is
// refused with 503, and its connection closed so that the caller goes
// elsewhere.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.enter() {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer g.leave()
		h.ServeHTTP(w, r)
		// The reply must be on its way before Drain may end the process: what it
		// acknowledges would be delivered again. Where it cannot be sent nobody reads it.
		_ = http.NewResponseController(w).Flush()
	})
}

// Drain closes the gate for good and waits for the requests in flight. It
// fails, saying how many are left, when ctx ends first; give it a context of
// DrainSeconds.
func (g *Gate) Drain(ctx context.Context) error {
	g.mu.Lock()
	if g.idle == nil {
		g.idle = make(chan struct{})
		if g.inFlight == 0 {
			close(g.idle)
		}
	}
	idle := g.idle
	g.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight == 0 {
		return nil
	}
	return fmt.Errorf("draining: %d requests still in flight: %w", g.inFlight, context.Cause(ctx))
}

func (g *Gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		return false
	}
	g.inFlight++
	return true
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if g.inFlight == 0 && g.idle != nil {
		close(g.idle)
	}
}
