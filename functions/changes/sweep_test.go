package changes_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/race"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

// partition returns the only partition.
func (r *rig) partition() *ledger.Partition {
	r.t.Helper()
	top, err := r.ledger(r.store).Topology(r.t.Context(), streamID)
	if err != nil || len(top.Partitions) != 1 {
		r.t.Fatalf("%v, %v", top, err)
	}
	return top.Partitions[0]
}

// taskOf is a task of partitions.
func taskOf(t *testing.T, partitions ...*ledger.Partition) []byte {
	t.Helper()
	c := task.Changes{Version: task.Version, Stream: "feed"}
	for _, p := range partitions {
		c.Partitions = append(c.Partitions, p.Incarnation)
	}
	data, err := task.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A visit that reads only heartbeats takes one read of the ledger and no write, unless the
// position has got older than a twentieth of the retention; it never gets older than a
// tenth. A change that a filter drops moves it.
//
// stream-case: 37
func TestAVisitWithoutChangesWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "filter: {families: {include: [cf]}, dropEmpty: true}, "+toLog)
		meter := ledger.NewMeter(r.store)
		reader := r.cfg
		reader.Ledger = r.ledger(meter)
		writes, unwatched, hours := int64(0), 0, 24
		if race.Enabled {
			hours = 6
		}
		for minute := range hours * 60 {
			next := time.Now().Add(time.Minute)
			r.tick()
			p := r.partition()
			if age := time.Since(p.LowWatermark); age > retention/10 {
				t.Fatalf("in minute %d the position is %s old", minute, age)
			}
			for _, data := range r.take() {
				before := meter.Usage()
				r.deliver(t.Context(), reader, data)
				used := meter.Usage().Minus(before)
				writes += used.Writes
				refresh := p.Now().Sub(p.LowWatermark) >= retention/20
				if p.Watched && !r.partition().Watched { // it has been idle for long, which is noted once
					unwatched++
					used.Reads, used.Writes = used.Reads-1, used.Writes-1
				}
				if minute > 0 && (used.Reads != 1 || refresh != (used.Writes == 1) || used.Writes > 1) {
					t.Errorf("in minute %d, with a position %s old, a visit takes %+v", minute, p.Now().Sub(p.LowWatermark), used)
				}
			}
			time.Sleep(time.Until(next))
		}
		if most := int64(4 + hours*60/72); writes > most || writes < most/2 || unwatched != 1 {
			t.Errorf("%d writes in %d hours without changes, the most is %d; unwatched %d times", writes, hours, most, unwatched)
		}
		if got := kinds(r.outcomes()); got["idle"] < hours*6-4 || got["idle"] > hours*6+10 || len(got) > 1 {
			t.Errorf("visits of %d hours: %v, with maxIdle: 10m", hours, got)
		}
		was := r.partition()
		r.mutate("a", setCell("other", "x", "1"))
		r.deliver(t.Context(), reader, taskOf(t, was))
		if now := r.partition(); !now.MovedAt.After(was.MovedAt) || len(r.records) > 0 {
			t.Errorf("a change that the filter drops leaves the position at %s; %d records", now.MovedAt, len(r.records))
		}
	})
}

