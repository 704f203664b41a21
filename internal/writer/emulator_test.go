package writer

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

// bigtable is the emulator, which is as strict as the service.
type bigtable struct {
	t    testing.TB
	e    *emulator.Emulator
	conn *grpc.ClientConn
}

type borrowed struct{ *grpc.ClientConn }

func (borrowed) Close() error { return nil }

func newBigtable(t testing.TB) *bigtable {
	t.Helper()
	e, err := emulator.New(emulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := e.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = e.Close() })
	return &bigtable{t, e, conn}
}

// create makes the table orders with a family cf and a sum family.
func (b *bigtable) create() {
	b.t.Helper()
	families := Schema{Families: []*pipeline.Family{{Name: "cf"}, {Name: "sum", Aggregate: pipeline.AggregateSum}}}.Declared()
	_, err := adminpb.NewBigtableTableAdminClient(b.conn).CreateTable(b.t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/p/instances/i", TableId: "orders", Table: &adminpb.Table{ColumnFamilies: families},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bigtable) writer(change ...func(*Config)) *Writer {
	b.t.Helper()
	dial := func(context.Context, string, string) (Conn, error) { return borrowed{b.conn}, nil }
	cfg := config(dial)
	cfg.moved = new(seenStates).moved(b.t)
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := w.Close(within(b.t, time.Minute)); err != nil {
			b.t.Error(err)
		}
	})
	return w
}

// rows returns the number of cells of each row.
func (b *bigtable) rows() map[string]int {
	b.t.Helper()
	out := map[string]int{}
	b.read(func(key string, _ *bigtablepb.ReadRowsResponse_CellChunk) { out[key]++ })
	return out
}

func (b *bigtable) read(cell func(key string, c *bigtablepb.ReadRowsResponse_CellChunk)) {
	b.t.Helper()
	stream, err := bigtablepb.NewBigtableClient(b.conn).ReadRows(b.t.Context(), &bigtablepb.ReadRowsRequest{TableName: orders.String()})
	if err != nil {
		b.t.Fatal(err)
	}
	key := ""
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		for _, c := range r.Chunks {
			if len(c.RowKey) > 0 {
				key = string(c.RowKey)
			}
			cell(key, c)
		}
	}
}

// issue-row: 33, 34, 38
// covers: FAIL-02, FAIL-10, SNK-12
func TestWhatTheServiceRefusesIsRejectedAlone(t *testing.T) {
	b := newBigtable(t)
	b.create()
	w := b.writer()
	long, finer, past, wide := set("x"), set("finer"), set("past"), set("wide")
	long.Row.RowKey = make([]byte, 4097)
	finer.Row.Mutations[0].GetSetCell().TimestampMicros = 1500
	past.Row.Mutations[0].GetSetCell().TimestampMicros = -62_135_596_800_000_000 // time.Time{}
	wide.Row.Mutations[0].GetSetCell().ColumnQualifier = make([]byte, 17<<10)
	poison := []Entry{long, finer, past, wide, set("")}
	entries := sets(300)
	for i, e := range poison {
		entries = slices.Insert(entries, 50*i+7, e)
	}
	rejected := 0
	for i, err := range w.Apply(within(t, time.Minute), entries) {
		guilty := i < 250 && i%50 == 7
		if retry.IsRejected(err) != guilty || !guilty && err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
		if guilty {
			rejected++
		}
	}
	if n := len(b.rows()); n != 300 || rejected != 5 {
		t.Errorf("%d rows, %d rejected", n, rejected)
	}
}

// issue-row: 1
func TestAFamilyThatTheTableLacksIsNotRetried(t *testing.T) {
	b := newBigtable(t)
	b.create()
	w := b.writer(schema(pipeline.CreateNever, "cf", "gone"))
	begin := time.Now()
	errs := w.Apply(within(t, time.Minute), []Entry{set("a"), in("gone", "b"), set("c")})
	if errs[0] != nil || errs[1] == nil || retry.IsRejected(errs[1]) || errs[2] != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("%v", errs)
	}
	if rows := b.rows(); len(rows) != 2 {
		t.Errorf("%v", rows)
	}
}

