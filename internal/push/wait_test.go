package push_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// begin starts a request and returns where its status will be.
func begin(wg *sync.WaitGroup, h http.Handler, r *http.Request) *int {
	status := new(int)
	wg.Go(func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		*status = w.Code
	})
	synctest.Wait()
	return status
}

// request is an unwrapped delivery of n bytes, or of n bytes without a declared
// length.
func request(n int, declared bool) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", n)))
	r.Header = unwrappedHeader()
	if !declared {
		r.ContentLength = -1
	}
	return r
}

// unreadable fails the test when a body is read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("a body was read before its request was admitted")
	return 0, io.EOF
}

func TestAdmissionBoundsRequestsUnderWayInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		var mu sync.Mutex
		var order []int64
		h := push.Handler(push.Config{Cap: 1000, MaxRequestBytes: 7000, Logger: quiet()},
			func(_ context.Context, d *push.Delivery) error {
				mu.Lock()
				order = append(order, d.Size)
				mu.Unlock()
				<-finish
				return nil
			})
		var wg sync.WaitGroup
		begin(&wg, h, request(600, true))  // 4,200 of 7,000
		begin(&wg, h, request(399, true))  // 2,793
		begin(&wg, h, request(1000, true)) // 7,000: waits
		begin(&wg, h, request(1, true))    // 7 are free, but it does not overtake
		expect := func(when string, want ...int64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(order, want) {
				t.Fatalf("%s: admitted %v, want %v", when, order, want)
			}
		}
		expect("at first", 600, 399)
		finish <- struct{}{}
		expect("with one of two finished", 600, 399)
		finish <- struct{}{}
		expect("with nothing else under way", 600, 399, 1000)
		finish <- struct{}{}
		expect("at last", 600, 399, 1000, 1)
		close(finish)
		wg.Wait()
	})
}

// What does not fit goes alone when it is the oldest, and one without a length reserves
// for what has arrived.
func TestARequestOverTheBoundGoesAloneAndOneWithoutLengthReservesWhatArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for declared, want := range map[bool]int64{true: 1, false: 2} {
			finish := make(chan struct{})
			var running atomic.Int64
			h := push.Handler(push.Config{Cap: 100_000, MaxRequestBytes: 69_000, Logger: quiet()},
				func(context.Context, *push.Delivery) error {
					running.Add(1)
					<-finish
					return nil
				})
			var wg sync.WaitGroup
			n := 10_000 // seven times that is over the bound
			if !declared {
				n = 1
			}
			begin(&wg, h, request(n, declared))
			begin(&wg, h, request(1, true))
			if n := running.Load(); n != want {
				t.Errorf("declared=%t: %d under way, want %d", declared, n, want)
			}
			close(finish)
			wg.Wait()
		}
	})
}

func TestRequestNotAdmittedInTimeIsRefusedUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		h := push.Handler(push.Config{Cap: 1000, MaxRequestBytes: 7000, AdmissionWait: 5 * time.Second, Logger: quiet()},
			func(context.Context, *push.Delivery) error { <-finish; return nil })
		var wg sync.WaitGroup
		first := begin(&wg, h, request(1000, true))

		refused := request(10, true)
		refused.Body = io.NopCloser(unreadable{t})
		start := time.Now()
		second := begin(&wg, h, refused)
		left, cancel := context.WithCancel(t.Context())
		gone := request(10, true).WithContext(left)
		gone.Body = io.NopCloser(unreadable{t})
		begin(&wg, h, gone)
		cancel()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if *second != http.StatusTooManyRequests || time.Since(start) != 5*time.Second {
			t.Errorf("answered %d after %v", *second, time.Since(start))
		}
		close(finish)
		wg.Wait()
		if *first != http.StatusNoContent {
			t.Errorf("the admitted request was answered %d", *first)
		}
		// Everything reserved was given back.
		if third := begin(&wg, h, request(1000, true)); *third != http.StatusNoContent {
			t.Errorf("a later request was answered %d", *third)
		}
		wg.Wait()
	})
}

func TestBudgetEndsTheDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := push.Handler(push.Config{Budget: 270 * time.Second, Logger: quiet()},
			func(ctx context.Context, _ *push.Delivery) error { <-ctx.Done(); return ctx.Err() })
		var wg sync.WaitGroup
		start := time.Now()
		status := begin(&wg, h, request(1, true))
		wg.Wait()
		if *status != http.StatusServiceUnavailable || time.Since(start) != 270*time.Second {
			t.Errorf("answered %d after %v", *status, time.Since(start))
		}
	})
}

func TestGateRefusesNewRequestsAndWaitsForThoseInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate push.Gate
		finish := make(chan struct{})
		h := gate.Wrap(push.Handler(push.Config{Logger: quiet()},
			func(context.Context, *push.Delivery) error { <-finish; return nil }))
		var wg sync.WaitGroup
		inFlight := begin(&wg, h, request(1, true))

		drained := make(chan error, 1)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), push.DrainTime)
			defer cancel()
			drained <- gate.Drain(ctx, push.DrainPatience)
		})
		synctest.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(1, true))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
			t.Errorf("while draining answered %d, Connection %q", w.Code, w.Header().Get("Connection"))
		}
		select {
		case err := <-drained:
			t.Fatalf("drained with a request in flight: %v", err)
		default:
		}
		finish <- struct{}{}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		wg.Wait()
		if *inFlight != http.StatusNoContent {
			t.Errorf("the request in flight was answered %d", *inFlight)
		}
		if err := gate.Drain(t.Context(), push.DrainPatience); err != nil {
			t.Errorf("draining again: %v", err)
		}
	})
}

func TestDrainGivesUpAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate push.Gate
		finish := make(chan struct{})
		h := gate.Wrap(push.Handler(push.Config{Logger: quiet()},
			func(context.Context, *push.Delivery) error { <-finish; return nil }))
		var wg sync.WaitGroup
		begin(&wg, h, request(1, true))
		begin(&wg, h, request(1, true))

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), push.DrainTime)
		defer cancel()
		err := gate.Drain(ctx, push.DrainPatience)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 requests") {
			t.Errorf("drain: %v", err)
		}
		if time.Since(start) != push.DrainTime {
			t.Errorf("gave up after %v, want %v", time.Since(start), push.DrainTime)
		}
		close(finish)
		wg.Wait()
	})
}

func TestDrainEndsTheContextsOfThoseItCannotWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate push.Gate
		h := gate.Wrap(push.Handler(push.Config{Logger: quiet()}, func(ctx context.Context, _ *push.Delivery) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		var wg sync.WaitGroup
		answered := begin(&wg, h, request(1, true))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), push.DrainTime)
		defer cancel()
		if err := gate.Drain(ctx, push.DrainPatience); err != nil || time.Since(start) != push.DrainPatience {
			t.Errorf("drained after %v: %v", time.Since(start), err)
		}
		wg.Wait()
		if *answered != http.StatusServiceUnavailable {
			t.Errorf("answered %d", *answered)
		}
	})
}

func TestIdleGateDrainsAtOnce(t *testing.T) {
	var gate push.Gate
	if err := gate.Drain(t.Context(), push.DrainPatience); err != nil {
		t.Error(err)
	}
}
