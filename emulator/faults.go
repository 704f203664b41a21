package emulator

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Fault makes calls go wrong. Which calls: those of Method to Table, after
// Skip of them, Count times. What happens: Delay first, then one of Hang,
// Cut, Omit or Code.
type Fault struct {
	Method string // RPC name, as "MutateRows"; "" is every method
	Table  string // full table name; "" is every table
	Skip   int    // how many matching calls pass first
	Count  int    // how many calls it then hits; 0 is all, until it is removed

	Delay time.Duration // real time, or until the call is cancelled
	Hang  bool          // never answer; the call ends when its context does

	// Code is the status of the call. It is returned before anything is
	// applied, or, if After is set, when all has been applied and (for reads)
	// sent. With Entries, it is instead the status of those entries of a
	// MutateRows call, which are left alone, or, if After is set, applied.
	Code       codes.Code
	Message    string
	After      bool
	Entries    []int
	RetryDelay time.Duration // sent as RetryInfo; 0: none

	// Omit leaves entries of a MutateRows call, which are applied, out of the
	// response.
	Omit []int

	// Cut ends a stream with Code (UNAVAILABLE if unset) after CutAfter
	// messages; with Hang, it is silent from then on. ReadRows then sends one
	// row per message.
	Cut      bool
	CutAfter int

	// RateLimitFactor sends MutateRows clients that ask for it a RateLimitInfo
	// with this factor and RateLimitPeriod (10 s if unset). 0: none.
	RateLimitFactor float64
	RateLimitPeriod time.Duration
}

// ActiveFault is a fault that was injected and not removed.
type ActiveFault struct {
	Fault
	ID   int
	Hits int // how many calls it has hit
	seen int // how many calls matched
}

// faults are the injected ones, in order of injection.
type faults struct {
	mu     sync.Mutex
	nextID int
	active []*ActiveFault
}

// Inject adds a fault and returns its id. A call is hit by the first fault
// that matches it and is not used up.
func (e *Emulator) Inject(f Fault) (id int) {
	s := &e.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	f.Entries, f.Omit = slices.Clone(f.Entries), slices.Clone(f.Omit)
	s.active = append(s.active, &ActiveFault{Fault: f, ID: s.nextID})
	return s.nextID
}

// RemoveFault removes a fault and reports whether it was there.
func (e *Emulator) RemoveFault(id int) bool {
	s := &e.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.active)
	s.active = slices.DeleteFunc(s.active, func(f *ActiveFault) bool { return f.ID == id })
	return len(s.active) < before
}

// ClearFaults removes every fault.
func (e *Emulator) ClearFaults() {
	s := &e.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
}

// Faults lists the faults that have not been removed, used up ones included.
func (e *Emulator) Faults() []ActiveFault {
	s := &e.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]ActiveFault, len(s.active))
	for i, f := range s.active {
		out[i] = *f
	}
	return out
}

// match counts a call and returns the fault that hits it, if any.
func (s *faults) match(method, table string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.active {
		if f.Method != "" && f.Method != method || f.Table != "" && f.Table != table {
			continue
		}
		f.seen++
		if f.seen <= f.Skip || f.Count > 0 && f.Hits >= f.Count {
			continue
		}
		f.Hits++
		hit := f.Fault
		return &hit
	}
	return nil
}

// before runs what a fault does ahead of the call. A nil fault does nothing.
func (f *Fault) before(ctx context.Context) error {
	if f == nil {
		return nil
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.Hang && (!f.Cut || f.CutAfter <= 0) {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	if f.Code != codes.OK && !f.After && !f.Cut && len(f.Entries) == 0 || f.Cut && f.CutAfter <= 0 {
		return f.status()
	}
	return nil
}

// after is the error of a call that has been applied, nil for none.
func (f *Fault) after() error {
	if f == nil || !f.After || f.Cut || len(f.Entries) > 0 || f.Code == codes.OK {
		return nil
	}
	return f.status()
}

// cut ends a stream that has sent its messages.
func (f *Fault) cut(ctx context.Context) error {
	if f.Hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return f.status()
}

func (f *Fault) status() error {
	code := cmp.Or(f.Code, codes.Unavailable)
	st := status.New(code, cmp.Or(f.Message, "injected fault"))
	if f.RetryDelay > 0 {
		if detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryDelay)}); err == nil {
			st = detailed
		}
	}
	return st.Err()
}

// hits reports whether entry i gets the fault's status.
func (f *Fault) hits(i int) bool { return f != nil && slices.Contains(f.Entries, i) }

// omits reports whether entry i is left out of the response.
func (f *Fault) omits(i int) bool { return f != nil && slices.Contains(f.Omit, i) }

type faultKey struct{}

// faultOf is the fault that hits a call, nil for none.
func faultOf(ctx context.Context) *Fault {
	f, _ := ctx.Value(faultKey{}).(*Fault)
	return f
}
