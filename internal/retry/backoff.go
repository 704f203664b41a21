package retry

import "time"

// Backoff is how long to wait before trying again: Initial doubled with each
// attempt, never more than Max, spread by Jitter.
type Backoff struct {
	Initial, Max time.Duration
	// Jitter is the largest deviation as a share of the wait, from 0 to 1: 0.25
	// spreads a wait of 4 s over 3 s to 5 s.
	Jitter float64
}

// Delay returns the wait after the given number of failed attempts, at least 1;
// fewer counts as 1. random is in [0, 1).
func (b Backoff) Delay(failures int, random float64) time.Duration {
	d := b.Initial
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	return time.Duration(float64(d) * (1 + b.Jitter*(2*random-1)))
}
