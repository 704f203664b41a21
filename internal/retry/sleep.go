package retry

import (
	"context"
	"time"
)

// Sleep waits for d. If ctx ends before, Sleep returns at once, with the cause of its end.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
