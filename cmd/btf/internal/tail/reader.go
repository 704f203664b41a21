package tail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// reader reads one partition and sends what it reads.
type reader struct {
	changeread.Reader
	id     int
	events chan<- event
}

// again is waited between two readings that failed, each of which has made several attempts.
var again = retry.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: 0.25}

// run reads until the stream is closed, an error does not pass, or ctx ends.
func (r *reader) run(ctx context.Context) {
	failures, last, moved := 0, r.Position(), time.Now()
	for {
		closed, err := r.read(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			r.send(ctx, event{closed: closed})
			return
		}
		if at := r.Position(); at != last {
			failures, last, moved = 0, at, time.Now()
		}
		failures++
		class := retry.Classify(err)
		passes := class.Verdict == retry.VerdictTransient || errors.Is(err, changestream.ErrProtocol)
		if !passes || time.Since(moved) > patience {
			r.send(ctx, event{failed: err})
			return
		}
		if !r.send(ctx, event{retry: err}) || retry.Sleep(ctx, max(class.Delay, again.Delay(failures, 0.5))) != nil {
			return
		}
	}
}

// silence is how long a stream may say nothing before it is opened again. Heartbeats come
// every few seconds.
const silence = 2 * time.Minute

var errSilent = fmt.Errorf("nothing has come for %s: %w", silence, retry.Bare(codes.Unavailable))

// read reads until the stream is closed, is silent or fails.
func (r *reader) read(ctx context.Context) (*bigtablepb.ReadChangeStreamResponse_CloseStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer silent.Stop()
	return r.Read(ctx, func(item changestream.Item) (bool, error) {
		silent.Stop() // the output may take its time
		taken := r.send(ctx, event{item: item})
		silent.Reset(silence)
		return taken, nil
	})
}

// send reports whether the event was taken. It is not if ctx ends before.
func (r *reader) send(ctx context.Context, e event) bool {
	e.from = r.id
	select {
	case r.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