// Google's client turned 5 into 10 here.
// issue-row: 21
// covers: SNK-40, SNK-42
func TestAddsUnderATokenAreExactWhenTheAnswerIsLost(t *testing.T) {
	b := newBigtable(t)
	b.create()
	w := b.writer()
	b.e.Inject(emulator.Fault{Method: "MutateRows", Code: codes.Unavailable, After: true, Count: 3})
	var entries []Entry
	for i := range 40 {
		e := add("counter", fmt.Sprintf("token-%08d", i))
		e.Row.Mutations[0].GetAddToCell().ColumnQualifier = &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("n")}}
		e.Row.Mutations[0].GetAddToCell().Timestamp = &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: 0}}
		e.Row.Mutations[0].GetAddToCell().Input = &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 5}}
		entries = append(entries, e)
	}
	wantApplied(t, w.Apply(within(t, time.Minute), entries))
	wantApplied(t, w.Apply(within(t, time.Minute), entries)) // the event is delivered again
	b.read(func(_ string, c *bigtablepb.ReadRowsResponse_CellChunk) {
		if n := binary.BigEndian.Uint64(c.Value); n != 200 {
			t.Errorf("counted %d, want 200", n)
		}
	})
}

// issue-row: 31, 36
// covers: TBL-04, TBL-08
func TestProcessesThatStartBeforeTheTableMakeItTogether(t *testing.T) {
	b := newBigtable(t)
	var wg sync.WaitGroup
	for p := range 8 {
		w := b.writer(func(c *Config) {
			c.Schema = func(pipeline.TableRef) (Schema, error) {
				return Schema{Name: "orders", Create: pipeline.CreateIfNeeded, Families: []*pipeline.Family{
					{Name: "cf"}, {Name: "sum", Aggregate: pipeline.AggregateSum}, {Name: fmt.Sprint("own-", p%3)},
				}}, nil
			}
		})
		for c := range 2 {
			wg.Go(func() {
				for i := range 50 {
					key := fmt.Sprintf("%d-%d-%d", p, c, i)
					wantApplied(t, w.Apply(within(t, time.Minute), []Entry{set(key), in(fmt.Sprint("own-", p%3), key+"-own")}))
				}
			})
		}
	}
	wg.Wait()
	if n := len(b.rows()); n != 1600 {
		t.Errorf("%d rows", n)
	}
}

// issue-row: 39
func TestATwoHundredMegabyteValueIsRejectedOnce(t *testing.T) {
	b := newBigtable(t)
	b.create()
	w := b.writer(func(c *Config) { c.MaxEntryBytes = 200 << 10 }) // a thousandth, like the value
	huge := set("huge")
	huge.Row.Mutations[0].GetSetCell().Value = make([]byte, 200<<10)
	for range 3 { // the writer lives
		errs := w.Apply(within(t, time.Minute), []Entry{set("a"), huge, set("b")})
		if errs[0] != nil || !retry.IsRejected(errs[1]) || errs[2] != nil {
			t.Errorf("%v", errs)
		}
	}
	if rows := b.rows(); len(rows) != 2 {
		t.Errorf("%v", rows)
	}
}

// issue-row: 3, 18, 20
func TestTheEmulatorsFaultsAreSurvived(t *testing.T) {
	b := newBigtable(t)
	b.create()
	w := b.writer()
	for _, f := range []emulator.Fault{
		{Code: codes.Unavailable, After: true}, {Code: codes.Aborted}, {Omit: []int{0, 3}}, {Cut: true, CutAfter: 1},
		{Code: codes.ResourceExhausted, Entries: []int{1, 2}}, {Code: codes.Unavailable, RetryDelay: 10 * time.Millisecond}, {RateLimitFactor: 0.9, RateLimitPeriod: time.Second},
	} {
		f.Method, f.Count = "MutateRows", 1
		b.e.Inject(f)
		wantApplied(t, w.Apply(within(t, time.Minute), sets(20)))
		b.e.ClearFaults()
	}
	rows := b.rows()
	for key, cells := range rows {
		if cells != 1 {
			t.Errorf("%s has %d cells", key, cells)
		}
	}
	if len(rows) != 20 {
		t.Errorf("%d rows", len(rows))
	}
}
