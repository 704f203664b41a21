package emulator

import (
	"sync"
	"time"
)

// clock is the emulator's time: a source, moved by an offset or stopped.
type clock struct {
	source func() time.Time

	mu     sync.RWMutex
	offset time.Duration
	frozen *time.Time
	moved  chan struct{} // closed at the next set; nil if no one waits
}

// waiter is a channel that is closed when the clock is set, moved or let run.
func (c *clock) waiter() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved == nil {
		c.moved = make(chan struct{})
	}
	return c.moved
}

// set changes the clock by f.
func (c *clock) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

func (c *clock) now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.frozen != nil {
		return *c.frozen
	}
	return c.source().Add(c.offset)
}

// micros is the time in microseconds since the epoch, never negative.
func (c *clock) micros() int64 { return max(0, c.now().UnixMicro()) }

// Now is the emulator's time.
func (e *Emulator) Now() time.Time { return e.clock.now() }

// SetClock stops the emulator's time at t. AdvanceClock moves it on.
func (e *Emulator) SetClock(t time.Time) {
	e.clock.set(func() { e.clock.frozen = &t })
}

// AdvanceClock moves the emulator's time by d, whether it runs or stands.
func (e *Emulator) AdvanceClock(d time.Duration) {
	c := &e.clock
	c.set(func() {
		if c.frozen == nil {
			c.offset += d
			return
		}
		t := c.frozen.Add(d)
		c.frozen = &t
	})
}

// ResetClock lets the emulator's time follow Options.Clock again.
func (e *Emulator) ResetClock() {
	e.clock.set(func() { e.clock.frozen, e.clock.offset = nil, 0 })
}
