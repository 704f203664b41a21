package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// answering answers with a status once released.
func answering(status int, release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(status)
	})
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
		release, free := make(chan struct{}), make(chan struct{})
		close(free)
		var closed []int
		began := time.Now()
		v.replace(answering(201, release), func() error { closed = append(closed, 1); return nil })
		first := make(chan int, 1)
		go func() { first <- get(v) }()
		synctest.Wait()
		v.replace(answering(202, free), func() error { closed = append(closed, 2); return errors.New("second") })
		if got := get(v); got != 202 {
			t.Errorf("a new request: %d", got)
		}
		synctest.Wait()
		if len(closed) != 0 {
			t.Errorf("closed %v while a request is under way", closed)
		}
		close(release)
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
		release := make(chan struct{})
		began := time.Now()
		v.replace(answering(201, release), func() error { close(release); return nil })
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
