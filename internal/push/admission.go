package push

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// Sizes of what a request reserves within Config.MaxRequestBytes.
const (
	// bodyFactor is how many bytes a byte of the body takes: itself, and the payload
	// decoded from it.
	bodyFactor = 2
	// workFactor is how many more bytes each of the first workBytes takes while the payload
	// is worked on: values, rows, requests. More than that is charged as it is made.
	workFactor = 5
	workBytes  = 2 << 20
	// leastWork is what a small request reserves to be worked on, but no more than a
	// thousandth of the bound.
	leastWork = 8 << 10
	// workBlock is the most by which a reservation grows beyond the bytes that are charged,
	// while the payload is worked on.
	workBlock = 1 << 20
	// promised is the longest declared body for which a request reserves as a whole when
	// it enters, so that it need not wait half-way. For a longer body, and for one of an
	// unknown length, it reserves for the bytes that have arrived.
	promised = 256 << 10
	// firstRead is how much of a body is read at first, in bytes.
	firstRead = 16 << 10
)

// Times for which a body that does not arrive may hold up others.
const (
	// lapse is how long a promise is kept for bytes that have not arrived.
	lapse = 100 * time.Millisecond
	// slowAfter is how long a body may take before it gives way to requests that wait
	// for room.
	slowAfter = time.Second
	// growthWait is how long a request waits, half-way, for room for more of it.
	growthWait = time.Second
	// relief is how often a request that waits looks for bodies that are late.
	relief = 20 * time.Millisecond
)

// errNoRoom refuses a request that does not fit beside the others.
var errNoRoom = fmt.Errorf("%w: no room in limits.inFlight.maxRequestBytes; raise it or the number of instances", ErrOverloaded)

// errGaveWay refuses a request whose body is late and whose room others need.
var errGaveWay = fmt.Errorf("%w: its body came slowly, and others need its room in limits.inFlight.maxRequestBytes", ErrOverloaded)

// admission bounds the memory of all requests under way. It never deadlocks: the oldest
// request gets what it asks for, even beyond the bound, and everyone else's patience ends.
// A slow body gives way to requests that wait, the oldest one last.
// Bodies take no more than half of the bound, so that there is room to work on those that
// are whole, and what arrives of long ones no more than three eighths, so that short ones
// get in beside them.
type admission struct {
	bound int64
	limit int64 // of one body
	wait  time.Duration

	mu       sync.Mutex
	last     int64     // number of the newest request
	held     int64     // by all reservations, promises included
	bodies   int64     // of held, for bodies
	requests list.List // of *Reservation, oldest first
	waiting  list.List // of *claim, that of the oldest request first
}

func newAdmission(bound, limit int64, wait time.Duration) *admission {
	return &admission{bound: bound, limit: limit, wait: wait}
}

// Reservation is the memory that one request has of the handler's bound. A nil
// Reservation has no bound. Charge and Release are for the one goroutine that works on
// the delivery.
type Reservation struct {
	a         *admission
	element   *list.Element // in a.requests
	interrupt func()        // ends a read of the body

	// Guarded by a.mu.
	number     int64     // in order of arrival
	body, work int64     // bytes, promises included
	since      time.Time // when its body began to be read
	reading    bool      // the body is not whole
	buffer     int64     // what the body's buffer takes of body
	late       bool      // nothing is promised any more to bytes that had not arrived in time
	stuck      bool      // it waits for room itself
	gaveWay    bool

	// Of the goroutine that works on the delivery.
	first   int64 // the work it reserved at first
	allowed int64 // the same, with what it has grown
	charged int64
	waited  time.Duration // for room, while its body was read
}

// claim waits for room.
type claim struct {
	r          *Reservation
	body, work int64
	growth     bool          // of a body half-way
	granted    chan struct{} // closed once it has it
}

