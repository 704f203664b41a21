package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
)

// ledgerPlace is where the ledger of a pipeline is: at the place that is named or, if none
// is, in a file below the directory in which the command runs.
func ledgerPlace(named ledger.Location, pipelineName string) ledger.Location {
	if named != (ledger.Location{}) {
		return named
	}
	return ledger.Location{Path: filepath.Join(".btf", pipelineName+".db")}
}

// openLedger opens the ledger, which it makes where there is none: also its directory,
// where that is the default one. The caller closes it.
func openLedger(ctx context.Context, named ledger.Location, pipelineName string) (*ledger.Ledger, func() error, error) {
	return withLedger(ctx, named, pipelineName, func(path string) (ledger.Store, error) {
		if named == (ledger.Location{}) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, fmt.Errorf("creating the ledger's directory: %w; %s=file:PATH names another place for it", err, assemble.LedgerVariable)
			}
		}
		store, err := file.Open(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("%w; %s=file:PATH names another place for it", err, assemble.LedgerVariable)
		}
		return store, nil
	})
}

// readLedger opens the ledger to look at it. Where there is none the error is
// fs.ErrNotExist, and there is none afterwards.
func readLedger(ctx context.Context, named ledger.Location, pipelineName string) (*ledger.Ledger, func() error, error) {
	return withLedger(ctx, named, pipelineName, func(path string) (ledger.Store, error) { return file.OpenToRead(ctx, path) })
}

func withLedger(ctx context.Context, named ledger.Location, pipelineName string, openFile func(path string) (ledger.Store, error)) (
	*ledger.Ledger, func() error, error,
) {
	location := ledgerPlace(named, pipelineName)
	if location.Path != "" {
		store, err := openFile(location.Path)
		if err != nil {
			return nil, nil, err
		}
		return ledger.New(store, pipelineName, ledger.Options{}), func() error { return nil }, nil
	}
	l, closer, err := assemble.OpenLedger(ctx, location, pipelineName, ledger.Options{})
	if err != nil {
		return nil, nil, unconnected(err, assemble.FirestoreEmulatorVariable)
	}
	return l, closer, nil
}

// forLedgers is for a first call to a ledger, which takes milliseconds where it is there.
var forLedgers = terminal.Patience{Silent: 3 * time.Second, Most: 30 * time.Second}

// awaitLedger makes the first of several calls to a ledger, which may not answer.
func awaitLedger(ctx context.Context, p terminal.Patience, out io.Writer, named ledger.Location, pipelineName string, call func(context.Context) error) error {
	location := ledgerPlace(named, pipelineName)
	if p == (terminal.Patience{}) {
		p = forLedgers
	}
	hint := assemble.LedgerVariable + ", the network and " + assemble.FirestoreEmulatorVariable
	if location.Path != "" {
		hint = "what else has that file open"
	}
	return p.Await(ctx, out, "the ledger "+location.String(), hint, call)
}
