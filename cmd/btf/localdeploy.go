package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// deploy makes what p needs and is not there yet, and serves deliveries by p from now
// on. Deliveries under way end in the version they began in; a slice of a scan ends
// soon, and what is left of it goes on in the new one. After an error the version
// before stays.
func (l *local) deploy(ctx context.Context, loaded *lint.Loaded) error {
	releases, err := l.build(ctx, loaded)
	if err == nil {
		err = l.createTables(ctx, loaded.Pipeline)
	}
	if err == nil {
		err = l.createTopics(ctx, loaded)
	}
	if err == nil {
		err = l.subscribe(ctx, loaded, releases)
	}
	if err != nil {
		return errors.Join(err, closeReleases(releases))
	}
	for _, s := range loaded.Report.Resources.Services {
		if r, built := releases[s.Function]; built {
			l.services[s.ID].versions.replace(r)
		}
	}
	return nil
}

func closeReleases(releases map[lint.Principal]release) error {
	var errs []error
	for _, r := range releases {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// build makes a version of each function for which the file has work. After an error it
// has closed what it made.
func (l *local) build(ctx context.Context, loaded *lint.Loaded) (map[lint.Principal]release, error) {
	p := loaded.Pipeline
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: l.bigtable, CredentialsFile: p.CredentialsFile})
	if err != nil {
		return nil, err
	}
	cfg := assemble.Config{
		Pipeline: p, Compiled: loaded.Write, Dialer: dialer,
		PubSub: func(context.Context) (*pubsub.Client, error) { return l.client, nil },
		Ledger: func(context.Context) (*ledger.Ledger, error) { return l.ledgerOnce(ctx) },
		Holder: holder(), Logger: l.logger, Records: l.records, Now: time.Now, CloseTime: closeTimeout,
		Reports: assemble.Reports{Write: l.wrote, ScanPlanner: l.planned},
	}
	releases := map[lint.Principal]release{}
	for _, b := range assemble.Builders() {
		if !b.Wanted(p) {
			continue
		}
		if releases[b.Name], err = l.release(b, cfg); err != nil {
			delete(releases, b.Name)
			return nil, errors.Join(err, closeReleases(releases))
		}
	}
	return releases, nil
}

// ledgerOnce opens the ledger when a function first needs it.
func (l *local) ledgerOnce(ctx context.Context) (*ledger.Ledger, error) {
	if l.ledger == nil {
		var err error
		if l.ledger, err = l.openLedger(ctx); err != nil {
			return nil, err
		}
	}
	return l.ledger, nil
}

// release builds one version of a function, with as many instances as it is to have.
func (l *local) release(b assemble.Builder, cfg assemble.Config) (release, error) {
	if b.Name != lint.ScanWorker || l.workers == 0 {
		return l.instances(b, cfg, 1)
	}
	return l.instances(b, cfg, l.workers)
}

func (l *local) instances(b assemble.Builder, cfg assemble.Config, n int) (release, error) {
	out := release{}
	cfg.Stopping, out.stop = context.WithCancel(context.Background())
	var built []*assemble.Function
	out.close = func() error {
		out.stop()
		var errs []error
		for _, f := range built {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	free := make(pool, n)
	for i := range n {
		cfg.Reports.ScanWorker = func(_ context.Context, s scanworker.Summary) { l.scanned(i, s) }
		f, err := b.Build(cfg)
		if err != nil {
			return release{}, errors.Join(err, out.close())
		}
		built = append(built, f)
		free <- f
	}
	if out.handler = free; b.Name != lint.ScanWorker || l.workers == 0 {
		out.handler = built[0] // for any number of requests at once
	}
	return out, nil
}

// pool gives each request to an instance that is free, in turn. A request waits for
// one, as on Cloud Run.
type pool chan http.Handler

func (p pool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case instance := <-p:
		defer func() { p <- instance }()
		instance.ServeHTTP(w, r)
	case <-r.Context().Done():
		http.Error(w, "no instance is free", http.StatusTooManyRequests)
	}
}
