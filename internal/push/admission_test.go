package push

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// begin is a request of so many bytes that are there at once.
func (a *admission) begin(t *testing.T, size int64) *Reservation {
	t.Helper()
	r, err := a.enter(t.Context(), size, func() {})
	if err == nil {
		err = r.whole(t.Context(), size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What a delivery charges is bounded beside the others, given back, and never refused to
// the oldest.
func TestADeliveryChargesWhatItMakes(t *testing.T) {
	a := newAdmission(16<<20, DefaultCap, time.Second)
	oldest, younger := a.begin(t, 1000), a.begin(t, 1000)
	for range 3 {
		if err := younger.Charge(t.Context(), 10<<20); err != nil {
			t.Fatalf("10 MiB of 16: %v", err)
		}
		younger.Release(10 << 20)
	}
	if err := oldest.Charge(t.Context(), 14<<20); err != nil {
		t.Fatalf("the oldest: %v", err)
	}
	if err := younger.Charge(t.Context(), 10<<20); !errors.Is(err, ErrOverloaded) {
		t.Errorf("10 MiB beside 14 of 16: %v", err)
	}
	if err := oldest.Charge(t.Context(), 14<<20); err != nil {
		t.Errorf("the oldest, beyond the bound: %v", err)
	}
	oldest.leave()
	if err := younger.Charge(t.Context(), 0); err != nil {
		t.Errorf("the oldest now: %v", err)
	}
	younger.leave()
	if a.held != 0 || a.bodies != 0 || a.requests.Len() != 0 || a.waiting.Len() != 0 {
		t.Errorf("left over: %d bytes, %d for bodies, %d requests, %d that wait", a.held, a.bodies, a.requests.Len(), a.waiting.Len())
	}
	var none *Reservation
	if err := none.Charge(t.Context(), 1<<40); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}

// Requests of all kinds, at random: each ends, nobody but the oldest holds more than the
// bound, and nothing is left over.
func TestAdmissionKeepsItsBound(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const bound = 4 << 20
			a := newAdmission(bound, 1<<20, 5*time.Second)
			random := rand.New(rand.NewPCG(seed, 0))
			var wg sync.WaitGroup
			for range 200 {
				q := caller{
					size: random.Int64N(1 << (8 + random.IntN(13))), declared: random.IntN(3) > 0,
					parts: 1 + random.Int64N(5), pause: time.Duration(random.IntN(600)) * time.Millisecond,
					work: random.Int64N(1 << (8 + random.IntN(14))), busy: time.Duration(random.IntN(3000)) * time.Millisecond,
				}
				wg.Go(func() { q.run(t, a) })
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
				a.check(t)
			}
			wg.Wait()
			a.check(t)
			if a.held != 0 || a.requests.Len() != 0 || a.waiting.Len() != 0 {
				t.Errorf("seed %d: left over: %d bytes, %d requests, %d that wait", seed, a.held, a.requests.Len(), a.waiting.Len())
			}
		})
	}
}

// caller sends a request that comes in parts and is worked on.
type caller struct {
	size, parts, work int64
	declared          bool
	pause, busy       time.Duration
}

func (q *caller) run(t *testing.T, a *admission) {
	declared := int64(-1)
	if q.declared {
		declared = q.size
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := a.enter(ctx, declared, cancel)
	if err != nil {
		return
	}
	defer r.leave()
	for i := range q.parts {
		if err := r.grow(t.Context(), q.size*(i+1)/q.parts); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(q.pause):
		}
	}
	if r.whole(t.Context(), q.size) != nil {
		return
	}
	r.keep(q.size)
	if r.Charge(t.Context(), q.work) == nil {
		time.Sleep(q.busy)
	}
	r.Release(q.work)
}

// check holds the sums against what the requests hold.
func (a *admission) check(t *testing.T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var held, bodies, oldest int64
	for e := a.requests.Front(); e != nil; e = e.Next() {
		r := e.Value.(*Reservation)
		if held, bodies = held+r.body+r.work, bodies+r.body; e == a.requests.Front() {
			oldest = held
		}
	}
	if held != a.held || bodies != a.bodies || held-oldest > a.bound {
		t.Errorf("requests hold %d, %d for bodies, the oldest %d of it; counted are %d and %d", held, bodies, oldest, a.held, a.bodies)
	}
}
