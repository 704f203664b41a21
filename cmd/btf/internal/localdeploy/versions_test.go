package localdeploy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// versionOf answers with a status once it is free to.
func versionOf(status int, free <-chan struct{}, close func() error) release {
	return release{close: close, handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-free
		w.WriteHeader(status)
	})}
}

func get(v *versions) int {
	w := httptest.NewRecorder()
	v.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	return w.Code
}

func TestARequestEndsInTheVersionItBeganIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{grace: time.Minute}
		if got := get(v); got != http.StatusServiceUnavailable {
			t.Errorf("before the first version: %d", got)
		}
		free1, free := make(chan struct{}), make(chan struct{})
		close(free)
		var closed []int
		began := time.Now()
		v.replace(versionOf(201, free1, func() error { closed = append(closed, 1); return nil }))
		first := make(chan int, 1)
		go func() { first <- get(v) }()
		synctest.Wait()
		v.replace(versionOf(202, free, func() error { closed = append(closed, 2); return errors.New("second") }))
		if got := get(v); got != 202 {
			t.Errorf("a new request: %d", got)
		}
		synctest.Wait()
		if len(closed) != 0 {
			t.Errorf("closed %v while a request is under way", closed)
		}
		close(free1)
		if got := <-first; got != 201 {
			t.Errorf("the request under way: %d", got)
		}
		synctest.Wait()
		if len(closed) != 1 || closed[0] != 1 {
			t.Errorf("closed %v when the last request of the first has ended", closed)
		}
		if err := v.close(); err == nil || err.Error() != "second" {
			t.Errorf("closing: %v", err)
		}
		if len(closed) != 2 || !time.Now().Equal(began) {
			t.Errorf("closed %v after %v", closed, time.Since(began))
		}
		if got := get(v); got != http.StatusServiceUnavailable {
			t.Errorf("after the end: %d", got)
		}
	})
}

func TestAVersionIsClosedWhenItsGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{grace: time.Minute}
		free := make(chan struct{})
		began := time.Now()
		v.replace(versionOf(201, free, func() error { close(free); return nil }))
		first := make(chan int, 1)
		go func() { first <- get(v) }()
		synctest.Wait()
		if err := v.close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("closed after %v", took)
		}
		<-first
	})
}

func TestAVersionIsToldToStopWhenItIsReplacedAndWhenAllEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{grace: time.Minute}
		free := make(chan struct{})
		first := versionOf(201, free, func() error { return nil })
		first.stop = func() { close(free) }
		v.replace(first)
		long := make(chan int, 1)
		go func() { long <- get(v) }()
		synctest.Wait()
		began, stopped := time.Now(), false
		second := versionOf(202, free, func() error { return nil })
		second.stop = func() { stopped = true }
		v.replace(second)
		if got := <-long; got != 201 || !time.Now().Equal(began) {
			t.Errorf("answer %d after %v", got, time.Since(began))
		}
		if v.stop(); !stopped {
			t.Error("the newest was not told")
		}
		if err := v.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestInstancesTakeRequestsInTurnAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make(pool, 2)
		free := make(chan struct{})
		var mu sync.Mutex
		var took []int
		for i := range cap(p) {
			p <- http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				took = append(took, i)
				mu.Unlock()
				<-free
			})
		}
		for range 5 {
			go p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
		}
		synctest.Wait()
		if len(took) != 2 || took[0] == took[1] {
			t.Errorf("%v were taken while both are busy", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)); w.Code != http.StatusTooManyRequests {
			t.Errorf("one that does not wait gets %d", w.Code)
		}
		close(free)
		synctest.Wait()
		if len(took) != 5 || len(p) != 2 {
			t.Errorf("%v were taken, %d instances are free", took, len(p))
		}
	})
}