// A process dies at each of its calls of the ledger while it visits an idle partition that
// has a change, or a position to be refreshed: nothing is lost.
func TestAVisitWithoutALeaseMayDieAnywhere(t *testing.T) {
	faults := []storetest.Fault{storetest.FaultCrash, storetest.FaultCrashAfter, storetest.FaultReplyLost, storetest.FaultRepeated}
	if race.Enabled {
		faults = faults[1:2]
	}
	for _, fault := range faults {
		for call := 0; ; call++ {
			calls := 0
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, toLog)
				for range 90 {
					r.round()
				}
				p := r.partition()
				faulty := r.cfg
				faulty.Ledger = r.ledger(&storetest.Faulty{Store: r.store, Next: func(bool) storetest.Fault {
					if calls++; calls == call+1 {
						return fault
					}
					return storetest.FaultNone
				}})
				if p.Idle == 0 || time.Since(p.LowWatermark) > retention/10 {
					t.Fatalf("idle %s, the position is %s old", p.Idle, time.Since(p.LowWatermark))
				}
				r.deliver(t.Context(), faulty, taskOf(t, p)) // nothing has changed
				r.set("a", 1)
				r.deliver(t.Context(), faulty, taskOf(t, p))
				r.set("a", 2)
				for range 15 {
					r.round()
				}
				if got := fmt.Sprint(r.values()); got != "map[a:[1 2]]" {
					t.Errorf("fault %d at call %d: %s", fault, call, got)
				}
				if err := r.held(); err != nil {
					t.Error(err)
				}
			})
			if calls <= call {
				break
			}
		}
	}
}

// open counts the change streams that are open, and that were opened.
type open struct {
	grpc.ClientConnInterface
	now, all atomic.Int32
}

// NewStream implements grpc.ClientConnInterface.
func (o *open) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if strings.HasSuffix(method, "/ReadChangeStream") {
		o.all.Add(1)
		o.now.Add(1)
		context.AfterFunc(ctx, func() { o.now.Add(-1) })
	}
	return o.ClientConnInterface.NewStream(ctx, d, method, opts...)
}

// swept is a rig of n idle partitions whose streams are counted.
func swept(t *testing.T, options string, n int) (*rig, *open) {
	var splits []string
	for i := 1; i < n; i++ {
		splits = append(splits, fmt.Sprintf("%05d", i))
	}
	r := newRig(t, options, splits...)
	r.round()
	r.round()
	o := &open{ClientConnInterface: r.conn}
	r.cfg.Conn = o
	r.outcomes()
	return r, o
}

// One invocation sweeps hundreds of idle partitions, maxStreams of them at a time, each for
// one heartbeat, and ends when all are caught up. Changes that it meets are delivered.
//
// covers: CS-03, CSQ-20
func TestASweepReadsHundredsOfIdlePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, streams = 300, 30
		r, o := swept(t, fmt.Sprintf("maxStreams: %d, %s", streams, toLog), n)
		for len(r.tasks) == 0 {
			time.Sleep(time.Minute)
			r.tick()
		}
		tasks := r.take()
		if len(tasks) != 1 {
			t.Fatalf("%d tasks of %d idle partitions", len(tasks), n)
		}
		r.set("00007x", 7)
		began := time.Now()
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			r.deliver(t.Context(), r.cfg, tasks[0])
		}()
		most := int32(0)
		for ended := false; !ended; most = max(most, o.now.Load()) {
			select {
			case <-swept:
				ended = true
			case <-time.After(333 * time.Millisecond): // between two openings
			}
		}
		if d := time.Since(began); d < n/streams*time.Second || d > (n/streams+5)*time.Second {
			t.Errorf("a sweep of %d partitions by %d streams takes %s", n, streams, d)
		}
		if most != streams || o.all.Load() != n+1 { // one is opened again, under its lease
			t.Errorf("%d streams were open at a time, %d in all", most, o.all.Load())
		}
		if got := kinds(r.outcomes()); got["idle"] != n || fmt.Sprint(r.values()) != "map[00007x:[7]]" {
			t.Errorf("%v, %v: %s", got, r.values(), r.log)
		}
	})
}

// A partition whose low watermark stalls holds a sweep up for three heartbeats. Partitions that
// a sweep does not reach before its window ends are read by another invocation at once.
func TestASweepThatDoesNotEndLeavesTheRestToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, streams = 80, 10
		r, _ := swept(t, fmt.Sprintf("maxStreams: %d, window: 10s, %s", streams, toLog), n)
		if err := r.emulator.SetStream(tableName, emulator.StreamSettings{LowWatermark: time.Now().Add(-time.Minute)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.tick()
		tasks := r.take()
		began := time.Now()
		invocations := 0
		for ; len(tasks) > 0; tasks = r.take() {
			for _, data := range tasks {
				r.deliver(t.Context(), r.cfg, data)
				invocations++
			}
		}
		// Three rounds of ten fit into ten seconds, and partitions that are cut off wait for a tick.
		if got := kinds(r.outcomes()); got["idle"]+got["window"] != n || got["idle"] < n*3/4-streams {
			t.Errorf("%v", got)
		}
		if d := time.Since(began); invocations != 2 || d > 21*time.Second {
			t.Errorf("%d invocations in %s", invocations, d)
		}
	})
}

