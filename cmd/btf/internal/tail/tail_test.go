package tail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

const tableName = "projects/p/instances/i/tables/t"

// rig is a tail of an emulated table.
type rig struct {
	t        *testing.T
	emulator *emulator.Emulator
	conn     *grpc.ClientConn
	cfg      Config
	cancel   context.CancelFunc
	ended    chan error
	written  map[string]uint64

	mu      sync.Mutex
	shown   map[string][]uint64 // by row
	notices []string
}

// newRig makes a table whose tablets begin at the given keys.
func newRig(t *testing.T, splits ...string) *rig {
	t.Helper()
	r := &rig{t: t, ended: make(chan error, 1), written: map[string]uint64{}, shown: map[string][]uint64{}}
	r.emulator, r.conn = functest.Bigtable(t, emulator.Options{})
	req := &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: "t", Table: &adminpb.Table{
		ColumnFamilies:     map[string]*adminpb.ColumnFamily{"cf": {}},
		ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
	}}
	for _, s := range splits {
		req.InitialSplits = append(req.InitialSplits, &adminpb.CreateTableRequest_Split{Key: []byte(s)})
	}
	if _, err := adminpb.NewBigtableTableAdminClient(r.conn).CreateTable(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	r.cfg = Config{
		Table: btrpc.NewTable(tableName, ""), Conn: r.conn, Start: time.Now(),
		Show: func(rec *changestream.Record) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.shown[rec.RowKey] = append(r.shown[rec.RowKey], binary.BigEndian.Uint64(rec.Entries[0].Value))
			return nil
		},
		Notice: func(text string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices = append(r.notices, text)
		},
	}
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() { r.ended <- Run(ctx, r.cfg) }()
	synctest.Wait()
}

// stop ends the tail as an interrupt does.
func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		r.t.Errorf("the tail ended with %v", err)
	}
}

// set writes the next number to each of the rows.
func (r *rig) set(rows ...string) {
	r.t.Helper()
	for _, row := range rows {
		r.written[row]++
		_, err := bigtablepb.NewBigtableClient(r.conn).MutateRow(r.t.Context(), &bigtablepb.MutateRowRequest{
			TableName: tableName, RowKey: []byte(row), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{
				SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", TimestampMicros: 1000, Value: binary.BigEndian.AppendUint64(nil, r.written[row])},
			}}},
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// told returns the notices.
func (r *rig) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notices)
}

// check compares what was shown of the rows that begin with prefix with what was written.
func (r *rig) check(prefix string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	want := map[string][]uint64{}
	for row, n := range r.written {
		for i := range n {
			if strings.HasPrefix(row, prefix) {
				want[row] = append(want[row], i+1)
			}
		}
	}
	if fmt.Sprint(r.shown) != fmt.Sprint(want) {
		r.t.Errorf("shown %v, written %v; %q", r.shown, want, r.notices)
	}
}

func (r *rig) do(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// Each change is shown once, and those of one row in order, through a split, a merge, a
// shift, a move and streams that break off.
//
// covers: CS-01
// stream-case: 19, 20, 21, 32
func TestEachChangeIsShownOnceWhileTabletsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set("before")
		delete(r.written, "before")
		time.Sleep(time.Second)
		r.cfg.Start = time.Now()
		r.start()
		rows := []string{"a", "f", "m", "t", "z"}
		step := func(move error) {
			t.Helper()
			r.do(move)
			r.set(rows...)
			time.Sleep(time.Second)
			r.set(rows...)
		}
		step(nil)
		step(r.emulator.SplitTablet(tableName, []byte("g")))
		step(r.emulator.SplitTablet(tableName, []byte("p")))
		step(r.emulator.ShiftTablets(tableName, []byte("p"), []byte("k")))
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: 1, Code: codes.Unavailable, Count: 6})
		step(r.emulator.MoveTablet(tableName, []byte("g")))
		step(r.emulator.MergeTablets(tableName, []byte("g")))
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: 1, Code: codes.Aborted, Count: 3})
		step(r.emulator.MergeTablets(tableName, []byte("k")))
		time.Sleep(time.Minute)
		r.stop()
		r.check("")
	})
}

