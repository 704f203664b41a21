package changestream

import "time"

// Edge is how far inside the retention the earliest position stands that is still read:
// the service forgets while a request is on its way.
const Edge = time.Minute

// Earliest returns the earliest time that a stream with that retention can be read from.
func Earliest(now time.Time, retention time.Duration) time.Time {
	return now.Add(Edge - retention)
}

// Expired reports whether changes just after a position may be gone: its low watermark is
// older than what the service keeps. No status says so reliably, so it is computed.
func Expired(lowWatermark, now time.Time, retention time.Duration) bool {
	return lowWatermark.Before(Earliest(now, retention))
}

// Clamp returns the time to read from where start was asked for: start itself, or the
// earliest that the service still has, to the microsecond, which is all it takes. A
// clamped start of a position that is not Expired loses nothing: it is a margin that is
// cut.
func Clamp(start, now time.Time, retention time.Duration) time.Time {
	if e := Earliest(now, retention); start.Before(e) {
		start = e
	}
	return start.Truncate(time.Microsecond)
}