// Sweeps go on side by side with everything else: a partition that two invocations sweep is
// read by one holder once a change comes.
//
// covers: CS-35
func TestSweepsAtTheSameTimeDeliverAChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := swept(t, toLog, 1)
		p := r.partition()
		r.set("a", 1)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { r.deliver(t.Context(), r.cfg, taskOf(t, p)) })
		}
		all.Wait()
		if got := kinds(r.outcomes()); len(r.records) != 1 || got["failed"] > 0 {
			t.Errorf("%d records, %v", len(r.records), got)
		}
	})
}

// Between two lists of all partitions, a tick reads only those that have had changes lately.
// Of what happens meanwhile it misses nothing: not a partition that a dead holder has left,
// and not the successors of one that has closed, whose task is lost.
func TestATickReadsOnlyPartitionsThatHadChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, lists := 500, 10 // in half an hour, one each three minutes
		if race.Enabled {
			n, lists = 350, 15
		}
		r, _ := swept(t, toLog, n)
		meter := ledger.NewMeter(r.store)
		for range 40 {
			r.round()
		}
		r.cfg.Ledger = r.ledger(meter)
		listed := 0
		tick := func() {
			t.Helper()
			before := meter.Usage()
			r.tick()
			switch used := meter.Usage().Minus(before); {
			case used.Reads >= int64(n):
				listed++
			case used.Reads > 20 || used.Writes > 2:
				t.Errorf("a tick takes %+v", used)
			}
		}
		for range 30 {
			tick()
			r.work()
			time.Sleep(time.Minute)
		}
		if listed < lists-1 || listed > lists+1 {
			t.Errorf("%d partitions are listed %d times in half an hour", n, listed)
		}

		for _, row := range []string{"00100x", "00200x"} {
			if row == "00100x" { // a holder that dies once it has the lease
				cfg := r.cfg
				cfg.Ledger = r.ledger(&storetest.Faulty{Store: r.store, Next: func(commit bool) storetest.Fault {
					if commit {
						return storetest.FaultCrashAfter
					}
					return storetest.FaultNone
				}})
				r.set(row, 1)
				r.deliver(t.Context(), cfg, taskOf(t, r.partitionOf(row)))
			} else {
				r.set(row, 1)
				r.deliver(t.Context(), r.cfg, taskOf(t, r.partitionOf(row)))
				r.set(row, 2)
				if err := r.emulator.SplitTablet(tableName, []byte(row)); err != nil {
					t.Fatal(err)
				}
				r.deliver(t.Context(), r.cfg, taskOf(t, r.partitionOf(row)))
				r.take() // the task of the successors is lost
				r.set(row, 3)
			}
			for range 3 {
				tick()
				r.work()
				time.Sleep(time.Minute)
			}
		}
		if got := fmt.Sprint(r.values()); got != "map[00100x:[1] 00200x:[1 2 3]]" {
			t.Errorf("%s: %s", got, r.log)
		}
		if err := r.held(); err != nil {
			t.Error(err)
		}
	})
}

// partitionOf returns the partition that holds a row.
func (r *rig) partitionOf(row string) *ledger.Partition {
	r.t.Helper()
	top, err := r.ledger(r.store).Topology(r.t.Context(), streamID)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range top.Partitions {
		if p.Range.Contains(row) {
			return p
		}
	}
	r.t.Fatal("no partition holds the row")
	return nil
}
