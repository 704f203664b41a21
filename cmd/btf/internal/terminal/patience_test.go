package terminal

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatDoesNotAnswerIsToldAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patience := Patience{Silent: 3 * time.Second, Most: 30 * time.Second}
		var out bytes.Buffer
		slow := func(context.Context) error { time.Sleep(patience.Silent - time.Millisecond); return nil }
		if err := patience.Await(t.Context(), &out, "the ledger x", "", slow); err != nil || out.Len() > 0 {
			t.Errorf("what takes a while: %v, %q", err, out.String())
		}
		began := time.Now()
		err := patience.Await(t.Context(), &out, "the ledger x", "LEDGER", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if got := out.String(); got != "waiting for the ledger x\n" {
			t.Errorf("told %q", got)
		}
		if err == nil || err.Error() != "the ledger x has not answered for 30s; check LEDGER" || time.Since(began) != 30*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		out.Reset()
		failed := errors.New("denied")
		if err := patience.Await(t.Context(), &out, "x", "", func(context.Context) error { return failed }); err != failed || out.Len() > 0 {
			t.Errorf("at once: %v, %q", err, out.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := patience.Await(ctx, &out, "x", "", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped by the caller: %v", err)
		}
	})
}
