package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Patience is how long a command waits for something that does not answer. After Silent it says
// so, and after Most it gives up.
type Patience struct{ Silent, Most time.Duration }

// Await makes a call, and says on out what it waits for. hint names what to check if it never
// answers.
func (p Patience) Await(ctx context.Context, out io.Writer, what, hint string, call func(context.Context) error) error {
	tooLong := fmt.Errorf("%s has not answered for %s; check %s", what, p.Most, hint)
	ctx, cancel := context.WithTimeoutCause(ctx, p.Most, tooLong)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	timer := time.NewTimer(p.Silent)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil && errors.Is(context.Cause(ctx), tooLong) {
				return tooLong
			}
			return err
		case <-timer.C:
			fmt.Fprintf(out, "waiting for %s\n", Escape(what))
		}
	}
}
