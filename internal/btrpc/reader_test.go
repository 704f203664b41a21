package btrpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// late is a context whose deadline has passed before its timer has run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }
func (late) Err() error                  { return nil }

func TestTheCallersDeadlineIsNoFailureOfTheService(t *testing.T) {
	w := &Watch{}
	w.fail(context.Background(), status.Error(codes.Unavailable, ""))
	w.fail(late{context.Background()}, status.Error(codes.DeadlineExceeded, ""))
	if w.Failed != codes.Unavailable {
		t.Errorf("the last failure is %v", w.Failed)
	}
}
