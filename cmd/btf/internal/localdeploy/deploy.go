package localdeploy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Deploy makes what the file needs and is not there yet, and serves deliveries by it from
// now on. Deliveries under way end in the version they began in; a slice of a scan ends
// soon, and what is left of it goes on in the new one. After an error the version
// before stays.
func (d *Deployment) Deploy(ctx context.Context, loaded *lint.Loaded) error {
	releases, err := d.build(ctx, loaded)
	if err == nil {
		err = d.createTables(ctx, loaded.Pipeline)
	}
	if err == nil {
		err = d.createTopics(ctx, loaded)
	}
	if err == nil {
		err = d.subscribe(ctx, loaded, releases)
	}
	if err != nil {
		return errors.Join(err, closeReleases(releases))
	}
	for _, s := range loaded.Report.Resources.Services {
		if r, built := releases[s.Function]; built {
			d.services[s.ID].versions.replace(r)
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
func (d *Deployment) build(ctx context.Context, loaded *lint.Loaded) (map[lint.Principal]release, error) {
	p := loaded.Pipeline
	cfg := assemble.Config{
		Pipeline: eager(p), Compiled: loaded.Write,
		PubSub: func(context.Context) (*pubsub.Client, error) { return d.Client, nil },
		Ledger: func(context.Context) (*ledger.Ledger, error) { return d.ledgerOnce(ctx) },
		Holder: d.Holder, Logger: d.Logger, Records: d.Records, Now: time.Now, CloseTime: closeTimeout,
	}
	releases := map[lint.Principal]release{}
	for _, b := range assemble.Needed(loaded) {
		dial := btrpc.DialConfig{Emulator: d.Bigtable, CredentialsFile: p.CredentialsFile}
		if d.Principal != nil {
			dial.Principal = d.Principal(b.Name)
		}
		var r release
		var err error
		if cfg.Dialer, err = btrpc.NewDialer(dial); err == nil {
			r, err = d.buildRelease(b, cfg)
		}
		if err != nil {
			return nil, errors.Join(err, closeReleases(releases))
		}
		releases[b.Name] = r
	}
	return releases, nil
}

// ledgerOnce opens the ledger when a function first needs it.
func (d *Deployment) ledgerOnce(ctx context.Context) (*ledger.Ledger, error) {
	if d.ledger == nil {
		var err error
		if d.ledger, err = d.OpenLedger(ctx); err != nil {
			return nil, err
		}
	}
	return d.ledger, nil
}

// buildRelease builds one version of a function: one instance for any number of requests or,
// of scan-worker if Workers is set, so many instances for one request each.
func (d *Deployment) buildRelease(b assemble.Builder, cfg assemble.Config) (release, error) {
	if b.Name == lint.Changes && d.StreamLedger != nil {
		cfg.Ledger = d.StreamLedger
	}
	n, pooled := 1, b.Name == lint.ScanWorker && d.Workers > 0
	if pooled {
		n = d.Workers
	}
	out := release{}
	cfg.Stopping, out.stop = context.WithCancel(context.Background())
	var built closers.Stack
	out.close = func() error {
		out.stop()
		return built.Close()
	}
	free := make(pool, n)
	for i := range n {
		if d.Reports != nil {
			cfg.Reports = d.Reports(i)
		}
		f, err := b.Build(cfg)
		if err != nil {
			return release{}, errors.Join(err, out.close())
		}
		built.Add(f.Close)
		free <- f
		out.handler = f
	}
	if pooled {
		out.handler = free
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
