package emulator

import (
	"log/slog"
	"time"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// Options configure an Emulator. The zero value is an emulator in memory that
// uses the machine's clock and the service's limits.
type Options struct {
	// Clock is the time of the emulator: server timestamps, commit
	// timestamps, garbage collection, retention, idempotency windows. Nil is
	// time.Now. SetClock and AdvanceClock change it later.
	Clock func() time.Time

	// DataDir is a directory that keeps the state between runs. Empty keeps
	// it in memory only. One emulator at a time may use a directory.
	DataDir string

	// Fsync waits for the disk before a write is acknowledged, so that it
	// survives a loss of power. Without it a write has been handed to the
	// operating system, and survives the death of this process (kill -9).
	Fsync bool

	// SnapshotBytes is how long the journal in DataDir grows before a
	// snapshot of the state replaces it. Zero is DefaultSnapshotBytes.
	SnapshotBytes int64

	// GCInterval is how often garbage collection runs on its own, in real
	// time. Zero: only when CollectGarbage is called.
	GCInterval time.Duration

	// TabletBytes is the size above which a tablet splits in two. Zero is
	// DefaultTabletBytes, negative is never.
	TabletBytes int64

	// StrictInstances makes every request fail that names an instance that was
	// not created. Without it there is an instance of every name.
	StrictInstances bool

	// EnforceIAM refuses what IAM policies do not allow to the principal of a
	// call, which the header PrincipalHeader names.
	EnforceIAM bool

	// Limits are the service's limits where a field is zero.
	Limits Limits

	// Random draws the numbers in [0,1) of row_sample_filter. Nil is
	// math/rand/v2.Float64. It must be safe for concurrent use.
	Random func() float64

	// Logger receives what an operator should know. It never gets keys or
	// values. Nil discards it.
	Logger *slog.Logger
}

// DefaultTabletBytes is the tablet size that Options.TabletBytes stands for
// when zero: 1 GiB. The service publishes no number.
const DefaultTabletBytes = 1 << 30

// DefaultSnapshotBytes is the journal length that Options.SnapshotBytes
// stands for when zero.
const DefaultSnapshotBytes = 256 << 20

// Limits are what the service refuses to exceed. A zero field stands for the
// service's value, which DefaultLimits returns.
type Limits struct {
	RowKeyBytes         int   // longest row key
	QualifierBytes      int   // longest column qualifier
	CellBytes           int   // largest cell value
	RowBytes            int64 // largest row that can be read
	EntryMutations      int   // mutations of one row in one request
	RequestMutations    int   // mutations of one MutateRows request
	ReadRequestBytes    int   // largest serialized ReadRowsRequest
	FilterBytes         int   // largest serialized RowFilter
	FamiliesPerTable    int   // column families of one table
	TableIDBytes        int   // longest table id
	IdempotencyTokenMin int   // shortest idempotency token, in bytes
}

// DefaultLimits are the service's limits; docs/emulator.md names the source
// of each.
func DefaultLimits() Limits {
	return Limits{
		RowKeyBytes:         4 << 10,
		QualifierBytes:      16 << 10,
		CellBytes:           100 << 20,
		RowBytes:            256 << 20,
		EntryMutations:      100_000,
		RequestMutations:    100_000,
		ReadRequestBytes:    512 << 10,
		FilterBytes:         20_480,
		FamiliesPerTable:    100,
		TableIDBytes:        50,
		IdempotencyTokenMin: 8,
	}
}

func (l Limits) orDefaults() store.Limits {
	d := DefaultLimits()
	or(&l.RowKeyBytes, d.RowKeyBytes)
	or(&l.QualifierBytes, d.QualifierBytes)
	or(&l.CellBytes, d.CellBytes)
	or(&l.RowBytes, d.RowBytes)
	or(&l.EntryMutations, d.EntryMutations)
	or(&l.RequestMutations, d.RequestMutations)
	or(&l.ReadRequestBytes, d.ReadRequestBytes)
	or(&l.FilterBytes, d.FilterBytes)
	or(&l.FamiliesPerTable, d.FamiliesPerTable)
	or(&l.TableIDBytes, d.TableIDBytes)
	or(&l.IdempotencyTokenMin, d.IdempotencyTokenMin)
	return store.Limits(l)
}

func or[T int | int64](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}
