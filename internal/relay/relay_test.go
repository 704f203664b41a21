package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// numbers yields 1 to n, each after a wait; then it fails with err.
type numbers struct {
	n    int
	wait func(i int) time.Duration
	err  error
	read atomic.Int64 // yielded
}

func (s *numbers) Read(ctx context.Context, yield func(int) bool) error {
	for i := 1; i <= s.n; i++ {
		if s.wait != nil {
			select {
			case <-time.After(s.wait(i)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.read.Add(1)
		if !yield(i) {
			return nil
		}
	}
	return s.err
}

// sent is a sink that keeps what it takes.
type sent struct {
	batches [][]string
	before  func(ctx context.Context, records []Record) []error // nil: takes all
}

func (s *sent) Send(ctx context.Context, records []Record) []error {
	var errs []error
	if s.before != nil {
		errs = s.before(ctx, records)
	}
	var ids []string
	for i, r := range records {
		if errs == nil || errs[i] == nil {
			ids = append(ids, r.Key)
		}
	}
	s.batches = append(s.batches, ids)
	return errs
}

func (s *sent) all() []string { return slices.Concat(s.batches...) }

// job relays one record for each number, a byte each.
func job(source Source[int], sink Sink) Job[int, int] {
	return Job[int, int]{
		Source: source, Sink: sink, MaxRows: 10, MaxBytes: 1000, Linger: 10 * time.Millisecond, CommitEvery: 5 * time.Second,
		Position: func(n int) int { return n },
		Size:     func(int) Size { return Size{Rows: 1, Bytes: 1} },
		Map:      func(n int, to []Record) ([]Record, error) { return append(to, Record{Key: fmt.Sprint(n)}), nil },
		GiveUp:   func(context.Context, []Failure[int]) error { return nil },
		Commit:   func(context.Context, int, Counts) error { return nil },
	}
}

func ids(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// covers: SC-01, SC-09
func TestABatchEndsAtItsRowsOrItsBytes(t *testing.T) {
	for name, c := range map[string]struct {
		rows  int
		bytes int64
		size  func(int) int64
		want  []int
	}{
		"rows":                    {4, 1000, func(int) int64 { return 1 }, []int{4, 4, 2}},
		"bytes":                   {100, 30, func(int) int64 { return 10 }, []int{3, 3, 3, 1}},
		"what does not fit waits": {100, 25, func(int) int64 { return 10 }, []int{2, 2, 2, 2, 2}},
		"what is over the bound goes on alone": {100, 25, func(n int) int64 {
			if n == 3 {
				return 1000
			}
			return 10
		}, []int{2, 1, 2, 2, 2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &sent{}
				j := job(&numbers{n: 10}, sink)
				j.MaxRows, j.MaxBytes, j.Linger = c.rows, c.bytes, time.Hour
				j.Size = func(n int) Size { return Size{Rows: 1, Bytes: c.size(n)} }
				r, err := Run(t.Context(), t.Context(), j)
				if err != nil || !r.Done || r.Rows != 10 || r.Records != 10 || r.Last != 10 {
					t.Fatalf("result %+v, %v", r, err)
				}
				var sizes []int
				for _, b := range sink.batches {
					sizes = append(sizes, len(b))
				}
				if !slices.Equal(sizes, c.want) || !slices.Equal(sink.all(), ids(1, 10)) {
					t.Errorf("batches of %v holding %v, want %v", sizes, sink.all(), c.want)
				}
			})
		})
	}
}

// covers: SC-10, SC-25
func TestASlowSinkSlowsTheSourceAndHoldsTwoBatchesAndOneRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &numbers{n: 1000}
		var most int64
		done := int64(0)
		sink := &sent{before: func(_ context.Context, records []Record) []error {
			time.Sleep(time.Minute)
			synctest.Wait()
			most = max(most, source.read.Load()-done)
			done += int64(len(records))
			return nil
		}}
		j := job(source, sink)
		if r, err := Run(t.Context(), t.Context(), j); err != nil || !r.Done {
			t.Fatalf("%+v, %v", r, err)
		}
		if want := int64(2*j.MaxRows + 1); most != want {
			t.Errorf("%d rows were held at most, want two batches and one: %d", most, want)
		}
	})
}

func TestReadingOverlapsWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &numbers{n: 100, wait: func(int) time.Duration { return time.Second }}
		sink := &sent{before: func(context.Context, []Record) []error { time.Sleep(10 * time.Second); return nil }}
		j := job(source, sink)
		j.Linger = time.Hour
		began := time.Now()
		if _, err := Run(t.Context(), t.Context(), j); err != nil {
			t.Fatal(err)
		}
		// 100 s of reading and 100 s of writing, one batch apart.
		if took := time.Since(began); took != 110*time.Second {
			t.Errorf("took %s, want 1m50s", took)
		}
	})
}

func TestALoneRowIsSentSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &numbers{n: 2, wait: func(int) time.Duration { return time.Hour }}
		var times []time.Duration
		began := time.Now()
		sink := &sent{before: func(context.Context, []Record) []error { times = append(times, time.Since(began)); return nil }}
		if _, err := Run(t.Context(), t.Context(), job(source, sink)); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{time.Hour + 10*time.Millisecond, 2 * time.Hour}; !slices.Equal(times, want) {
			t.Errorf("sent after %v, want %v", times, want)
		}
	})
}

// covers: SC-05, SC-06
func TestWhatIsCommittedIsWhatTheSinkHasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &numbers{n: 300, wait: func(int) time.Duration { return 100 * time.Millisecond }}
		acked := 0
		sink := &sent{before: func(_ context.Context, records []Record) []error {
			time.Sleep(time.Second) // meanwhile more is read
			acked += len(records)
			return nil
		}}
		j := job(source, sink)
		j.Linger = time.Hour
		var times []time.Time
		j.Commit = func(_ context.Context, last int, c Counts) error {
			if last != acked || c.Records != int64(acked) || c.Rows != int64(acked) {
				t.Errorf("committed %d with %+v, and %d are acknowledged", last, c, acked)
			}
			times = append(times, time.Now())
			return nil
		}
		if _, err := Run(t.Context(), t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if len(times) < 4 {
			t.Fatalf("%d commits in half a minute", len(times))
		}
		for i := range times[1:] {
			if d := times[i+1].Sub(times[i]); d < j.CommitEvery {
				t.Errorf("two commits %s apart, want %s at least", d, j.CommitEvery)
			}
		}
	})
}

// A crash during the silence must not repeat what came before it.
func TestWhatIsAcknowledgedIsCommittedWhileTheSourceIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &numbers{n: 4, wait: func(i int) time.Duration {
			if i == 4 {
				return time.Minute
			}
			return time.Second
		}}
		j := job(source, &sent{})
		began := time.Now()
		var commits []string
		j.Commit = func(_ context.Context, last int, c Counts) error {
			commits = append(commits, fmt.Sprintf("%d of %d after %s", last, c.Records, time.Since(began)))
			return nil
		}
		if r, err := Run(t.Context(), t.Context(), j); err != nil || !r.Done {
			t.Fatalf("%+v, %v", r, err)
		}
		if want := []string{"3 of 3 after 5s", "4 of 4 after 1m3s"}; !slices.Equal(commits, want) {
			t.Errorf("committed %v, want %v: nothing again in the silence", commits, want)
		}
	})
}

func TestALostLeaseStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		sink := &sent{before: func(context.Context, []Record) []error { time.Sleep(6 * time.Second); return nil }}
		j := job(&numbers{n: 1000}, sink)
		j.Commit = func(context.Context, int, Counts) error { return lost }
		r, err := Run(t.Context(), t.Context(), j)
		if !errors.Is(err, lost) || len(sink.batches) != 1 || r.Done {
			t.Errorf("%d batches were sent, error %v: want one and the loss", len(sink.batches), err)
		}
	})
}

func TestNothingIsSentOnceTheRightToSendIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(90 * time.Second)
		var cut error
		sink := &sent{before: func(ctx context.Context, records []Record) []error {
			if time.Since(until) >= 0 {
				t.Error("sent after the lease was over")
			}
			select {
			case <-time.After(40 * time.Second):
				return nil
			case <-ctx.Done():
				cut = context.Cause(ctx)
				return slices.Repeat([]error{cut}, len(records))
			}
		}}
		j := job(&numbers{n: 1000}, sink)
		j.CommitEvery = time.Hour
		j.Held = func() time.Time { return until }
		r, err := Run(t.Context(), t.Context(), j)
		if !errors.Is(err, ErrOvertaken) || !errors.Is(cut, ErrOvertaken) || r.Last != 20 {
			t.Errorf("result %+v, %v: want the two batches that fit into 90 s, and %v", r, err, ErrOvertaken)
		}
	})
}

