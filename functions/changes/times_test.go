package changes_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// The low watermark stalls for two hours, and then goes back by one: each visit ends all the
// same, and each change comes once.
//
// stream-case: 39
func TestAStalledLowWatermarkLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog, "m")
		r.round()
		want := map[string][]int64{}
		stall := func(at time.Time, minutes int) {
			t.Helper()
			must(t, r.emulator.SetStream(tableName, emulator.StreamSettings{LowWatermark: at}))
			for i := range minutes {
				row := []string{"a", "z"}[i%2]
				if i%20 < 10 { // and then it is idle for ten minutes
					want[row] = append(want[row], int64(i))
					r.set(row, int64(i))
				}
				r.round()
			}
		}
		began := time.Now()
		stall(began, 120)
		stall(began.Add(-time.Hour), 60)
		stall(time.Time{}, 20)
		for _, v := range r.visits {
			if v.Duration > 5*time.Second || v.Outcome != changes.OutcomeIdle {
				t.Errorf("a visit ends %s after %s: %v", v.Outcome, v.Duration, v.Reason)
			}
		}
		for range 12 {
			r.round()
		}
		if got := r.values(); !slices.Equal(got["a"], want["a"]) || !slices.Equal(got["z"], want["z"]) || len(r.records) != len(want["a"])+len(want["z"]) {
			t.Errorf("%d records %v, want %v", len(r.records), got, want)
		}
		must(t, r.held())
	})
}

// In an hour without a change, hardly anything is read; the change after it comes within the
// longest pause and the tick after that.
//
// covers: CS-07
// stream-case: 37
func TestAChangeAfterAnIdleHourComesWithinThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "maxIdle: 5m, "+toLog, "m")
		for range 10 {
			r.round()
		}
		r.outcomes()
		for range 60 {
			r.round()
		}
		if n := len(strings.Fields(r.outcomes())); n < 20 || n > 26 {
			t.Errorf("%d visits of two partitions in an idle hour, with maxIdle: 5m", n)
		}
		r.set("a", 1)
		wrote := time.Now()
		for len(r.values()["a"]) == 0 {
			r.round()
		}
		if late := time.Since(wrote); late > 7*time.Minute {
			t.Errorf("the change comes after %s", late)
		}
	})
}

// Ticks come each second for an hour, some of them twice and while tasks of others are being
// worked on. No change comes twice, no visit fails, and a partition that has caught up is left
// alone for its pause of half a minute at least, though each tick could publish a task of it.
//
// covers: CSQ-20
// stream-case: 31, 45
func TestATickEachSecondForAnHourIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds := 3600
		if race.Enabled {
			seconds /= 4
		}
		r := newRig(t, toLog, "g", "p")
		var processes sync.WaitGroup
		start := func(data []byte) {
			processes.Go(func() {
				if data != nil {
					r.deliver(t.Context(), r.cfg, data)
				} else if code := r.serve(t.Context(), r.cfg, "/", nil); code != http.StatusNoContent {
					t.Errorf("a tick is answered with %d", code)
				}
			})
		}
		want := map[string][]int64{}
		for second := range seconds {
			start(nil)
			if second%7 == 0 {
				start(nil)
			}
			row := string(rune('a' + second%26))
			if second%90 < 45 { // and then there is no change for a while
				want[row] = append(want[row], int64(second))
				r.set(row, int64(second))
			}
			time.Sleep(time.Second)
			for _, data := range r.take() {
				start(data)
			}
		}
		processes.Wait()
		for range 12 {
			r.round()
		}
		got := r.values()
		for row := range want {
			if !slices.Equal(got[row], want[row]) {
				t.Errorf("of row %s came %v, want %v", row, got[row], want[row])
			}
		}
		outcomes := kinds(r.outcomes())
		if outcomes["failed"] > 0 || len(r.records) != seconds/2 {
			t.Errorf("%d records of %d changes, %v", len(r.records), seconds/2, outcomes)
		}
		if visits := outcomes["idle"] + outcomes["window"]; visits > 3*(12+seconds/30) {
			t.Errorf("%d visits of three partitions in %d seconds", visits, seconds)
		}
		must(t, r.held())
	})
}

// Twelve partitions, each with more changes than a window takes, share two streams: the one
// with the oldest position comes first in the tasks of each tick, and all are served.
//
// covers: CS-03
// stream-case: 42
func TestTheOldestPositionIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rows []string
		for i := range 12 {
			rows = append(rows, string(rune('b'+2*i)))
		}
		r := newRig(t, "idleStop: false, window: 20s, maxStreams: 2, "+toLog, rows[1:]...)
		r.tick()
		r.take()
		want := map[string][]int64{}
		for _, i := range rand.New(rand.NewPCG(4, 2)).Perm(len(rows)) { // at twelve times
			r.set(rows[i], 0)
			want[rows[i]] = []int64{0}
			r.deliver(t.Context(), r.cfg, taskOf(t, r.partitionOf(rows[i])))
		}
		r.outcomes()
		for range 4 {
			for _, row := range rows {
				want[row] = append(want[row], int64(len(want[row])))
				r.set(row, want[row][len(want[row])-1])
			}
			r.tick()
			last, served := time.Time{}, 0
			tasks := r.take()
			for _, data := range tasks {
				c, err := task.DecodeChanges(data)
				must(t, err)
				for _, incarnation := range c.Partitions {
					p, err := r.ledger(r.store).Partition(t.Context(), ledger.PartitionID{Stream: streamID, Incarnation: incarnation})
					must(t, err)
					if p.LowWatermark.Before(last) {
						t.Errorf("a position from %s comes after one from %s", p.LowWatermark, last)
					}
					last = p.LowWatermark
					served++
				}
			}
			if served != len(rows) {
				t.Errorf("a tick publishes %d of %d partitions", served, len(rows))
			}
			for _, data := range tasks { // one invocation after another
				r.deliver(t.Context(), r.cfg, data)
			}
		}
		if got := r.values(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
