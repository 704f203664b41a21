package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/scans"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
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

// build makes a version of each function that the file has work for. After an error it
// has closed what it made.
func (l *local) build(ctx context.Context, loaded *lint.Loaded) (map[lint.Principal]release, error) {
	p := loaded.Pipeline
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: l.bigtable, CredentialsFile: p.CredentialsFile})
	if err != nil {
		return nil, err
	}
	releases := map[lint.Principal]release{}
	if p.Write != nil {
		if releases[lint.Write], err = l.buildWrite(loaded, dialer); err != nil {
			return nil, err
		}
	}
	if len(p.Scans) > 0 {
		if err := l.buildScans(ctx, p, dialer, releases); err != nil {
			return nil, errors.Join(err, closeReleases(releases))
		}
	}
	return releases, nil
}

func (l *local) buildWrite(loaded *lint.Loaded, dialer *btrpc.Dialer) (release, error) {
	w, err := write.NewWriter(loaded.Pipeline, dialer, l.logger)
	if err != nil {
		return release{}, err
	}
	end := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return w.Close(ctx)
	}
	handler, err := write.New(write.Config{
		Pipeline: loaded.Pipeline, Compiled: loaded.Write, Writer: w, DeadLetters: l.letters, Budget: write.Budget,
		Logger: l.logger, Now: time.Now, Report: l.wrote,
	})
	if err != nil {
		return release{}, errors.Join(err, end())
	}
	return release{handler: handler, close: end}, nil
}

// buildScans adds planner and worker.
func (l *local) buildScans(ctx context.Context, p *pipeline.Pipeline, dialer *btrpc.Dialer, to map[lint.Principal]release) error {
	if l.ledger == nil {
		var err error
		if l.ledger, err = l.openLedger(ctx); err != nil {
			return err
		}
	}
	cfg := scans.Config{
		Pipeline: p, Ledger: l.ledger, Dialer: dialer, Records: l.records, Logger: l.logger,
		PubSub: func(context.Context) (*pubsub.Client, error) { return l.client, nil },
	}
	planner, err := scans.NewPlanner(cfg, l.planned)
	if err != nil {
		return err
	}
	to[lint.ScanPlanner] = release{handler: planner, close: planner.Close}
	workers, err := l.buildWorkers(cfg)
	if err != nil {
		return err
	}
	to[lint.ScanWorker] = workers
	return nil
}

// buildWorkers builds the instances of scan-worker.
func (l *local) buildWorkers(cfg scans.Config) (release, error) {
	stopping, stop := context.WithCancel(context.Background())
	var closers []func() error
	closeWorkers := func() error {
		stop()
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	instances := make(pool, max(1, l.workers))
	for i := range cap(instances) {
		w, err := scans.NewWorker(stopping, cfg, holder(), func(_ context.Context, s scanworker.Summary) { l.scanned(i, s) })
		if err != nil {
			return release{}, errors.Join(err, closeWorkers())
		}
		closers = append(closers, w.Close)
		instances <- w
	}
	out := release{handler: instances, stop: stop, close: closeWorkers}
	if l.workers == 0 {
		out.handler = <-instances
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
