package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"cloud.google.com/go/pubsub/v2"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/file"
	"github.com/bigtable-functions/bigtable-functions/ledger/firestore"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// scanParts are what both functions of scans need.
type scanParts struct {
	ledger      *ledger.Ledger
	dialer      *btrpc.Dialer
	pubsub      *pubsub.Client
	tasks, done *task.Publisher
}

func buildScanParts(out *parts, p *pipeline.Pipeline, env environment) (*scanParts, error) {
	if len(p.Scans) == 0 {
		return nil, errors.New("the pipeline has no scans")
	}
	var s scanParts
	var err error
	if s.ledger, err = buildLedger(out, p, env); err != nil {
		return nil, err
	}
	s.dialer, err = btrpc.NewDialer(btrpc.DialConfig{
		Emulator: env.get(btrpc.EmulatorVariable), CredentialsFile: p.CredentialsFile, UserAgent: "bigtable-functions",
	})
	if err != nil {
		return nil, err
	}
	if s.pubsub, err = connectPubSub(out, p, env); err != nil {
		return nil, err
	}
	s.tasks = task.NewPublisher(s.pubsub.Publisher(p.Name + "-scan-tasks"))
	s.done = task.NewPublisher(s.pubsub.Publisher(p.Name + "-scan-done"))
	out.closers = append(out.closers, s.tasks.Close, s.done.Close)
	return &s, nil
}

// buildLedger opens what LEDGER names.
func buildLedger(out *parts, p *pipeline.Pipeline, env environment) (*ledger.Ledger, error) {
	location, err := ledger.ParseLocation(env.get("LEDGER"))
	if err != nil {
		return nil, err
	}
	if location.Path != "" {
		store, err := file.Open(context.Background(), location.Path)
		if err != nil {
			return nil, err
		}
		return ledger.New(store, p.Name, env.ledger), nil
	}
	store, err := firestore.Open(context.Background(), location.Project, location.Database)
	if err != nil {
		return nil, err
	}
	out.closers = append(out.closers, store.Close)
	return ledger.New(store, p.Name, env.ledger), nil
}

func buildScanPlanner(out *parts, p *pipeline.Pipeline, env environment) (http.Handler, error) {
	s, err := buildScanParts(out, p, env)
	if err != nil {
		return nil, err
	}
	conn, err := s.dialer.Data(context.Background())
	if err != nil {
		return nil, err
	}
	out.closers = append(out.closers, conn.Close)
	metrics, err := scanplanner.NewMetrics(out.meters.Meter("scan-planner"))
	if err != nil {
		return nil, err
	}
	log := scanplanner.Log(env.logger, p.Name)
	return scanplanner.New(scanplanner.Config{
		Pipeline: p, Ledger: s.ledger, Tasks: s.tasks, Done: s.done, Budget: scanplanner.Budget, Logger: env.logger,
		Sample: func(ctx context.Context, t pipeline.TableRef, profile string) ([]btrpc.Sample, error) {
			return btrpc.NewTable(t.String(), profile).SampleRowKeys(ctx, conn)
		},
		Report: func(ctx context.Context, s scanplanner.Summary) {
			log(ctx, s)
			metrics.Report(ctx, s)
		},
	}), nil
}

func buildScanWorker(out *parts, p *pipeline.Pipeline, env environment) (http.Handler, error) {
	s, err := buildScanParts(out, p, env)
	if err != nil {
		return nil, err
	}
	tables := scanworker.NewTables(s.dialer)
	sinks := scanworker.NewSinks(func(context.Context) (*pubsub.Client, error) { return s.pubsub, nil }, env.logger)
	out.closers = append(out.closers, tables.Close, sinks.Close)
	metrics, err := scanworker.NewMetrics(out.meters.Meter("scan-worker"))
	if err != nil {
		return nil, err
	}
	log := scanworker.Log(env.logger, p.Name)
	cfg := scanworker.Config{
		Pipeline: p, Ledger: s.ledger, Table: tables.Table, Sink: sinks.Sink, Tasks: s.tasks, Done: s.done, Holder: instanceName(env),
		Budget: scanworker.Budget, Slice: scanworker.Slice, CommitEvery: scanworker.CommitEvery, Stopping: out.stopping, Logger: env.logger,
		Report: func(ctx context.Context, s scanworker.Summary) {
			log(ctx, s)
			metrics.Report(ctx, s)
		},
	}
	for _, scan := range p.Scans {
		if scan.OnFailure == pipeline.PolicyDeadLetter && cfg.DeadLetters == nil {
			letters := deadletter.NewPublisher(s.pubsub.Publisher(p.Name + "-dead-letter"))
			out.closers = append(out.closers, letters.Close)
			cfg.DeadLetters = letters
		}
	}
	return scanworker.New(cfg)
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
