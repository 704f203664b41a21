package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// patience is how long something that does not answer is waited for: first in silence,
// then having said so, then no longer.
type patience struct{ silent, most time.Duration }

// forLedgers is for a first call to a ledger, which takes milliseconds where it is there.
var forLedgers = patience{silent: 3 * time.Second, most: 30 * time.Second}

// await calls, and says on out what is being waited for. hint is what to check where it
// never answers.
func (p patience) await(ctx context.Context, out io.Writer, what, hint string, call func(context.Context) error) error {
	tooLong := fmt.Errorf("%s has not answered for %s; check %s", what, p.most, hint)
	ctx, cancel := context.WithTimeoutCause(ctx, p.most, tooLong)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	timer := time.NewTimer(p.silent)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil && errors.Is(context.Cause(ctx), tooLong) {
				return tooLong
			}
			return err
		case <-timer.C:
			fmt.Fprintf(out, "waiting for %s\n", escaped(what))
		}
	}
}
