package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// counting counts the bytes of units that were yielded and not yet sent.
type counting struct{ held, most atomic.Int64 }

func (c *counting) add(n int64) {
	for now := c.held.Add(n); ; {
		most := c.most.Load()
		if now <= most || c.most.CompareAndSwap(most, now) {
			return
		}
	}
}

// holder is one of several runs whose units have n bytes; the sink takes a while.
func (c *counting) holder(units int, bytes func(int) int64, m *Memory, takes time.Duration) Job[int, int] {
	source := &numbers{n: units, wait: func(int) time.Duration { return time.Millisecond }}
	j := job(source, nil)
	j.Size = func(n int) Size { return Size{Rows: 1, Bytes: bytes(n)} }
	j.Map = func(n int, to []Record) ([]Record, error) {
		return append(to, Record{Body: make([]byte, 0), Index: n}), nil
	}
	j.Sink = &sent{before: func(_ context.Context, records []Record) []error {
		time.Sleep(takes)
		for _, r := range records {
			c.add(-bytes(r.Index))
		}
		return nil
	}}
	j.Source = yielding{source, func(n int) { c.add(bytes(n)) }}
	j.MaxBytes, j.MaxRows, j.Memory = 100, 100, m
	return j
}

// yielding tells of each unit that its source yields, before it does.
type yielding struct {
	*numbers
	tell func(int)
}

func (y yielding) Read(ctx context.Context, yield func(int) bool) error {
	return y.numbers.Read(ctx, func(n int) bool {
		y.tell(n)
		return yield(n)
	})
}

// Whatever the sizes and the sinks, all is sent, and no more is held than the memory and
// the one unit of each run that waits.
//
// covers: CS-05
func TestRunsShareTheirMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.Int64Range(1, 300).Draw(rt, "total")
		runs := rapid.IntRange(1, 6).Draw(rt, "runs")
		var largest int64
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 350), 5, 5).Draw(rt, "sizes")
		for _, s := range sizes {
			largest = max(largest, s)
		}
		takes := make([]time.Duration, runs)
		for i := range takes {
			takes[i] = time.Duration(rapid.IntRange(0, 50).Draw(rt, "takes")) * time.Millisecond
		}
		synctest.Test(t, func(t *testing.T) {
			m, c := NewMemory(total), &counting{}
			var all sync.WaitGroup
			for i := range runs {
				j := c.holder(40, func(n int) int64 { return sizes[n%len(sizes)] }, m, takes[i])
				all.Go(func() {
					if r, err := Run(t.Context(), t.Context(), j); err != nil || !r.Done || r.Rows != 40 {
						rt.Errorf("%+v, %v", r, err)
					}
				})
			}
			all.Wait()
			if most := max(total, largest) + int64(runs)*largest; c.most.Load() > most {
				rt.Errorf("%d bytes were held, the most is %d", c.most.Load(), most)
			}
			if !m.room.TryAcquire(total) {
				rt.Error("memory is still held when all runs have ended")
			}
		})
	})
}

func TestARunThatFailsGivesItsMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := NewMemory(250), &counting{}
		j := c.holder(40, func(int) int64 { return 60 }, m, time.Second)
		down := errors.New("down")
		j.Sink = &sent{before: func(_ context.Context, records []Record) []error {
			time.Sleep(time.Second) // meanwhile more is read, and waits
			errs := make([]error, len(records))
			errs[0] = down
			return errs
		}}
		if _, err := Run(t.Context(), t.Context(), j); !errors.Is(err, down) {
			t.Errorf("%v, want %v", err, down)
		}
		if !m.room.TryAcquire(250) {
			t.Error("memory is still held")
		}
	})
}
