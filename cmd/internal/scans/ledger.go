package scans

import (
	"context"

	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
)

// OpenLedger opens the ledger of a pipeline at a place such as LEDGER names. The caller
// closes it. google are options of the client of Firestore, if that is where it is.
func OpenLedger(ctx context.Context, place, pipelineName string, o ledger.Options, google ...option.ClientOption) (*ledger.Ledger, func() error, error) {
	location, err := ledger.ParseLocation(place)
	if err != nil {
		return nil, nil, err
	}
	if location.Path != "" {
		store, err := file.Open(ctx, location.Path)
		if err != nil {
			return nil, nil, err
		}
		return ledger.New(store, pipelineName, o), func() error { return nil }, nil
	}
	// The client outlives the context that it is opened in.
	store, err := firestore.Open(context.WithoutCancel(ctx), location.Project, location.Database, google...)
	if err != nil {
		return nil, nil, err
	}
	return ledger.New(store, pipelineName, o), store.Close, nil
}
