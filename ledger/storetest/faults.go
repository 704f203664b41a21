package storetest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// ErrCrash is what a store answers a process that is meant to be dead.
var ErrCrash = errors.New("storetest: the process has crashed")

// Fault is what befalls one call.
type Fault uint8

// What may befall a call.
const (
	FaultNone       Fault = iota
	FaultLost             // ErrUnavailable, and nothing was done
	FaultReplyLost        // ErrUnavailable, but a commit was applied
	FaultRepeated         // a commit was applied, then repeated by the client: ErrConflict
	FaultCrash            // nothing was done, nor is any later call
	FaultCrashAfter       // a commit was applied, no later call is
)

// Faulty is a store whose calls fail as Next says. It stands for one process, and is for
// several goroutines if Next is.
type Faulty struct {
	ledger.Store
	// Next is asked before every call; commit says whether the call is one.
	Next    func(commit bool) Fault
	crashed atomic.Bool
}

// Crashed reports whether a crash has befallen.
func (f *Faulty) Crashed() bool { return f.crashed.Load() }

func (f *Faulty) befall(commit bool, call func() error) error {
	if f.crashed.Load() {
		return ErrCrash
	}
	fault := f.Next(commit)
	if fault == FaultRepeated && !commit {
		fault = FaultNone // a read may be repeated
	}
	switch fault {
	case FaultNone:
		return call()
	case FaultLost:
		return ledger.ErrUnavailable
	case FaultCrash:
		f.crashed.Store(true)
		return ErrCrash
	default:
		if fault == FaultCrashAfter {
			f.crashed.Store(true)
		}
		if err := call(); err != nil {
			return err
		}
		return map[Fault]error{FaultReplyLost: ledger.ErrUnavailable, FaultRepeated: ledger.ErrConflict, FaultCrashAfter: ErrCrash}[fault]
	}
}

// Get implements ledger.Store.
func (f *Faulty) Get(ctx context.Context, keys ...ledger.Key) (docs []ledger.Doc, err error) {
	err = f.befall(false, func() (err error) {
		docs, err = f.Store.Get(ctx, keys...)
		return err
	})
	return docs, err
}

// Commit implements ledger.Store.
func (f *Faulty) Commit(ctx context.Context, writes []ledger.Write) (versions []string, err error) {
	err = f.befall(true, func() (err error) {
		versions, err = f.Store.Commit(ctx, writes)
		return err
	})
	return versions, err
}

// List implements ledger.Store.
func (f *Faulty) List(ctx context.Context, each func(ledger.Doc) error, collections ...string) error {
	return f.befall(false, func() error { return f.Store.List(ctx, each, collections...) })
}
