package writer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// hanging is a service that never answers what it is asked before a time, and that may
// apply it nevertheless, long after it was asked.
type hanging struct {
	service
	until time.Time     // what comes before it is not answered
	late  time.Duration // after which that is applied; 0: it is not

	mu    sync.Mutex
	cells map[string]string // row/family:qualifier@time → value
	at    map[string]time.Duration
	start time.Time
}

func newHanging(outage, late time.Duration) *hanging {
	h := &hanging{until: time.Now().Add(outage), late: late, cells: map[string]string{}, at: map[string]time.Duration{}, start: time.Now()}
	h.stream, h.check = h.answer, h.checkRow
	return h
}

func (h *hanging) answer(_ int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
	if time.Now().Before(h.until) {
		if h.late > 0 {
			time.Sleep(h.late)
			h.write(r.Entries)
		}
		<-out.Context().Done()
		return out.Context().Err()
	}
	h.write(r.Entries)
	return h.respond(r, nil, out)
}

func (h *hanging) checkRow(ctx context.Context, _ int, _ *bigtablepb.CheckAndMutateRowRequest) error {
	if time.Now().Before(h.until) {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// write applies sets and deletions of rows.
func (h *hanging) write(entries []*bigtablepb.MutateRowsRequest_Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range entries {
		row := string(e.RowKey)
		if _, again := h.at[row]; !again {
			h.at[row] = time.Since(h.start)
		}
		for _, m := range e.Mutations {
			switch m := m.Mutation.(type) {
			case *bigtablepb.Mutation_SetCell_:
				c := m.SetCell
				h.cells[fmt.Sprintf("%s/%s:%s@%d", row, c.FamilyName, c.ColumnQualifier, c.TimestampMicros)] = string(c.Value)
			case *bigtablepb.Mutation_DeleteFromRow_:
				for cell := range h.cells {
					if len(cell) > len(row) && cell[:len(row)+1] == row+"/" {
						delete(h.cells, cell)
					}
				}
			}
		}
	}
}

func (h *hanging) value(cell string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cells[cell]
}

func deleteRow(key string) Entry {
	e := set(key)
	e.Row.Mutations = []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}}
	return e
}

func setValue(key string, micros int64, value string) Entry {
	e := set(key)
	e.Row.Mutations = []*bigtablepb.Mutation{setCell("cf", micros)}
	e.Row.Mutations[0].GetSetCell().Value = []byte(value)
	return e
}

// recovered is how late after the table's recovery an entry may be applied that is
// harmless when it is applied late.
const recovered = 10 * time.Second

// covers: SNK-34
func TestHungCallsAreGivenUpSoonAfterTheTableAnswers(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, 45 * time.Second, 3 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHanging(outage, 0)
				w := start(t, &h.service)
				var wg sync.WaitGroup
				for i := range 20 { // four calls of one entry and more, all of which hang
					key := fmt.Sprint("row-", i)
					e := set(key)
					switch i % 4 {
					case 1:
						e = add(key, "0123456789")
					case 2:
						e = marked(add(key, ""))
					}
					wg.Go(func() { wantApplied(t, w.Apply(within(t, 4*time.Minute), []Entry{e})) })
					synctest.Wait()
				}
				wg.Wait()
				if late := time.Since(h.until); late > recovered {
					t.Errorf("the last is applied %v after the table answers again", late)
				}
			})
		})
	}
}

// What may not be sent twice waits for its call's end, and is applied once; nothing else
// waits with it.
func TestWhatIsNotHarmlessWaitsForItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(5*time.Second, 0)
		w := start(t, &h.service)
		var wg sync.WaitGroup
		errs := map[string]error{}
		var mu sync.Mutex
		apply := func(name string, e Entry, from, to time.Duration) {
			wg.Go(func() {
				err := w.Apply(within(t, 4*time.Minute), []Entry{e})[0]
				mu.Lock()
				defer mu.Unlock()
				errs[name] = err
				if at := time.Since(h.start); at < from || at > to {
					t.Errorf("%s ends after %v", name, at)
				}
			})
			synctest.Wait()
		}
		apply("add", add("a", ""), time.Minute, 62*time.Second)
		apply("delete", deleteRow("d"), time.Minute, 75*time.Second)
		apply("set", set("s"), 5*time.Second, 15*time.Second)
		wg.Wait()
		if errs["add"] == nil || errs["delete"] != nil || errs["set"] != nil {
			t.Errorf("%v", errs)
		}
		sent := 0
		for _, keys := range h.requests {
			if slices.Contains(keys, "a") {
				sent++
			}
		}
		if sent != 1 {
			t.Errorf("the add was sent %d times", sent)
		}
	})
}

