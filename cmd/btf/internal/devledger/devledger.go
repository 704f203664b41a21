// Package devledger guarantees that a btf dev has a ledger of its own, which begins empty, and that
// other commands in its directory find that ledger while the btf dev runs and not afterwards.
package devledger

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

// Ledger is the ledger of a btf dev: a file of its own, made anew at each start, because the tables
// and messages that it is about are new as well. While it is open, its process holds the lock of a
// file beside it, which a process that is killed gives up too.
type Ledger struct {
	*ledger.Ledger
	Place ledger.Location // for LEDGER
	lock  *bbolt.DB
}

// pathOf is where the ledger of a btf dev that runs in this directory is.
func pathOf(pipelineName string) (string, error) {
	path, err := filepath.Abs(filepath.Join(".btf", pipelineName+".dev.db"))
	if err != nil {
		return "", fmt.Errorf("finding the ledger of btf dev: %w", err)
	}
	return path, nil
}

// lockTimeout is how long Create waits for a lock that Running looks at.
const lockTimeout = time.Second

// Create makes the ledger of a btf dev that starts in this directory. It fails if another runs there
// for the same pipeline. The caller closes the ledger.
func Create(ctx context.Context, pipelineName string) (*Ledger, error) {
	path, err := pathOf(pipelineName)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the ledger's directory: %w", err)
	}
	lock, err := bbolt.Open(path+".lock", 0o600, &bbolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("another btf dev of pipeline %s runs in this directory", pipelineName)
	} else if err != nil {
		return nil, fmt.Errorf("locking the ledger of btf dev: %w", err)
	}
	if err := removeFile(path); err != nil { // a dev that was killed has left it
		return nil, errors.Join(err, lock.Close())
	}
	place := ledger.Location{Path: path}
	l, _, err := assemble.OpenLedger(ctx, place, pipelineName, ledger.Options{})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Ledger{Ledger: l, Place: place, lock: lock}, nil
}

// Close removes the ledger.
func (l *Ledger) Close() error { return errors.Join(removeFile(l.Place.Path), l.lock.Close()) }

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the ledger of btf dev: %w", err)
	}
	return nil
}

// Running returns the place of the ledger of the btf dev of a pipeline that runs in this directory
// now, and the zero location if none does.
func Running(pipelineName string) (place ledger.Location, err error) {
	var none ledger.Location
	path, err := pathOf(pipelineName)
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
