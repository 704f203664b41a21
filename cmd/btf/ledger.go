package main

import (
	"context"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
)

// openLedger opens the ledger that LEDGER names, by default a file beside where the
// command runs. The caller closes it.
func openLedger(ctx context.Context, pipelineName string, get func(string) string) (*ledger.Ledger, func() error, error) {
	where := get("LEDGER")
	if where == "" {
		where = "file:.btf/" + pipelineName + ".db"
	}
	location, err := ledger.ParseLocation(where)
	if err != nil {
		return nil, nil, err
	}
	if location.Path != "" {
		store, err := file.Open(ctx, location.Path)
		if err != nil {
			return nil, nil, err
		}
		return ledger.New(store, pipelineName, ledger.Options{}), func() error { return nil }, nil
	}
	store, err := firestore.Open(context.WithoutCancel(ctx), location.Project, location.Database)
	if err != nil {
		return nil, nil, err
	}
	return ledger.New(store, pipelineName, ledger.Options{}), store.Close, nil
}
