package changes

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Whenever ticks come, a visit is published at the first of them that is not more than half
// a tick before its time, once; and the pauses double up to the longest.
func TestAPlannedVisitIsPublishedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cadence{most: time.Duration(rapid.IntRange(60, 3600).Draw(t, "most")) * time.Second}
		began := time.Unix(1_700_000_000, 0)
		p := &ledger.Partition{VisitedAt: began, Idle: time.Duration(rapid.IntRange(1, 4000).Draw(t, "idle")) * time.Second}
		var planned []time.Time
		for at, pause := began.Add(min(p.Idle, c.most)), min(p.Idle, c.most); at.Before(began.Add(12 * time.Hour)); at = at.Add(pause) {
			planned = append(planned, at)
			pause = min(c.most, max(Tick, 2*pause))
		}
		before := began.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "before")) * time.Second)
		for range 100 {
			now := before.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "gap")) * time.Second)
			want := false
			for len(planned) > 0 && !planned[0].After(now.Add(Tick/2)) {
				want = want || planned[0].After(before.Add(Tick/2))
				planned = planned[1:]
			}
			if got := c.due(p, before, now); got != want {
				t.Fatalf("between %s and %s it is due: %t", before.Sub(began), now.Sub(began), got)
			}
			before = now
		}
	})
}
