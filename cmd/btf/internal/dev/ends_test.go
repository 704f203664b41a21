package dev

import (
	"testing"
	"testing/synctest"
	"time"

	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

func TestTheEndOfAScanWaitsForSplitsThatWereNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends splitEnds
		done := func(split int) scanworker.Summary {
			return scanworker.Summary{Scan: "s", Split: split, Outcome: scanworker.OutcomeDone}
		}
		took := func(splits int, meanwhile func()) time.Duration {
			began := time.Now()
			if meanwhile != nil {
				time.AfterFunc(100*time.Millisecond, meanwhile)
			}
			ends.wait(task.ScanDone{Scan: "s", Splits: splits})
			return time.Since(began)
		}
		ends.told(done(0))
		ends.told(done(1))
		if d := took(2, nil); d != 0 {
			t.Errorf("all were told, and it waits %s", d)
		}
		ends.told(done(0))
		ends.told(done(0))
		if d := took(2, func() { ends.told(done(1)) }); d != 100*time.Millisecond {
			t.Errorf("the second is told in 100 ms, and it waits %s", d)
		}
		ends.told(scanworker.Summary{Scan: "s", Split: 3, Outcome: scanworker.OutcomeFailed})
		if d := took(9, nil); d != 0 {
			t.Errorf("one has failed, and it waits %s", d)
		}
		ends.told(done(0))
		if d := took(9, nil); d != endPatience {
			t.Errorf("a limit has ended it, and it waits %s", d)
		}
		if d := took(0, nil); d != 0 {
			t.Errorf("nothing was read, and it waits %s", d)
		}
	})
}
