package bill

import (
	"fmt"
	"math"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/prices"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

// What a scan is taken for. docs/scans.md has the measurements.
const (
	// RecordCPU is the processor time of a record of a small row, in seconds.
	RecordCPU = 4e-6
	// ScanUse is the part of its vCPU that a worker is busy.
	ScanUse = 1.0 / 3
	// RowsPerSecond is what a worker reads of one split.
	RowsPerSecond = 10_000
	// slice is how many seconds a task reads, and commit how many seconds lie between two commits.
	slice, commit = 45, 5
	// splitBytes is the size of a split of neighbouring tablets.
	splitBytes = 256 << 20
	// Of a split, beside its commits: docs/scans.md counts them.
	splitReads, splitWrites = 3, 5
)

// scan adds what the runs of a scheduled scan cost.
func (b *biller) scan(s *pipeline.Scan, rows float64) {
	if s.Schedule == nil {
		return
	}
	times := float64(scanjob.RunsInAYear(s.Schedule)) / 12
	if s.Limit > 0 {
		rows = min(rows, float64(s.Limit))
	}
	of := "scan " + s.Name
	monthly := func(what string) string { return fmt.Sprintf("%s × %s runs", what, Number(times)) }
	b.instance(of, monthly(fmt.Sprintf("%s rows × %s s ÷ %s", Number(rows), Number(RecordCPU), Number(ScanUse))), times*rows*RecordCPU/ScanUse)
	splits := math.Max(1, math.Ceil(rows*EventBytes/splitBytes))
	tasks := splits + math.Floor(rows/RowsPerSecond/slice)
	requests := (1 + tasks) * times
	b.add(of, "requests", monthly(fmt.Sprintf("(1 for the plan + %s for tasks)", Number(tasks))), requests, prices.Requests)
	b.add(of, "ledger reads", monthly(fmt.Sprintf("%d for each split × %s", splitReads, Number(splits))), splits*splitReads*times, prices.Reads)
	writes := math.Floor(rows / RowsPerSecond / commit)
	b.add(of, "ledger writes", monthly(fmt.Sprintf("(%d for each split × %s + %s for commits)", splitWrites, Number(splits), Number(writes))), (splits*splitWrites+writes)*times, prices.Writes)
	if s.To.PubSub != nil {
		b.messages(of, "records, published and delivered once", monthly(fmt.Sprintf("%s rows × %s bytes × 2", Number(rows), Number(EventBytes))), rows*times)
	}
	b.requestLogs(of, requests)
}
