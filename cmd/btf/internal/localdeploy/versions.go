package localdeploy

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// versions serves each request by the newest version of a function. A version that is
// replaced is told to stop, and closed when its last request has ended or when grace is
// over: what it then refuses comes again, to its successor.
type versions struct {
	grace time.Duration

	mu      sync.Mutex
	current *version // nil before the first and after close: requests get 503
	closing sync.WaitGroup
	failed  error // of closing those that are replaced
}

// release is one version of a function, to be served.
type release struct {
	handler http.Handler
	// stop asks for an early end of the requests under way; it returns at once. nil:
	// they are short.
	stop  func()
	close func() error
}

type version struct {
	release
	requests int
	replaced bool
	idle     chan struct{} // closed when replaced and without requests
}

func (v *versions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	current := v.enter()
	if current == nil {
		http.Error(w, "not serving", http.StatusServiceUnavailable)
		return
	}
	defer v.leave(current)
	current.handler.ServeHTTP(w, r)
}

func (v *versions) enter() *version {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != nil {
		v.current.requests++
	}
	return v.current
}

func (v *versions) leave(of *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of.requests--
	of.checkIdle()
}

func (of *version) checkIdle() {
	if of.replaced && of.requests == 0 {
		close(of.idle)
	}
}

func (of *version) end() {
	if of.stop != nil {
		of.stop()
	}
}

// replace serves requests by r from now on.
func (v *versions) replace(r release) {
	v.swap(&version{release: r, idle: make(chan struct{})})
}

func (v *versions) swap(next *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.current
	v.current = next
	if old == nil {
		return
	}
	old.end()
	old.replaced = true
	old.checkIdle()
	v.closing.Go(func() { v.retire(old) })
}

func (v *versions) retire(old *version) {
	timer := time.NewTimer(v.grace)
	defer timer.Stop()
	select {
	case <-old.idle:
	case <-timer.C:
	}
	if err := old.close(); err != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.failed = errors.Join(v.failed, err)
	}
}

// stop asks for an early end of the requests under way.
func (v *versions) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != nil {
		v.current.end()
	}
}

// close ends the newest version and waits for all.
func (v *versions) close() error {
	v.swap(nil)
	v.closing.Wait()
	return v.failed
}