// enter waits until there is room for the request beside the others, and returns its
// reservation, which the caller leaves. It fails when that takes longer than the bound or
// ctx ends. Of a body over the cap nothing is kept, and nothing reserved.
func (a *admission) enter(ctx context.Context, contentLength int64, interrupt func()) (*Reservation, error) {
	if a.bound == 0 {
		return nil, nil
	}
	r := &Reservation{a: a, interrupt: interrupt}
	c := claim{r: r, body: firstRead * bodyFactor}
	switch {
	case contentLength > a.limit:
		c.body = 0
	case contentLength >= 0 && contentLength <= promised:
		c.body, c.work = contentLength*bodyFactor, a.work(contentLength)
	}
	r.buffer = min(c.body, firstRead*bodyFactor)
	a.mu.Lock()
	a.last++
	r.number, r.element = a.last, a.requests.PushBack(r)
	a.mu.Unlock()
	if err := a.claim(ctx, &c, a.wait); err != nil {
		r.leave()
		return nil, err
	}
	return r, nil
}

// work is how much is reserved at first to work on a body of so many bytes.
func (a *admission) work(size int64) int64 {
	return max(min(size, workBytes)*workFactor, min(leastWork, a.bound/1024))
}

// leave gives everything back.
func (r *Reservation) leave() {
	if r == nil {
		return
	}
	a := r.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.Remove(r.element)
	r.resize(0, 0)
	a.serve()
}

// resize changes what is held. The caller holds a.mu.
func (r *Reservation) resize(body, work int64) {
	r.a.held += body + work - r.body - r.work
	r.a.bodies += body - r.body
	r.body, r.work = body, work
}

// grow makes room for a body's buffer of n bytes, once it has filled a smaller one.
func (r *Reservation) grow(ctx context.Context, n int64) error {
	if r == nil {
		return nil
	}
	a := r.a
	a.mu.Lock()
	r.buffer = n * bodyFactor
	more := r.buffer - r.body
	gaveWay := r.gaveWay
	a.mu.Unlock()
	if gaveWay {
		return errGaveWay
	}
	if more <= 0 {
		return nil
	}
	start := time.Now()
	defer func() { r.waited += time.Since(start) }()
	return a.claim(ctx, &claim{r: r, body: more, growth: true}, min(growthWait, a.wait))
}