// Random splits, merges and breaks lose and repeat nothing, with and without a prefix. A
// partition that is formed again before a reader has seen its close leaves the other parent's
// token waiting; it is used after a while.
//
// stream-case: 26
func TestRandomMovesLoseAndRepeatNothing(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			prefix := []string{"", "", "c", "dd"}[seed%4]
			r := newRig(t, "c", "f")
			r.cfg.Prefix = prefix
			r.start()
			key := func() string {
				return strings.Repeat(string(rune('a'+random.IntN(8))), 1+random.IntN(3))
			}
			for range 80 {
				switch random.IntN(5) {
				case 0:
					_ = r.emulator.SplitTablet(tableName, []byte(key())) // there may be a cut already
				case 1, 2:
					tablets, err := r.emulator.Tablets(tableName)
					r.do(err)
					if i := random.IntN(len(tablets)); i > 0 {
						r.do(r.emulator.MergeTablets(tableName, []byte(tablets[i].Start)))
					}
				case 3:
					r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: random.IntN(3), Code: codes.Unavailable, Count: 1 + random.IntN(4)})
				}
				for range random.IntN(4) {
					r.set(key())
				}
				if random.IntN(3) == 0 {
					time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				}
			}
			time.Sleep(10 * time.Minute)
			r.stop()
			r.check(prefix)
		})
	}
}

// With a prefix, partitions without such keys are not read, also when one of them is merged
// with one that is.
//
// covers: CS-17
func TestAPrefixReadsOnlyThePartitionsThatHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "b", "c", "d", "e")
		r.cfg.Prefix = "c"
		opened := r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Delay: time.Nanosecond}) // counts calls
		r.start()
		r.set("a", "ca", "cz", "d", "e")
		if n := r.emulator.Faults()[0].Hits; n != 1 {
			t.Errorf("%d streams of 5 partitions are read", n)
		}
		r.emulator.RemoveFault(opened)
		r.do(r.emulator.MergeTablets(tableName, []byte("d")))
		r.set("a", "ca", "cz", "d", "e")
		r.do(r.emulator.MergeTablets(tableName, []byte("c")))
		r.do(r.emulator.SplitTablet(tableName, []byte("cm")))
		r.set("a", "ca", "cz", "d", "e")
		time.Sleep(20 * time.Second)
		r.stop()
		r.check("c")
	})
}

// A tail with an end time shows what was committed up to then, and ends.
func TestATailWithAnEndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "m")
		r.set("a", "z")
		r.do(r.emulator.SplitTablet(tableName, []byte("t")))
		r.set("a", "z")
		time.Sleep(time.Second)
		r.cfg.End = time.Now()
		time.Sleep(time.Second)
		r.set("a", "z")
		r.written["a"], r.written["z"] = 2, 2
		if err := Run(t.Context(), r.cfg); err != nil {
			t.Fatal(err)
		}
		r.check("")
		if took := time.Since(r.cfg.End); took > time.Minute {
			t.Errorf("it ended %s behind its end", took)
		}
	})
}

// An outage is waited out and told once a while. An error that does not pass ends the tail,
// whose own error says from when on changes are missing.
//
// covers: CS-29
// stream-case: 32, 34
func TestAnOutageIsWaitedOutAndARefusalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "m")
		r.start()
		r.set("a", "z")
		time.Sleep(time.Second)
		outage := r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Code: codes.Unavailable})
		r.do(r.emulator.MergeTablets(tableName, []byte("m")))
		r.set("a", "z")
		time.Sleep(5 * time.Minute)
		if told := r.told(); len(told) < 2 || len(told) > 12 || !strings.Contains(told[0], "tried again: reading a change stream of "+tableName+": Unavailable") {
			t.Errorf("%d notices: %q", len(told), told)
		}
		r.emulator.RemoveFault(outage)
		time.Sleep(time.Minute)
		r.check("")
		low := time.Now()
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Code: codes.PermissionDenied, Message: "secret"})
		r.do(r.emulator.SplitTablet(tableName, []byte("m")))
		err := <-r.ended
		var gaveUp *GaveUpError
		if !errors.As(err, &gaveUp) || low.Sub(gaveUp.From).Abs() > 10*time.Second || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "PermissionDenied; changes from "+gaveUp.From.UTC().Format(time.RFC3339Nano)+" on may be missing") {
			t.Errorf("%v", err)
		}
	})
}

