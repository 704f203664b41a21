package main

import (
	"context"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

// clock is the time that schedules go by.
type clock struct {
	now func() time.Time
	// sleep waits, unless ctx ends.
	sleep func(ctx context.Context, d time.Duration)
}

func systemClock() clock {
	return clock{now: time.Now, sleep: func(ctx context.Context, d time.Duration) {
		_ = retry.Sleep(ctx, d) // the scheduler sees whether ctx has ended
	}}
}

// scheduler asks for scans when they are due, as Cloud Scheduler does.
type scheduler struct {
	clock clock
	scans func() []*pipeline.Scan // of now
	ask   func(ctx context.Context, scan *pipeline.Scan)
	tell  func(format string, args ...any)
}

// run looks at the schedules at every full minute until ctx ends. Of the minutes that
// it could not look at, because the machine slept, the last is made up for, if that is
// not a day ago.
func (s *scheduler) run(ctx context.Context) {
	last := s.clock.now()
	for {
		s.clock.sleep(ctx, last.Truncate(time.Minute).Add(time.Minute).Sub(last))
		if ctx.Err() != nil {
			return
		}
		now := s.clock.now()
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
