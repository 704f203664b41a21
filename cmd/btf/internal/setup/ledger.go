package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
)

// LedgerPlace is where the ledger of a pipeline is: at the place that is named or, if none
// is, in a file below the directory in which the command runs.
func LedgerPlace(env assemble.Env, p *pipeline.Pipeline) ledger.Location {
	if env.Ledger != (ledger.Location{}) {
		return env.Ledger
	}
	return ledger.Location{Path: filepath.Join(".btf", p.Name+".db")}
}

// OpenLedger opens the ledger, which it makes where there is none: also its directory,
// where that is the default one. In Firestore it is reached with the credentials of the pipeline
// file. google are further options of the client of Firestore. The caller closes the ledger.
func OpenLedger(ctx context.Context, env assemble.Env, p *pipeline.Pipeline, google ...option.ClientOption) (*ledger.Ledger, func() error, error) {
	return withLedger(ctx, env, p, google, func(path string) (ledger.Store, error) {
		if env.Ledger == (ledger.Location{}) {
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

// ReadLedger opens the ledger to look at it. If there is none the error is
// fs.ErrNotExist, and there is none afterwards.
func ReadLedger(ctx context.Context, env assemble.Env, p *pipeline.Pipeline, google ...option.ClientOption) (*ledger.Ledger, func() error, error) {
	return withLedger(ctx, env, p, google, func(path string) (ledger.Store, error) { return file.OpenToRead(ctx, path) })
}

func withLedger(ctx context.Context, env assemble.Env, p *pipeline.Pipeline, google []option.ClientOption, openFile func(path string) (ledger.Store, error)) (
	*ledger.Ledger, func() error, error,
) {
	location := LedgerPlace(env, p)
	if location.Path != "" {
		store, err := openFile(location.Path)
		if err != nil {
			return nil, nil, err
		}
		return ledger.New(store, p.Name, ledger.Options{}), func() error { return nil }, nil
	}
	env.BigtableEmulator = "" // it is not reached, and would refuse the file's credentials
	services, err := assemble.NewServices(assemble.ServicesConfig{Env: env, Pipeline: p, UserAgent: "btf", Google: google})
	if err != nil {
		return nil, nil, err
	}
	l, err := services.Ledger(ctx)
	if err != nil {
		if p.CredentialsFile == "" {
			err = Unconnected(err, assemble.FirestoreEmulatorVariable)
		}
		return nil, nil, errors.Join(err, services.Close())
	}
	return l, services.Close, nil
}

// forLedgers is for a first call to a ledger, which takes milliseconds where it is there.
var forLedgers = terminal.Patience{Silent: 3 * time.Second, Most: 30 * time.Second}

// AwaitLedger makes the first of several calls to a ledger, which may not answer. Zero patience is
// that for a first call.
func AwaitLedger(ctx context.Context, patience terminal.Patience, out io.Writer, env assemble.Env, p *pipeline.Pipeline, call func(context.Context) error) error {
	location := LedgerPlace(env, p)
	if patience == (terminal.Patience{}) {
		patience = forLedgers
	}
	hint := assemble.LedgerVariable + ", the network and " + assemble.FirestoreEmulatorVariable
	if location.Path != "" {
		hint = "what else has that file open"
	}
	return patience.Await(ctx, out, "the ledger "+location.String(), hint, call)
}