// interrupted reports whether the body has to give way.
func (r *Reservation) interrupted() bool {
	if r == nil {
		return false
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	return r.gaveWay
}

// whole makes room to work on a body that has arrived, of so many bytes.
func (r *Reservation) whole(ctx context.Context, size int64) error {
	if r == nil {
		return nil
	}
	a := r.a
	r.first = a.work(size)
	a.mu.Lock()
	if r.gaveWay {
		a.mu.Unlock()
		return errGaveWay
	}
	r.reading = false
	more := r.first - r.work
	a.mu.Unlock()
	r.allowed = r.first
	if more <= 0 {
		return nil
	}
	return a.claim(ctx, &claim{r: r, work: more}, a.wait)
}

// keep gives back the room of the body, but for n bytes that are kept of it.
func (r *Reservation) keep(n int64) {
	if r == nil {
		return
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if n < r.body {
		r.resize(n, r.work)
		r.a.serve()
	}
}

// Charge counts n bytes that the delivery has come to hold beside its body. If they do not
// fit beside the others it waits a second, and then fails with ErrOverloaded in the chain;
// the bytes stay counted even so. The oldest request always has room.
func (r *Reservation) Charge(ctx context.Context, n int64) error {
	if r == nil {
		return nil
	}
	if r.charged += n; r.charged <= r.allowed {
		return nil
	}
	more := r.charged - r.allowed + min(workBlock, r.charged/2)
	if err := r.a.claim(ctx, &claim{r: r, work: more, growth: true}, min(growthWait, r.a.wait)); err != nil {
		return err
	}
	r.allowed += more
	return nil
}

// Release gives back n bytes that were charged.
func (r *Reservation) Release(n int64) {
	if r == nil {
		return
	}
	r.charged -= n
	need := max(r.charged, r.first)
	if r.allowed-need < workBlock {
		return
	}
	a := r.a
	a.mu.Lock()
	defer a.mu.Unlock()
	r.resize(r.body, r.work-(r.allowed-need))
	r.allowed = need
	a.serve()
}

// claim takes room for c, at once or when others leave.
func (a *admission) claim(ctx context.Context, c *claim, patience time.Duration) error {
	a.mu.Lock()
	if a.waiting.Len() == 0 && a.fits(c) {
		a.grant(c)
		a.mu.Unlock()
		return nil
	}
	c.granted = make(chan struct{})
	e := a.enqueue(c)
	c.r.stuck = true
	a.serve()
	a.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	ticker := time.NewTicker(relief)
	defer ticker.Stop()
	for {
		select {
		case <-c.granted:
			return nil
		case <-ticker.C:
			a.relieve(e)
		case <-timer.C:
			return a.withdraw(c, e, errNoRoom)
		case <-ctx.Done():
			return a.withdraw(c, e, fmt.Errorf("waiting for room: %w", context.Cause(ctx)))
		}
	}
}

// withdraw ends a claim that waits; nil: it was granted meanwhile.
func (a *admission) withdraw(c *claim, e *list.Element, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.r.stuck {
		return nil
	}
	c.r.stuck = false
	a.waiting.Remove(e)
	a.serve()
	return err
}

// enqueue puts the claim behind those of older requests.
func (a *admission) enqueue(c *claim) *list.Element {
	for e := a.waiting.Back(); e != nil; e = e.Prev() {
		if e.Value.(*claim).r.number < c.r.number {
			return a.waiting.InsertAfter(c, e)
		}
	}
	return a.waiting.PushFront(c)
}

// fits reports whether the claim has room now.
func (a *admission) fits(c *claim) bool {
	switch {
	case c.body+c.work == 0, a.requests.Front() == c.r.element:
		return true
	case a.held+c.body+c.work > a.bound:
		return false
	case c.body == 0:
		return true
	case c.growth:
		return a.bodies+c.body <= a.bound/8*3
	}
	return a.bodies+c.body <= a.bound/2
}

func (a *admission) grant(c *claim) {
	r := c.r
	r.resize(r.body+c.body, r.work+c.work)
	if r.since.IsZero() {
		r.since, r.reading = time.Now(), true
	}
}

// serve grants claims in the order of their requests' arrival. None is overtaken but by
// requests half-way, and these do not stand in the way of others.
func (a *admission) serve() {
	blocked := false
	for e := a.waiting.Front(); e != nil; {
		c, next := e.Value.(*claim), e.Next()
		if (c.growth || !blocked) && a.fits(c) {
			a.grant(c)
			a.waiting.Remove(e)
			c.r.stuck = false
			close(c.granted)
		} else if !c.growth {
			blocked = true
		}
		e = next
	}
}

// relieve takes back the room that was promised to bodies that are late, and as much as is
// missing from those that are slow. The first claim that waits does it for all.
func (a *admission) relieve(e *list.Element) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting.Front() != e {
		return
	}
	now := time.Now()
	for e := a.requests.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*Reservation); r.reading && !r.late && now.Sub(r.since) >= lapse {
			r.late = true
			r.resize(min(r.body, r.buffer), 0)
		}
	}
	a.serve()
	missing := a.missing()
	for e := a.requests.Front().Next(); e != nil && missing > 0; e = e.Next() {
		missing -= e.Value.(*Reservation).giveWay(now)
	}
	if missing > 0 { // the oldest is the last to give way
		a.requests.Front().Value.(*Reservation).giveWay(now)
	}
}

// giveWay ends the reading of a slow body, and returns how much room that makes.
func (r *Reservation) giveWay(now time.Time) int64 {
	if !r.reading || r.stuck || now.Sub(r.since) < slowAfter {
		return 0
	}
	if !r.gaveWay {
		r.gaveWay = true
		r.interrupt()
	}
	return r.body
}

// missing is how much room the first claim that waits lacks, requests half-way left out.
func (a *admission) missing() int64 {
	for e := a.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*claim); !c.growth {
			missing := a.held + c.body + c.work - a.bound
			if c.body > 0 {
				missing = max(missing, a.bodies+c.body-a.bound/2)
			}
			return missing
		}
	}
	return 0
}
