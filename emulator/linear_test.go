package emulator_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// operation is one observation of a row's counter. began and ended are ticks
// of one clock: an operation that ended before another began came first.
type operation struct {
	began, ended int64
	value        int64
	write        bool // it made the counter value; else it saw it
}

// history collects operations by row.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	rows  map[string][]operation
}

func (h *history) note(row string, o operation) {
	o.ended = h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows[row] = append(h.rows[row], o)
}

// check reports why a row's operations have no order in which each takes
// effect between its beginning and its end. For a counter that is so if no
// two writes made one value and no value is older than one that had been made
// or seen before the operation began.
func check(ops []operation) error {
	made := map[int64]operation{}
	for _, o := range ops {
		if !o.write {
			continue
		}
		if _, twice := made[o.value]; twice {
			return fmt.Errorf("two writes made %d", o.value)
		}
		made[o.value] = o
	}
	for v := int64(1); v <= int64(len(made)); v++ {
		if _, ok := made[v]; !ok {
			return fmt.Errorf("%d writes, none made %d", len(made), v)
		}
	}
	for _, o := range ops {
		if w, ok := made[o.value]; !o.write && o.value > 0 && (!ok || w.began > o.ended) {
			return fmt.Errorf("%d was seen before anyone wrote it", o.value)
		}
	}
	byEnd := slices.Clone(ops)
	slices.SortFunc(byEnd, func(a, b operation) int { return int(a.ended - b.ended) })
	byBegin := slices.Clone(ops)
	slices.SortFunc(byBegin, func(a, b operation) int { return int(a.began - b.began) })
	settled, i := int64(0), 0 // the highest value known when an operation began
	for _, o := range byBegin {
		for ; i < len(byEnd) && byEnd[i].ended < o.began; i++ {
			settled = max(settled, byEnd[i].value)
		}
		if o.value < settled || o.write && o.value == settled {
			return fmt.Errorf("%d came after %d (write=%v)", o.value, settled, o.write)
		}
	}
	return nil
}

func TestTheCheckerFindsWhatIsNotLinearizable(t *testing.T) {
	w := func(began, ended, value int64) operation { return operation{began, ended, value, true} }
	r := func(began, ended, value int64) operation { return operation{began, ended, value, false} }
	for name, test := range map[string]struct {
		ops []operation
		ok  bool
	}{
		"in order":              {[]operation{w(1, 2, 1), r(3, 4, 1), w(5, 6, 2), r(7, 8, 2)}, true},
		"overlapping":           {[]operation{w(1, 9, 2), w(2, 8, 1), r(3, 4, 1), r(5, 6, 2)}, true},
		"lost update":           {[]operation{w(1, 2, 1), w(1, 2, 1)}, false},
		"a gap":                 {[]operation{w(1, 2, 1), w(3, 4, 3)}, false},
		"stale read":            {[]operation{w(1, 2, 1), r(3, 4, 0)}, false},
		"read from the future":  {[]operation{r(1, 2, 1), w(3, 4, 1)}, false},
		"reads go back":         {[]operation{w(1, 9, 1), r(2, 3, 1), r(4, 5, 0)}, false},
		"writes against time":   {[]operation{w(1, 2, 2), w(3, 4, 1)}, false},
		"a write of what was":   {[]operation{w(1, 9, 1), r(2, 3, 2), w(4, 5, 2)}, false},
		"read of what is going": {[]operation{w(1, 9, 1), r(2, 3, 0), r(4, 5, 1)}, true},
	} {
		if err := check(test.ops); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// issue-row: 36
func TestRowsAreLinearizableUnderConcurrentWritersAndScans(t *testing.T) {
	f := start(t, emulator.Options{TabletBytes: 2000, DataDir: t.TempDir()})
	f.create(t)
	const rows, writers, steps = 4, 16, 60
	h := &history{rows: map[string][]operation{}}
	var writing, scanning sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range steps {
				row := fmt.Sprint("row", random.IntN(rows))
				if random.IntN(3) == 0 {
					compareAndSet(t, f, h, row)
				} else {
					increment(t, f, h, row)
				}
			}
		})
	}
	done := make(chan struct{})
	for range 3 {
		scanning.Go(func() {
			for {
				scanCounters(t, f, h)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(done)
	scanning.Wait()
	for row, ops := range h.rows {
		if err := check(ops); err != nil {
			t.Errorf("%s: %v", row, err)
		}
	}
}

// counterRules add one to a counter and to its twin, which no one may ever
// see differ from it.
var counterRules = []*bigtablepb.ReadModifyWriteRule{
	{FamilyName: "a", ColumnQualifier: []byte("n"), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}},
	{FamilyName: "b", ColumnQualifier: []byte("twin"), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}},
}

func increment(t *testing.T, f *fixture, h *history, row string) {
	began := h.clock.Add(1)
	res, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte(row), Rules: counterRules})
	if err != nil {
		t.Error(err)
		return
	}
	v := int64(binary.BigEndian.Uint64(res.Row.Families[0].Columns[0].Cells[0].Value))
	h.note(row, operation{began: began, value: v, write: true})
}

// compareAndSet adds one by a conditional write on the value it has read.
func compareAndSet(t *testing.T, f *fixture, h *history, row string) {
	began := h.clock.Add(1)
	values := readCounters(t, f, &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(row)}})
	old := values[row]
	h.note(row, operation{began: began, value: old})
	if old == 0 {
		return
	}
	is := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{
		{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: 1}},
		{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: "a"}},
		{Filter: &bigtablepb.RowFilter_ValueRangeFilter{ValueRangeFilter: &bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueClosed{StartValueClosed: []byte(int64Value(old))},
			EndValue:   &bigtablepb.ValueRange_EndValueClosed{EndValueClosed: []byte(int64Value(old))}}}},
	}}}}
	began = h.clock.Add(1)
	next := []byte(int64Value(old + 1))
	last := deleteFromColumn("a", 0, 0)
	last.GetDeleteFromColumn().ColumnQualifier = []byte("n")
	res, err := f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: []byte(row), PredicateFilter: is,
		TrueMutations: []*bigtablepb.Mutation{last, setCell("a", "n", -1, next), setCell("b", "twin", -1, next)}})
	if err != nil {
		t.Error(err)
		return
	}
	if res.PredicateMatched {
		h.note(row, operation{began: began, value: old + 1, write: true})
	}
}

func readCounters(t *testing.T, f *fixture, set *bigtablepb.RowSet) map[string]int64 {
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, Rows: set,
		Filter: &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: 1}}})
	if err != nil {
		t.Error(err)
	}
	values := map[string]int64{}
	for _, r := range rows {
		key, cells, _ := strings.Cut(r, " ")
		_, rest, _ := strings.Cut(cells, "=")
		n, twin := rest[:8], r[len(r)-8:]
		if n != twin {
			t.Errorf("%s is torn: %x and %x", key, n, twin)
		}
		values[key] = int64(binary.BigEndian.Uint64([]byte(n)))
	}
	return values
}

func scanCounters(t *testing.T, f *fixture, h *history) {
	began := h.clock.Add(1)
	for row, v := range readCounters(t, f, nil) {
		h.note(row, operation{began: began, value: v})
	}
}
