package emulator_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// streamDay is a table that is written to for a day and a half of its clock,
// and a consumer that visits every partition once in an hour.
type streamDay struct {
	f          *fixture
	opts       emulator.Options
	partitions int
	perHour    int    // changes
	padding    string // of each value
	places     []placeOf
	written    int

	mu   sync.Mutex
	seen []int // by row: the value of its latest change
	read int
}

type placeOf struct {
	partition span
	from      func(*changeRequest)
}

const rowsPerPartition = 10

func (d *streamDay) rowKey(row int) string { return fmt.Sprintf("%06d", row) }

// writeHour writes changes, each row's numbered from 1, while the clock passes
// an hour.
func (d *streamDay) writeHour(t *testing.T) {
	t.Helper()
	const batch = 1000
	rows := d.partitions * rowsPerPartition
	for done := 0; done < d.perHour; done += batch {
		entries := make([]*bigtablepb.MutateRowsRequest_Entry, batch)
		for i := range entries {
			entries[i] = entry(d.rowKey(d.written%rows), setCell("a", "q", 1000, fmt.Appendf(nil, "%d%s", d.written/rows+1, d.padding)))
			d.written++
		}
		d.f.write(t, entries...)
		d.f.AdvanceClock(time.Hour * batch / time.Duration(d.perHour))
	}
}

// visit reads all that is new in every partition. The next change of a row
// must have the next number: none is missing, none comes twice.
func (d *streamDay) visit(t *testing.T) {
	t.Helper()
	var readers sync.WaitGroup
	next := make(chan int, d.partitions)
	for i := range d.partitions {
		next <- i
	}
	close(next)
	for range 8 {
		readers.Go(func() {
			for i := range next {
				d.visitOne(t, &d.places[i])
			}
		})
	}
	readers.Wait()
	if d.read != d.written {
		t.Fatalf("%d changes were read, %d written", d.read, d.written)
	}
}

func (d *streamDay) visitOne(t *testing.T, p *placeOf) {
	r := d.f.open(t, p.partition, p.from, beating(5*time.Millisecond))
	defer r.stop()
	now := d.f.Now().Truncate(time.Microsecond)
	for {
		res, err := r.stream.Recv()
		if err != nil {
			t.Errorf("%s: %v", p.partition, err)
			return
		}
		c := res.GetDataChange()
		if c == nil {
			p.from = fromTokens(res.GetHeartbeat().ContinuationToken)
			// The clock stands: all is read once the low watermark has reached it.
			if !res.GetHeartbeat().EstimatedLowWatermark.AsTime().Before(now) {
				return
			}
			continue
		}
		row, _ := strconv.Atoi(string(c.RowKey))
		n, _ := strconv.Atoi(strings.TrimRight(string(c.Chunks[0].Mutation.GetSetCell().GetValue()), "x"))
		d.mu.Lock()
		if n != d.seen[row]+1 {
			t.Errorf("row %s: change %d comes after %d", c.RowKey, n, d.seen[row])
		}
		d.seen[row] = n
		d.read++
		d.mu.Unlock()
	}
}

func (d *streamDay) restart(t *testing.T) {
	t.Helper()
	now := d.f.Now()
	d.stop(t)
	d.begin(t)
	d.f.SetClock(now)
}

// begin starts an emulator that nothing but d holds, so that nothing of it
// remains after the next restart.
func (d *streamDay) begin(t *testing.T) {
	t.Helper()
	e, err := emulator.New(d.opts)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.f = &fixture{e, conn, bigtablepb.NewBigtableClient(conn), adminpb.NewBigtableTableAdminClient(conn), nil}
}

func (d *streamDay) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(d.f.conn.Close(), d.f.Close()); err != nil {
		t.Error(err)
	}
}

// fresh is the heap in use once garbage of every kind is collected. A snapshot
// that is being written holds what it writes: the caller has just started.
func (d *streamDay) fresh(t *testing.T) int64 {
	if _, err := d.f.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	return int64(heap())
}

// A day of changes is retained, and no more: memory does not grow after a day,
// and shrinks when there are no more changes. Tokens outlive restarts, after
// which nothing is served twice.
func TestADayOfChangesTakesBoundedMemoryAndOutlivesRestarts(t *testing.T) {
	d := &streamDay{partitions: 50, perHour: 2000, padding: strings.Repeat("x", 300), opts: emulator.Options{DataDir: t.TempDir(), SnapshotBytes: 8 << 20}}
	if os.Getenv("BTF_SOAK") != "" {
		d.partitions, d.perHour, d.padding, d.opts.SnapshotBytes = 1000, 209_000, "", 0
	}
	var splits []string
	for i := 1; i < d.partitions; i++ {
		splits = append(splits, d.rowKey(i*rowsPerPartition))
	}
	d.begin(t)
	defer func() { d.stop(t) }()
	d.f.SetClock(noon)
	d.f.create(t, streamed(splits...))
	d.seen = make([]int, d.partitions*rowsPerPartition)
	for _, s := range d.f.partitions(t) {
		d.places = append(d.places, placeOf{s, fromTime(noon)})
	}
	empty, took := d.fresh(t), time.Now()
	var day, later int64
	for hour := 1; hour <= 36; hour++ {
		d.writeHour(t)
		d.visit(t)
		if hour%12 == 0 {
			began := time.Now()
			d.restart(t)
			t.Logf("hour %d: the restart took %v", hour, time.Since(began).Round(time.Millisecond))
			d.visit(t)
			day, later = later, d.fresh(t)
		}
	}
	// A small change takes about 50 bytes beside its value. Of each tablet's
	// oldest chunk only a part may be within retention.
	retained := int64(24 * d.perHour * (50 + len(d.padding)))
	if later > day+retained/3+int64(d.partitions)*(32<<10) {
		t.Errorf("%d MiB are in use after a day, %d MiB after a day and a half", day>>20, later>>20)
	}
	d.f.AdvanceClock(25 * time.Hour)
	d.restart(t)
	end := d.fresh(t)
	if end > day-retained/2 {
		t.Errorf("%d MiB are in use after a day, %d MiB a day after the last change", day>>20, end>>20)
	}
	last := d.places[0]
	refused(t, "a token of a day ago", d.f.open(t, last.partition, last.from).fails(t), codes.InvalidArgument, "older than the change stream's retention")
	t.Logf("%d changes of %d partitions in %v: heap %d MiB when empty, %d MiB after a day, %d MiB after a day and a half, %d MiB a day after the last change",
		d.written, d.partitions, time.Since(took).Round(time.Second), empty>>20, day>>20, later>>20, end>>20)
}
