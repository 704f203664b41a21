package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// idle yields a heartbeat every few seconds, of which no record is made.
func idle(n int, every time.Duration) Job[int, int] {
	j := job(&numbers{n: n, wait: func(int) time.Duration { return every }}, &sent{})
	j.Size = func(int) Size { return Size{} }
	j.Map = func(_ int, to []Record) ([]Record, error) { return to, nil }
	return j
}

// commits runs the job, under a lease of 90 seconds that each commit renews, and returns
// when it committed.
func commits(t *testing.T, j Job[int, int]) []time.Duration {
	t.Helper()
	began := time.Now()
	held := began.Add(90 * time.Second)
	var times []time.Duration
	j.Held = func() time.Time { return held }
	j.Commit = func(context.Context, int, Counts) error {
		times = append(times, time.Since(began).Round(time.Second))
		held = time.Now().Add(90 * time.Second)
		return nil
	}
	r, err := Run(t.Context(), t.Context(), j)
	if err != nil || !r.Done || r.Last == 0 || !r.Moved {
		t.Fatalf("%+v, %v", r, err)
	}
	return times
}

func TestAnIdleReaderCommitsBeforeItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := commits(t, idle(60, 5*time.Second)) // five minutes
		if want := []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute}; !slices.Equal(got, want) {
			t.Errorf("commits after %v, want %v: two a minute at most", got, want)
		}
	})
}

func TestAnIdleReaderOfAWindowCommitsNothingBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := commits(t, idle(10, 5*time.Second)); len(got) > 0 {
			t.Errorf("commits after %v, want what the caller commits of the result", got)
		}
	})
}

// A record brings what was read before and after it along.
func TestARecordIsCommittedInTimeAmongUnitsWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := idle(30, time.Second)
		j.Map = func(n int, to []Record) ([]Record, error) {
			if n == 12 {
				to = append(to, Record{Key: "12"})
			}
			return to, nil
		}
		if got, want := commits(t, j), []time.Duration{12 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("commits after %v, want %v", got, want)
		}
	})
}

func TestTheFirstUnitsAreCommittedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := idle(300, 100*time.Millisecond)
		j.FirstCommit = time.Second
		if got, want := commits(t, j), []time.Duration{time.Second}; !slices.Equal(got, want) {
			t.Errorf("commits after %v, want %v and then none without a record", got, want)
		}
		j = job(&numbers{n: 95, wait: func(int) time.Duration { return 100 * time.Millisecond }}, &sent{})
		j.FirstCommit = time.Second
		if got, want := commits(t, j), []time.Duration{time.Second, 6 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("commits after %v, want %v", got, want)
		}
	})
}
