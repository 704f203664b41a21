package writer

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// probing is how long an open breaker waits before it lets one request through.
var probing = retry.Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.25}

// breaker holds verdicts back once too many entries in a row were rejected: then the
// stream itself is wrong, not its entries. It is a state machine without a clock.
type breaker struct {
	limit  int // rejections in a row; 0: unlimited
	count  int // since the last applied entry, or since the probe
	open   bool
	probes int
	next   time.Time  // of the next probe
	last   codes.Code // of the last rejection
	logged time.Time
}

// applied closes the breaker: the service takes entries of this stream.
func (b *breaker) applied() {
	b.count, b.open, b.probes = 0, false, 0
}

// rejected counts a confirmed rejection. It reports whether this one opened the breaker,
// and whether the verdict may reach the policy: the one that opens it still does.
func (b *breaker) rejected(now time.Time, code codes.Code, random float64) (tripped, route bool) {
	b.last = code
	b.count++
	if b.open {
		return false, false
	}
	if b.limit > 0 && b.count >= b.limit {
		b.open, b.probes = true, 1
		b.next = now.Add(probing.Delay(1, random))
		return true, true
	}
	return false, true
}

// admit says whether a request may enter; through an open breaker only as its probe.
func (b *breaker) admit(now time.Time, random float64) (ok, probe bool) {
	if !b.open {
		return true, false
	}
	if now.Before(b.next) {
		return false, false
	}
	b.count = 0
	b.probes++
	b.next = now.Add(probing.Delay(b.probes, random))
	return true, true
}

// blocks reports whether an open breaker stops an entry on its way. It stops all but the
// probe's, and these too once as many of them were rejected as opened the breaker.
func (b *breaker) blocks(probe bool) bool {
	return b.open && (!probe || b.count >= b.limit)
}

func (b *breaker) err() error {
	return fmt.Errorf("%w: %d in a row, the last one %s", ErrBreakerOpen, b.limit, b.last)
}

// logBreaker says, at most once a minute, that nothing is written.
func (w *Writer) logBreaker(now time.Time) {
	b := &w.breaker
	if now.Sub(b.logged) < time.Minute {
		return
	}
	b.logged = now
	w.log.Error("every event is refused: too many entries in a row were rejected",
		"option", "limits.consecutiveRejections", "limit", b.limit, "lastStatus", b.last.String(), "nextProbe", b.next.Sub(now).Round(time.Millisecond).String())
}