// A stream that stays open and says nothing more, not even a heartbeat, is opened again.
//
// covers: CS-29
func TestASilentStreamIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "m")
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, Hang: true, CutAfter: 2, Count: 2})
		r.start()
		for range 3 {
			r.set("a", "z")
			time.Sleep(time.Second)
		}
		time.Sleep(2 * silence)
		r.check("")
		if told := r.told(); len(told) != 1 || !strings.Contains(told[0], "nothing has come") {
			t.Errorf("%q", told)
		}
		r.stop()
	})
}

// An outage that does not end is given up, and so is a table without a change stream.
func TestWhatNeverPassesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Code: codes.Unavailable})
		began := time.Now()
		var gaveUp *GaveUpError
		if err := Run(t.Context(), r.cfg); !errors.As(err, &gaveUp) || !gaveUp.From.Equal(r.cfg.Start) || time.Since(began) < patience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		r.emulator.ClearFaults()
		r.cfg.Start = time.Now().Add(time.Hour)
		if err := Run(t.Context(), r.cfg); errors.As(err, &gaveUp) || !strings.Contains(err.Error(), "not in the future by the service's clock: ") {
			t.Errorf("%v", err)
		}
		r.cfg.Start = time.Now()
		r.do(r.emulator.SetStream(tableName, emulator.StreamSettings{Disabled: codes.FailedPrecondition}))
		r.emulator.Inject(emulator.Fault{Method: "GenerateInitialChangeStreamPartitions", Code: codes.FailedPrecondition})
		if err := Run(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "FailedPrecondition") || !strings.Contains(err.Error(), "needs a change stream") {
			t.Errorf("%v", err)
		}
	})
}

// An output that takes nothing more ends the tail with its error, also while other
// partitions have changes to be shown. One that is slow holds the streams up and loses
// nothing.
func TestTheOutputSetsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "m")
		show, full := r.cfg.Show, errors.New("full")
		r.cfg.Show = func(rec *changestream.Record) error {
			time.Sleep(time.Second)
			return show(rec)
		}
		r.start()
		for range 50 {
			r.set("a", "z")
		}
		time.Sleep(2 * time.Minute)
		r.check("")
		r.stop()
		r.cfg.Show = func(*changestream.Record) error { return full }
		if err := Run(t.Context(), r.cfg); err != full {
			t.Errorf("%v", err)
		}
	})
}

func TestATableWithTooManyPartitionsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		for i := range MaxStreams {
			keys = append(keys, fmt.Sprintf("k%04d", i))
		}
		slices.Sort(keys)
		r := newRig(t, keys...)
		if err := Run(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "1001 partitions") {
			t.Errorf("%v", err)
		}
	})
}

// Keys without a partition and without a token are read again after 20 minutes, once, from
// an hour before the lowest position, but not from before the start.
//
// stream-case: 27
func TestKeysThatLostTheirPlaceAreReadAgain(t *testing.T) {
	now := time.Date(2026, 8, 30, 10, 0, 0, 0, time.UTC)
	service := rowrange.Cut(rowrange.Range{}, []string{"g", "m"})
	for ago, want := range map[time.Duration]time.Time{10 * time.Hour: now.Add(-time.Hour), time.Minute: now.Add(-time.Minute)} {
		p := places{start: now.Add(-ago), held: map[int]*place{}}
		p.open(changestream.Opening{Range: service[0], LowWatermark: now})
		p.open(changestream.Opening{Range: service[2], LowWatermark: now})
		var opened []changestream.Opening
		for at := now; at.Before(now.Add(time.Hour)); at = at.Add(reconcileEvery) {
			if p.areRead(rowrange.Range{}) {
				break
			}
			if opened = append(opened, p.reconcile(service, rowrange.Range{}, at)...); len(opened) > 0 && at.Sub(now) < 20*time.Minute {
				t.Errorf("opened after %s", at.Sub(now))
			}
		}
		if len(opened) != 1 || opened[0].Range != service[1] || !opened[0].Start.Equal(want) || len(p.held) != 3 {
			t.Errorf("opened %+v, want one from %s", opened, want)
		}
	}
}
