package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/scans"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// scanConfig opens what a function of scans is given.
func scanConfig(out *parts, p *pipeline.Pipeline, env environment) (scans.Config, error) {
	cfg := scans.Config{Pipeline: p, Records: env.logger, Logger: env.logger}
	if len(p.Scans) == 0 {
		return cfg, errors.New("the pipeline has no scans")
	}
	place := env.get("LEDGER")
	if place == "" {
		return cfg, errors.New("LEDGER is not set: scans need firestore:PROJECT/DATABASE, as in firestore:my-project/(default), or file:PATH")
	}
	var err error
	cfg.Dialer, err = btrpc.NewDialer(btrpc.DialConfig{
		Emulator: env.get(btrpc.EmulatorVariable), CredentialsFile: p.CredentialsFile, UserAgent: "bigtable-functions",
	})
	if err != nil {
		return cfg, err
	}
	const firestoreEmulator = "FIRESTORE_EMULATOR_HOST"
	credentials, err := cfg.Dialer.Credentials(firestoreEmulator, env.get(firestoreEmulator))
	if err != nil {
		return cfg, err
	}
	var closer func() error
	cfg.Ledger, closer, err = scans.OpenLedger(context.Background(), place, p.Name, env.ledger, append(credentials, env.google...)...)
	if err != nil {
		return cfg, err
	}
	out.closers = append(out.closers, closer)
	client, err := connectPubSub(out, p, cfg.Dialer, env)
	cfg.PubSub = func(context.Context) (*pubsub.Client, error) { return client, nil }
	return cfg, err
}

func buildScanPlanner(out *parts, loaded *lint.Loaded, env environment) (http.Handler, error) {
	cfg, err := scanConfig(out, loaded.Pipeline, env)
	if err != nil {
		return nil, err
	}
	metrics, err := scanplanner.NewMetrics(out.meters.Meter("scan-planner"))
	if err != nil {
		return nil, err
	}
	log := scanplanner.Log(env.logger, loaded.Pipeline.Name)
	f, err := scans.NewPlanner(cfg, func(ctx context.Context, s scanplanner.Summary) {
		log(ctx, s)
		metrics.Report(ctx, s)
	})
	if err != nil {
		return nil, err
	}
	out.closers = append(out.closers, f.Close)
	return f, nil
}

func buildScanWorker(out *parts, loaded *lint.Loaded, env environment) (http.Handler, error) {
	cfg, err := scanConfig(out, loaded.Pipeline, env)
	if err != nil {
		return nil, err
	}
	metrics, err := scanworker.NewMetrics(out.meters.Meter("scan-worker"))
	if err != nil {
		return nil, err
	}
	log := scanworker.Log(env.logger, loaded.Pipeline.Name)
	f, err := scans.NewWorker(out.stopping, cfg, instanceName(env), func(ctx context.Context, s scanworker.Summary) {
		log(ctx, s)
		metrics.Report(ctx, s)
	})
	if err != nil {
		return nil, err
	}
	out.closers = append(out.closers, f.Close)
	return f, nil
}

// instanceName names this process in leases: the revision on Cloud Run, and something
// that its instances do not share.
func instanceName(env environment) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	if revision := env.get("K_REVISION"); revision != "" {
		host = revision + "/" + host
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
