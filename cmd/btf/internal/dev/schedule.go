package dev

import (
	"context"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

// Clock is the time that schedules go by.
type Clock struct {
	Now func() time.Time
	// Sleep waits, unless ctx ends.
	Sleep func(ctx context.Context, d time.Duration)
}

// SystemClock is the time of this machine.
func SystemClock() Clock {
	return Clock{Now: time.Now, Sleep: func(ctx context.Context, d time.Duration) {
		_ = retry.Sleep(ctx, d) // the scheduler sees whether ctx has ended
	}}
}

// scheduler asks for scans when they are due, as Cloud Scheduler does.
type scheduler struct {
	clock Clock
	scans func() []*pipeline.Scan // of now
	ask   func(ctx context.Context, scan *pipeline.Scan)
	tell  func(format string, args ...any)
}

// run looks at the schedules at every full minute until ctx ends. Of the minutes that
// it could not look at, because the machine slept, the last is made up for, if that is
// not a day ago.
func (s *scheduler) run(ctx context.Context) {
	last := s.clock.Now()
	for {
		s.clock.Sleep(ctx, last.Truncate(time.Minute).Add(time.Minute).Sub(last))
		if ctx.Err() != nil {
			return
		}
		now := s.clock.Now()
		for _, scan := range s.scans() {
			if s.isDue(scan, last, now) {
				s.ask(ctx, scan)
			}
		}
		last = now
	}
}

const longestSleep = 24 * time.Hour

func (s *scheduler) isDue(scan *pipeline.Scan, after, now time.Time) bool {
	if scan.Schedule == nil {
		return false
	}
	if earliest := now.Add(-longestSleep); after.Before(earliest) {
		after = earliest
	}
	due, err := scanjob.LastDue(scan.Schedule, after, now)
	if err != nil {
		s.tell("scan %s is not started: %s", scan.Name, err)
	}
	return !due.IsZero()
}
