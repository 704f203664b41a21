package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// devLedger is the ledger of a `btf dev`: a file of its own, made anew at each start,
// since the tables and messages that it is about are new as well. While dev runs it
// holds the lock of a file beside it, which a process that is killed gives up too.
type devLedger struct {
	*ledger.Ledger
	place ledger.Location // for LEDGER
	path  string
	lock  *bbolt.DB
}

// devLedgerPath is where the ledger of a dev that runs in this directory is.
func devLedgerPath(pipelineName string) (string, error) {
	path, err := filepath.Abs(filepath.Join(".btf", pipelineName+".dev.db"))
	if err != nil {
		return "", fmt.Errorf("finding the ledger of btf dev: %w", err)
	}
	return path, nil
}

// lockTimeout is how long a dev waits for a lock that a status looks at.
const lockTimeout = time.Second

func createDevLedger(ctx context.Context, pipelineName string) (_ *devLedger, err error) {
	d := &devLedger{}
	if d.path, err = devLedgerPath(pipelineName); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the ledger's directory: %w", err)
	}
	d.lock, err = bbolt.Open(d.path+".lock", 0o600, &bbolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("another btf dev of pipeline %s runs in this directory", pipelineName)
	} else if err != nil {
		return nil, fmt.Errorf("locking the ledger of btf dev: %w", err)
	}
	if err := removeFile(d.path); err != nil { // a dev that was killed has left it
		return nil, errors.Join(err, d.lock.Close())
	}
	d.place = ledger.Location{Path: d.path}
	if d.Ledger, _, err = assemble.OpenLedger(ctx, d.place, pipelineName, ledger.Options{}); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	return d, nil
}

func (d *devLedger) close() error { return errors.Join(removeFile(d.path), d.lock.Close()) }

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the ledger of btf dev: %w", err)
	}
	return nil
}

// runningDev says where the ledger of a dev is that runs in this directory now; the zero
// location if none does.
func runningDev(pipelineName string) (place ledger.Location, err error) {
	var none ledger.Location
	path, err := devLedgerPath(pipelineName)
	if err != nil {
		return none, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	lock, err := bbolt.Open(path+".lock", 0o600, &bbolt.Options{Timeout: time.Nanosecond, ReadOnly: true})
	switch {
	case err == nil:
		return none, lock.Close() // killed: what it has left is about nothing
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return ledger.Location{Path: path}, nil
	}
	return none, fmt.Errorf("looking for a btf dev: %w", err)
}
