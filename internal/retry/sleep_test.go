package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, stopped)
		defer cancel()
		began = time.Now()
		if err := Sleep(ctx, time.Minute); err != stopped || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
