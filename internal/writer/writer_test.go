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

// issue-row: 1, 4
// covers: FAIL-01, FAIL-10, FAIL-11
func TestOneBadEntryOfAThousandIsIsolated(t *testing.T) {
	for _, at := range []string{"row-00000", "row-00500", "row-00999", "row-00737"} {
		s := &service{mutate: badRows(func(k string) bool { return k == at })}
		w := start(t, s, func(c *Config) { c.Limits.Batch.MaxEntries = 1000 })
		entries := sets(1000)
		for i, err := range w.Apply(within(t, time.Minute), entries) {
			key := string(entries[i].Row.RowKey)
			if got := isRejected(err); got != (key == at) || !got && err != nil {
				t.Errorf("%s: entry %s: %v", at, key, err)
			}
			if want := 1; key != at && s.appliedTimes(key) != want {
				t.Errorf("%s: applied %d times", key, s.appliedTimes(key))
			}
		}
		if n := s.count("MutateRows"); n > 1+2*10+2 {
			t.Errorf("%s: %d requests", at, n)
		} else {
			t.Logf("%s: %d extra requests", at, n-1)
		}
	}
}