// A hung call that is applied after all, long after its entry was sent again and its
// successors came, must not undo them: those that it would undo are sent when it has
// ended, in the same Apply call as in later ones.
func TestALateApplicationUndoesNothing(t *testing.T) {
	const old, other = "k/cf:q@1000", "k/cf:q@2000"
	for name, c := range map[string]struct {
		first, then Entry
		waits       bool
		want        map[string]string
	}{
		"another value in the same cell": {setValue("k", 1000, "old"), setValue("k", 1000, "new"), true, map[string]string{old: "new"}},
		"a delete":                       {setValue("k", 1000, "old"), deleteRow("k"), true, map[string]string{old: ""}},
		"another version":                {setValue("k", 1000, "old"), setValue("k", 2000, "new"), false, map[string]string{old: "old", other: "new"}},
		"the same once more":             {setValue("k", 1000, "old"), setValue("k", 1000, "old"), false, map[string]string{old: "old"}},
		"another row":                    {setValue("k", 1000, "old"), setValue("l", 1000, "new"), false, map[string]string{old: "old", "l/cf:q@1000": "new"}},
	} {
		for _, together := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/together=%t", name, together), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHanging(2*time.Second, 50*time.Second)
					w := start(t, &h.service)
					ctx := within(t, 4*time.Minute)
					if together {
						wantApplied(t, w.Apply(ctx, []Entry{c.first, c.then}))
					} else {
						wantApplied(t, w.Apply(ctx, []Entry{c.first}))
						if took := time.Since(h.start); took > 2*time.Second+recovered {
							t.Errorf("the first takes %v", took)
						}
						wantApplied(t, w.Apply(ctx, []Entry{c.then}))
					}
					if took := time.Since(h.start); c.waits != (took > time.Minute) || took > 65*time.Second {
						t.Errorf("both take %v", took)
					}
					time.Sleep(2 * time.Minute) // all that was sent is applied
					for cell, want := range c.want {
						if got := h.value(cell); got != want {
							t.Errorf("%s is %q, want %q", cell, got, want)
						}
					}
				})
			})
		}
	}
}

// A call's deadline reaches the service a little later than it was counted here. What waits
// for the call's end waits for that, too: neither the entry nor its successor is sent while
// the service may still apply the call.
func TestACallThatIsAppliedJustAfterItsDeadlineUndoesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		first   Entry
		ordered bool
	}{
		"a delete":              {deleteRow("k"), false},
		"a set, under ordering": {setValue("k", 1000, "old"), true},
		"a set":                 {setValue("k", 1000, "old"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHanging(2*time.Second, attemptTimeout+lateMargin/2)
				w := start(t, &h.service, func(cfg *Config) { cfg.Ordered = c.ordered })
				ctx := within(t, 4*time.Minute)
				wantApplied(t, w.Apply(ctx, []Entry{c.first}))
				wantApplied(t, w.Apply(ctx, []Entry{setValue("k", 1000, "new")}))
				time.Sleep(2 * time.Minute)
				if got := h.value("k/cf:q@1000"); got != "new" {
					t.Errorf("the cell is %q, want new", got)
				}
			})
		})
	}
}

// An entry that its first call turns out to have applied may be in a second one, which was
// sent meanwhile: that one undoes nothing either.
func TestASecondCallThatIsAppliedAfterTheFirstUndoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(0, 0)
		h.stream = func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			switch n {
			case 1:
				time.Sleep(leastPatience + time.Second)
			case 2:
				time.Sleep(attemptTimeout - time.Second)
				h.write(r.Entries)
				<-out.Context().Done()
				return out.Context().Err()
			}
			h.write(r.Entries)
			return h.respond(r, nil, out)
		}
		w := start(t, &h.service)
		ctx := within(t, 4*time.Minute)
		wantApplied(t, w.Apply(ctx, []Entry{setValue("k", 1000, "old")}))
		if took := time.Since(h.start); took > leastPatience+2*time.Second {
			t.Errorf("the first takes %v", took)
		}
		wantApplied(t, w.Apply(ctx, []Entry{setValue("k", 1000, "new")}))
		time.Sleep(2 * time.Minute)
		if got := h.value("k/cf:q@1000"); got != "new" {
			t.Errorf("the cell is %q, want new", got)
		}
	})
}

// Under message ordering a successor may come to another process, which knows nothing of
// the hung call: nothing is sent beside it.
func TestUnderOrderingNothingIsSentBesideAHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(2*time.Second, 50*time.Second)
		w := start(t, &h.service, func(c *Config) { c.Ordered = true })
		wantApplied(t, w.Apply(within(t, 4*time.Minute), []Entry{set("k")}))
		if took := time.Since(h.start); took < time.Minute {
			t.Errorf("applied after %v, and the first call had not ended", took)
		}
	})
}

