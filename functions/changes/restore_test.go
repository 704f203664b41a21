package changes_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// A ledger is restored while a reader is at work and tasks are under way. The reader's commit
// is refused, the tasks are acknowledged and read nothing, and all that has come since the
// backup comes again, through the splits and merges since then. A backup that is restored once
// more goes on as well.
func TestAfterARestoreReadersAndTasksFromBeforeLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "window: 30s, "+toLog, "g", "p")
		r.set("a", 1)
		for range 3 {
			r.round()
		}
		r.set("a", 2)
		r.set("m", 1)
		r.round()
		store := r.store.(*storetest.Memory)
		backup := store.Backup()
		for generation := range 2 {
			next := int64(3 + 3*generation)
			r.set("a", next)
			must(t, r.emulator.SplitTablet(tableName, []byte("c")))
			r.round()
			must(t, r.emulator.MergeTablets(tableName, []byte("g"))) // of [c,g) and [g,p)
			r.set("a", next+1)
			for range 3 {
				r.round()
			}
			must(t, r.held())
			r.set("a", next+2)
			task := taskOf(t, r.partitionOf("a"), r.partitionOf("z"))
			r.outcomes()
			reading := r.cfg
			reading.CommitEvery = time.Hour // it commits at the end of its visit
			var reader sync.WaitGroup
			reader.Go(func() { r.deliver(t.Context(), reading, task) })
			time.Sleep(500 * time.Millisecond) // it has sent the change
			store.Restore(backup)
			if _, err := r.ledger(r.store).BeginEpoch(t.Context(), streamID, "restorer"); err != nil {
				t.Fatal(err)
			}
			reader.Wait()
			if !r.lostALease() {
				t.Errorf("a reader from before the restore has not lost its partition: %s", r.outcomes())
			}
			r.outcomes()
			r.deliver(t.Context(), r.cfg, task)
			if got := r.outcomes(); got != "void void" {
				t.Errorf("a task from before the restore: %s", got)
			}
			for range 8 {
				r.round()
			}
			must(t, r.held())
			must(t, r.emulator.MergeTablets(tableName, []byte("c")))
			must(t, r.emulator.SplitTablet(tableName, []byte("g")))
			for range 8 {
				r.round()
			}
			must(t, r.held())
		}
		if got := fmt.Sprint(r.values()); got != "map[a:[1 2 3 4 5 6 7 8] m:[1]]" {
			t.Errorf("%s: %s", got, r.log)
		}
		if strings.Contains(r.log.String(), "had lost their place") {
			t.Error("a key has lost its place")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lostALease reports whether a visit has found that its partition is another's.
func (r *rig) lostALease() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.visits {
		if errors.Is(v.Reason, ledger.ErrLost) {
			return true
		}
	}
	return false
}

// In the middle of chaos the ledger goes back by three minutes, while processes of before work
// on: nothing is lost, and no more comes again than since the backup.
//
// covers: CS-28
func TestChangesSurviveARestoreOfTheirLedger(t *testing.T) {
	seeds, d := 1, disorder{perSecond: 10, move: 8 * time.Second, backup: 7 * time.Minute, restore: 10 * time.Minute}
	switch {
	case os.Getenv("BTF_SOAK") != "":
		seeds, d.perSecond, d.move = 50, 167, 4*time.Second
	case race.Enabled:
		d.perSecond = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d.seed = uint64(1000 + seed)
			synctest.Test(t, func(t *testing.T) { newChaos(t, d).run() })
		})
	}
}

// restoreLater backs the ledger up and restores it. What was sent since then comes again, and so
// may all that those who live send from now on.
func (c *chaos) restoreLater() {
	time.Sleep(c.disorder.backup - changes.CommitEvery - settled)
	before := c.arrived()
	time.Sleep(changes.CommitEvery + settled)
	store := c.store.(*storetest.Memory)
	backup := store.Backup()
	time.Sleep(c.disorder.restore - c.disorder.backup)
	c.counts.Lock()
	c.allowed += c.arrived() - before
	c.counts.Unlock()
	c.stopAll()
	store.Restore(backup)
	if _, err := c.ledger(c.store).BeginEpoch(c.t.Context(), streamID, "restorer"); err != nil {
		c.t.Error(err)
	}
	c.stopAll() // also those that have begun in the meantime, and have a partition of before the epoch
}

// stopAll counts all that the live processes send from now on as what may come again.
func (c *chaos) stopAll() {
	c.counts.Lock()
	defer c.counts.Unlock()
	for p := range c.live {
		p.stops(false)
	}
}

// arrived is how many records have come, repeats included.
func (r *rig) arrived() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}
