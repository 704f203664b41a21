package writer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// covers: SNK-01
func TestEntriesAreApplied(t *testing.T) {
	s := &service{}
	w := start(t, s)
	wantApplied(t, w.Apply(t.Context(), sets(1200)))
	if n := len(s.order); n != 1200 {
		t.Errorf("%d applied", n)
	}
}

// issue-row: 21
// covers: SNK-32
func TestUnavailableOnceIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(_ context.Context, n int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			if n == 1 {
				return nil, status.Error(codes.Unavailable, "down")
			}
			return nil, nil
		}}
		w := start(t, s)
		wantApplied(t, w.Apply(within(t, time.Minute), sets(3)))
		if s.count("MutateRows") != 2 {
			t.Errorf("%d requests", s.count("MutateRows"))
		}
	})
}