// covers: SC-03
// A worker that is paused while it makes records wakes up when another has the rows:
// that one hands them to the policy, too.
func TestNothingIsGivenUpOnceTheRightToSendIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, given := &sent{}, 0
		j := job(&numbers{n: 30}, sink)
		over := time.Now().Add(90 * time.Second)
		j.Held = func() time.Time { return over }
		j.Map = func(n int, to []Record) ([]Record, error) {
			if n == 11 {
				time.Sleep(2 * time.Minute)
			}
			return to, errors.New("no record can be made of it")
		}
		j.GiveUp = func(ctx context.Context, f []Failure[int]) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			given += len(f)
			return nil
		}
		r, err := Run(t.Context(), t.Context(), j)
		if !errors.Is(err, ErrOvertaken) || given != 10 || r.Last != 10 || r.Dropped != 10 {
			t.Errorf("%d given up, result %+v, %v: want those of the first batch, and %v", given, r, err, ErrOvertaken)
		}
	})
}

func TestTheEndOfASliceDeliversWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slice, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		defer cancel()
		sink := &sent{}
		r, err := Run(t.Context(), slice, job(&numbers{n: 1000, wait: func(int) time.Duration { return 7 * time.Second }}, sink))
		if err != nil || r.Done || r.Last != 6 || !slices.Equal(sink.all(), ids(1, 6)) {
			t.Errorf("result %+v, %v, sent %v: want the six rows of 45 s", r, err, sink.all())
		}
	})
}

// issue-row: 23
func TestASourceThatStallsEndsWithTheSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slice, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		defer cancel()
		began := time.Now()
		r, err := Run(t.Context(), slice, job(&numbers{n: 2, wait: func(i int) time.Duration { return time.Duration(i*i) * 30 * time.Second }}, &sent{}))
		if took := time.Since(began); err != nil || r.Done || r.Last != 1 || took != 45*time.Second {
			t.Errorf("result %+v, %v after %s", r, err, took)
		}
	})
}

// covers: SC-18
func TestWhatIsReadBeforeAFailureIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		sink := &sent{}
		r, err := Run(t.Context(), t.Context(), job(&numbers{n: 25, err: broken}, sink))
		if !errors.Is(err, broken) || r.Done || r.Last != 25 || !slices.Equal(sink.all(), ids(1, 25)) {
			t.Errorf("result %+v, %v, sent %v", r, err, sink.all())
		}
	})
}

// covers: SC-17
func TestARowMayYieldManyRecordsOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &sent{}
		j := job(&numbers{n: 4}, sink)
		j.Map = func(n int, out []Record) ([]Record, error) {
			for i := range n - 1 {
				out = append(out, Record{Key: fmt.Sprintf("%d.%d", n, i)})
			}
			return out, nil
		}
		r, err := Run(t.Context(), t.Context(), j)
		if err != nil || r.Rows != 4 || r.Records != 6 || r.Last != 4 {
			t.Errorf("result %+v, %v", r, err)
		}
		if want := []string{"2.0", "3.0", "3.1", "4.0", "4.1", "4.2"}; !slices.Equal(sink.all(), want) {
			t.Errorf("sent %v, want %v", sink.all(), want)
		}
	})
}

// refuseSome makes of each number that matches what a sink says of it.
func refuse(verdicts map[string]error) func(context.Context, []Record) []error {
	return func(_ context.Context, records []Record) []error {
		errs := make([]error, len(records))
		for i, r := range records {
			errs[i] = verdicts[r.Key]
		}
		return errs
	}
}

