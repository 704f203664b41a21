package scanplanner

import (
	"context"
	"errors"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

const (
	// Silence is after how long without a write no task can come for a split any more: the
	// scan's request may have published one until it expired, after seven days, and that
	// task lives for seven more. A task that comes writes the split.
	Silence = 14*24*time.Hour + time.Hour
	// lookEvery is how often the pipeline's planners look for such splits.
	lookEvery = 24 * time.Hour
)

var errLapsed = errors.New("its task has expired: for 14 days no worker has taken it")

// failLapsed ends splits, of all the pipeline's scans, that nobody will ever read:
// otherwise their scans would run for ever. The request is finished by then, so a failure
// is only logged, and the next look is a day later.
func (f *function) failLapsed(ctx context.Context, s *Summary) {
	tasks, err := f.cfg.Ledger.Lapsed(ctx, lookEvery, Silence)
	for _, t := range tasks {
		next, failing := f.cfg.Ledger.FailLapsed(ctx, t, "scan-planner", Silence, errLapsed)
		if failing == nil {
			s.Lapsed++
		}
		if failing == nil && next.Scan != nil {
			failing = scanjob.Announce(ctx, f.cfg.Ledger, f.cfg.Done, next.Scan)
		}
		err = errors.Join(err, failing)
	}
	if err != nil {
		f.cfg.Logger.ErrorContext(ctx, "splits whose tasks have expired could not be failed", "error", err)
	}
}
