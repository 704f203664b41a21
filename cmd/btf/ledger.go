package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
)

// ledgerVariable names where the ledger is.
const ledgerVariable = "LEDGER"

// ledgerLocation is what LEDGER names, by default a file below where the command runs.
func ledgerLocation(pipelineName string, get func(string) string) (ledger.Location, error) {
	where := get(ledgerVariable)
	if where == "" {
		where = "file:.btf/" + pipelineName + ".db"
	}
	return ledger.ParseLocation(where)
}

// openLedger opens the ledger, which it makes where there is none: also its directory,
// where that is the default one. The caller closes it.
func openLedger(ctx context.Context, pipelineName string, get func(string) string) (*ledger.Ledger, func() error, error) {
	return withLedger(ctx, pipelineName, get, func(path string) (ledger.Store, error) {
		if get(ledgerVariable) == "" {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, fmt.Errorf("creating the ledger's directory: %w; %s=file:PATH names another place for it", err, ledgerVariable)
			}
		}
		store, err := file.Open(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("%w; %s=file:PATH names another place for it", err, ledgerVariable)
		}
		return store, nil
	})
}

// readLedger opens the ledger to look at it. Where there is none the error is
// fs.ErrNotExist, and there is none afterwards.
func readLedger(ctx context.Context, pipelineName string, get func(string) string) (*ledger.Ledger, func() error, error) {
	return withLedger(ctx, pipelineName, get, func(path string) (ledger.Store, error) { return file.OpenToRead(ctx, path) })
}

func withLedger(ctx context.Context, pipelineName string, get func(string) string, openFile func(path string) (ledger.Store, error)) (
	*ledger.Ledger, func() error, error,
) {
	location, err := ledgerLocation(pipelineName, get)
	if err != nil {
		return nil, nil, err
	}
	if location.Path != "" {
		store, err := openFile(location.Path)
		if err != nil {
			return nil, nil, err
		}
		return ledger.New(store, pipelineName, ledger.Options{}), func() error { return nil }, nil
	}
	store, err := firestore.Open(context.WithoutCancel(ctx), location.Project, location.Database)
	if err != nil {
		return nil, nil, unconnected(err, "FIRESTORE_EMULATOR_HOST")
	}
	return ledger.New(store, pipelineName, ledger.Options{}), store.Close, nil
}

// awaitLedger makes the first of several calls to a ledger, which may not answer.
func awaitLedger(ctx context.Context, p patience, out io.Writer, pipelineName string, get func(string) string, call func(context.Context) error) error {
	location, err := ledgerLocation(pipelineName, get)
	if err != nil {
		return err
	}
	if p == (patience{}) {
		p = forLedgers
	}
	hint := ledgerVariable + ", the network and FIRESTORE_EMULATOR_HOST"
	if location.Path != "" {
		hint = "what else has that file open"
	}
	return p.await(ctx, out, "the ledger "+location.String(), hint, call)
}