func TestWhatCanNeverBeDeliveredGoesToThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &sent{before: refuse(map[string]error{"7": &retry.Rejected{Reason: "too large"}})}
		j := job(&numbers{n: 9}, sink)
		j.Map = func(n int, to []Record) ([]Record, error) {
			if n == 3 {
				return nil, errors.New("no such key")
			}
			return append(to, Record{Key: fmt.Sprint(n)}), nil
		}
		var got []string
		j.GiveUp = func(_ context.Context, failures []Failure[int]) error {
			for _, f := range failures {
				got = append(got, fmt.Sprintf("%d %t %v", f.Position, f.Record != nil, f.Err))
			}
			return nil
		}
		r, err := Run(t.Context(), t.Context(), j)
		if err != nil || !r.Done || r.Counts != (Counts{Rows: 9, Records: 7, Dropped: 2, Bytes: 9}) {
			t.Errorf("result %+v, %v", r, err)
		}
		if want := []string{"3 false no such key", "7 true too large"}; !slices.Equal(got, want) {
			t.Errorf("the policy got %v, want %v", got, want)
		}
	})
}

func TestAPolicyThatFailsStopsBeforeTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &sent{before: refuse(map[string]error{"7": &retry.Rejected{Reason: "too large"}})}
		j := job(&numbers{n: 9}, sink)
		stop := errors.New("onFailure: fail")
		j.GiveUp = func(context.Context, []Failure[int]) error { return stop }
		r, err := Run(t.Context(), t.Context(), j)
		if !errors.Is(err, stop) || r.Last != 6 || r.Records != 6 {
			t.Errorf("result %+v, %v: want six rows before the one that fails", r, err)
		}
	})
}

func TestAFailedSendKeepsThePositionBeforeItsFirstRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		var gaveUp int
		j := job(&numbers{n: 30}, &sent{before: refuse(map[string]error{"14": down, "16": down, "12": &retry.Rejected{Reason: "no"}, "18": &retry.Rejected{Reason: "no"}})})
		j.GiveUp = func(_ context.Context, f []Failure[int]) error { gaveUp += len(f); return nil }
		r, err := Run(t.Context(), t.Context(), j)
		if !errors.Is(err, down) || r.Last != 13 || r.Counts != (Counts{Rows: 13, Records: 12, Dropped: 1, Bytes: 13}) {
			t.Errorf("result %+v, %v", r, err)
		}
		if gaveUp != 1 {
			t.Errorf("%d records were given up, want the one before the position: the other will be sent again", gaveUp)
		}
	})
}

// covers: SC-06, SC-22
func TestEveryUnitReachesTheSinkWhateverFails(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(rt, "n")
		maxRows := rapid.IntRange(1, 20).Draw(rt, "maxRows")
		seed := rapid.Uint64().Draw(rt, "seed")
		flaky := func() bool { seed = seed*6364136223846793005 + 1; return seed>>60 == 0 }
		synctest.Test(t, func(t *testing.T) {
			position := 0
			counts := map[string]int{}
			for tries := 0; ; tries++ {
				if tries > 2000 {
					t.Fatal("does not end")
				}
				from := position
				source := &numbers{n: n - from}
				if flaky() {
					source.n, source.err = source.n/2, errors.New("cut")
				}
				sink := &sent{before: func(_ context.Context, records []Record) []error {
					if !flaky() {
						return nil
					}
					errs := make([]error, len(records))
					errs[len(records)/2] = errors.New("down")
					return errs
				}}
				j := job(source, sink)
				j.MaxRows, j.CommitEvery = maxRows, 0
				j.Map = func(i int, to []Record) ([]Record, error) { return append(to, Record{Key: fmt.Sprint(from + i)}), nil }
				j.Commit = func(_ context.Context, last int, _ Counts) error {
					if flaky() {
						return errors.New("the ledger is down")
					}
					position = from + last
					return nil
				}
				r, err := Run(t.Context(), t.Context(), j)
				for _, id := range sink.all() {
					counts[id]++
				}
				if err == nil && r.Done {
					break
				}
				for id := 1; id <= position; id++ {
					if counts[fmt.Sprint(id)] == 0 {
						t.Fatalf("committed %d, and %d never reached the sink", position, id)
					}
				}
			}
			for id := 1; id <= n; id++ {
				if counts[fmt.Sprint(id)] == 0 {
					t.Fatalf("%d never reached the sink", id)
				}
			}
		})
	})
}
