//go:build unix

package emulator_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// smallChanges writes changes of one 10-byte cell each to a thousand rows, so
// that rows take no memory that grows.
func smallChanges(b testing.TB, data bigtablepb.BigtableClient, changes int) {
	for done := 0; done < changes; {
		req := &bigtablepb.MutateRowsRequest{TableName: tableT}
		for range min(1000, changes-done) {
			req.Entries = append(req.Entries, entry(fmt.Sprintf("row%03d", done%1000), setCell("a", "q", 1000, []byte("0123456789"))))
			done++
		}
		if _, err := mutate(b.Context(), data, req); err != nil {
			b.Fatal(err)
		}
	}
}

func cpu(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDrain reads 100,000 small changes over TCP, and reports the CPU time
// of server and client together.
func BenchmarkDrain(b *testing.B) {
	conn := startOurs(emulator.Options{})(b)
	createStreamed(b, conn)
	f := &fixture{data: bigtablepb.NewBigtableClient(conn)}
	began := time.Now()
	const changes = 100_000
	smallChanges(b, f.data, changes)
	before := cpu(b)
	for b.Loop() {
		r := f.open(b, ",", fromTime(began))
		for range changes {
			if _, err := r.stream.Recv(); err != nil {
				b.Fatal(err)
			}
		}
		r.stop()
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N)/changes, "cpu-ns/change")
}

// BenchmarkRetained is the heap that a small change takes for as long as it is
// retained.
func BenchmarkRetained(b *testing.B) {
	const changes = 500_000
	for b.Loop() {
		conn := startOurs(emulator.Options{})(b)
		createStreamed(b, conn)
		data := bigtablepb.NewBigtableClient(conn)
		smallChanges(b, data, 1000)
		before := heap()
		smallChanges(b, data, changes)
		b.ReportMetric((heap()-before)/changes, "B/change")
	}
}
