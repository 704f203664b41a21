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
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = &t
}

// AdvanceClock moves the emulator's time by d, whether it runs or stands.
func (e *Emulator) AdvanceClock(d time.Duration) {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen != nil {
		t := c.frozen.Add(d)
		c.frozen = &t
		return
	}
	c.offset += d
}

// ResetClock lets the emulator's time follow Options.Clock again.
func (e *Emulator) ResetClock() {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen, c.offset = nil, 0
}