// What the service says of a call that goes on is known: such an entry is not sent again,
// whether it says so before the call is given up or after.
func TestWhatAHungCallAnswersIsNotSentAgain(t *testing.T) {
	for _, after := range []time.Duration{time.Second, leastPatience + 20*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{}
			s.stream = func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
				if n > 1 {
					return s.respond(r, nil, out)
				}
				time.Sleep(after)
				if err := out.Send(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Index: 1}}}); err != nil {
					return err
				}
				<-out.Context().Done()
				return out.Context().Err()
			}
			wantApplied(t, start(t, s).Apply(within(t, 4*time.Minute), sets(3)))
			if len(s.requests) != 2 || len(s.requests[1]) != 2 || s.appliedTimes("row-00001") != 0 {
				t.Errorf("after %v: requests %v", after, s.requests)
			}
		})
	}
}

// A table whose calls take longer than the patience is slow, not silent: it is learned
// after one of them, and what is sent twice is bounded.
func TestASlowTableIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{mutate: func(ctx context.Context, _ int, _ *bigtablepb.MutateRowsRequest) ([]*spb.Status, error) {
			select {
			case <-time.After(7 * time.Second):
				return nil, nil
			case <-ctx.Done():
				return nil, status.Error(codes.Canceled, "gone")
			}
		}}
		w := start(t, s)
		for i := range 20 {
			wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set(fmt.Sprint("row-", i))}))
		}
		if n := s.count("MutateRows"); n > 23 {
			t.Errorf("%d requests for 20 entries", n)
		}
	})
}

// A call that hangs beside others that are answered is given up as well: its connection
// may be broken, and the table is not.
func TestOneHungCallAmongOthersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.stream = func(n int, r *bigtablepb.MutateRowsRequest, out bigtablepb.Bigtable_MutateRowsServer) error {
			if n == 1 {
				<-out.Context().Done()
				return out.Context().Err()
			}
			return s.respond(r, nil, out)
		}
		w := start(t, s)
		begin := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			wantApplied(t, w.Apply(within(t, 4*time.Minute), []Entry{set("hung")}))
			if took := time.Since(begin); took > 2*leastPatience {
				t.Errorf("the hung one takes %v", took)
			}
		})
		synctest.Wait()
		for i := range 50 {
			begin := time.Now()
			wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set(fmt.Sprint("row-", i))}))
			if took := time.Since(begin); took > time.Millisecond {
				t.Errorf("another takes %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
	})
}

// closingConn counts how often it is closed.
type closingConn struct {
	Conn
	closed *atomic.Int64
}

func (c closingConn) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// A connection over which nothing is answered is replaced, and closed once its calls have ended.
func TestASilentConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, live := newHanging(time.Hour, 0), &service{}
		deadDial, liveDial := dead.serve(t), live.serve(t)
		var dials, closed atomic.Int64
		w := start(t, live, func(c *Config) {
			c.Dial = func(ctx context.Context, project, instance string) (Conn, error) {
				dial := liveDial
				if dials.Add(1) == 1 {
					dial = deadDial
				}
				conn, err := dial(ctx, project, instance)
				return closingConn{conn, &closed}, err
			}
		})
		begin := time.Now()
		wantApplied(t, w.Apply(within(t, 4*time.Minute), []Entry{set("a"), set("b")}))
		if took := time.Since(begin); took > recovered || dials.Load() != 2 {
			t.Errorf("applied after %v over %d connections", took, dials.Load())
		}
		synctest.Wait()
		if closed.Load() != 1 {
			t.Errorf("%d connections closed", closed.Load())
		}
		wantApplied(t, w.Apply(within(t, 4*time.Minute), sets(10)))
		if dials.Load() != 2 {
			t.Errorf("%d connections", dials.Load())
		}
		if err := w.Close(t.Context()); err != nil || closed.Load() != 2 {
			t.Errorf("%v, %d connections closed", err, closed.Load())
		}
	})
}

// covers: SNK-35
func TestWhatIsHarmlessWhenItIsAppliedLate(t *testing.T) {
	clock := set("k")
	clock.Row.Mutations[0].GetSetCell().TimestampMicros = -1
	both := set("k")
	both.Row.Mutations = append(both.Row.Mutations, deleteFamily("cf"))
	foreign := add("k", "")
	foreign.Unless = column("seen", "q")
	underDelete := marked(deleteRow("k"))
	for name, c := range map[string]struct {
		entry Entry
		want  bool
	}{
		"a set":                           {set("k"), true},
		"an add under a token":            {add("k", "12345678"), true},
		"an add under its marker":         {marked(add("k", "")), true},
		"a delete under its marker":       {underDelete, true},
		"a set by the service's clock":    {clock, false},
		"an add":                          {add("k", ""), false},
		"an add under a short token":      {add("k", "1234567"), false},
		"an add under another's marker":   {foreign, false},
		"a delete":                        {deleteRow("k"), false},
		"a set beside a delete":           {both, false},
		"a set of another table's schema": {setIn(pipeline.TableRef{Project: "p"}, "k"), true},
	} {
		w := start(t, &service{})
		r := w.newRequest(t.Context(), []Entry{c.entry})
		if got := harmlessLate(&r.items[0]); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
