package scanworker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// steps says how many rows and bytes of a split are read at a time.
type steps struct {
	rows        int
	bytes       int64
	firstCommit time.Duration
	careful     bool // holders have died here: call Lease.Try once rows arrive
}

// singleRowDeaths is how many holders may die at one position with a single row at a
// time.
const singleRowDeaths = 3

// steps halves the rows and bytes that the file asks for, once for each death at the
// split's position beyond a few: the rows there may not fit into memory together. It
// returns an error if even a single row seems not to fit.
func (w *work) steps() (steps, error) {
	fetch, deaths := w.plan.scan.Fetch, w.lease.Split().Deaths
	s := steps{rows: fetch.MaxRows, bytes: fetch.MaxBytes, firstCommit: firstCommit}
	if deaths > 0 {
		s.firstCommit = 1 // at once
	}
	if deaths < ledger.ManyDeaths {
		return s, nil
	}
	s.careful = true
	single := ledger.ManyDeaths // deaths after which it is one row
	for n := ledger.ManyDeaths; n <= deaths; n++ {
		if s.rows > 1 {
			s.rows, single = s.rows/2, n
		}
		s.bytes = max(1, s.bytes/2)
	}
	if s.rows == 1 && deaths >= single+singleRowDeaths {
		return s, &retry.Rejected{Err: fmt.Errorf("%d workers died while they read the same rows, the last %d of them one row at a time: "+
			"the next row probably needs more memory than a worker has; give it more, read fewer splits at once in one process, or leave cells of it out (cells)",
			deaths, singleRowDeaths)}
	}
	return s, nil
}

// tryError is why a slice ended before anything of it was delivered.
type tryError struct{ err error }

func (e *tryError) Error() string { return e.err.Error() }

// tryOnce returns a function that notes in the ledger, when the first response arrives, that
// the worker has begun to read the rows. It is called before any row is handed on, so
// nobody else uses the lease meanwhile.
func (w *work) tryOnce(ctx context.Context, stop context.CancelCauseFunc) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			if err := w.lease.Try(ctx); err != nil {
				stop(&tryError{err})
			}
		})
	}
}
