package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// closeTimeout bounds how long a part of a local deployment may take to end.
	closeTimeout = 10 * time.Second
	// localProject is the project of the topics of a local deployment.
	localProject = "local"
)

// localOptions are what local deployments differ in.
type localOptions struct {
	logger *slog.Logger
	// records is what the scans' sink log writes to.
	records *slog.Logger
	// openLedger is called once, when a file has scans.
	openLedger func(context.Context) (*ledger.Ledger, error)
	// tablets says at which keys a table is cut when it is made, by the table's id.
	tablets map[string][]string
	// workers is how many instances scan-worker has, each for one split at a time; 0:
	// one instance for any number of them.
	workers int
	// endless: what was published is not kept.
	endless bool

	// Told of each delivery, and of each scan that is finished. planned may be nil.
	wrote    func(context.Context, write.Summary)
	planned  func(context.Context, scanplanner.Summary)
	scanned  func(worker int, s scanworker.Summary)
	finished func(task.ScanDone)
}

// local is a pipeline deployed in this process: an emulated Bigtable with its tables,
// a Pub/Sub with its topics, and its functions behind push subscriptions.
type local struct {
	localOptions
	bigtable string // host:port of the emulator
	emulator *emulator.Emulator
	cloud    *localcloud.Cloud
	client   *pubsub.Client
	ledger   *ledger.Ledger // nil until a file has scans

	services map[string]*service                 // by the service's id
	pushes   map[string]*localcloud.Subscription // by the subscription's id
	made     map[string]bool                     // what once has made
	closers  []func() error
}

// startLocal deploys a pipeline.
func startLocal(ctx context.Context, loaded *lint.Loaded, o localOptions) (_ *local, err error) {
	l := &local{
		localOptions: o, services: map[string]*service{}, pushes: map[string]*localcloud.Subscription{}, made: map[string]bool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := l.startBigtable(ctx); err != nil {
		return nil, err
	}
	if err := l.startPubSub(ctx); err != nil {
		return nil, err
	}
	return l, l.deploy(ctx, loaded)
}

func (l *local) onClose(f func() error) { l.closers = append(l.closers, f) }

// close ends everything: deliveries first, which need all the rest, then the newest
// first.
func (l *local) close() error {
	var errs []error
	if l.cloud != nil {
		l.cloud.Stop()
		for _, s := range l.services {
			s.versions.stop()
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		errs = append(errs, l.cloud.Close(ctx))
	}
	for len(l.closers) > 0 {
		last := len(l.closers) - 1
		errs = append(errs, l.closers[last]())
		l.closers = l.closers[:last]
	}
	return errors.Join(errs...)
}

func (l *local) startBigtable(ctx context.Context) error {
	var err error
	if l.emulator, err = emulator.New(emulator.Options{}); err != nil {
		return fmt.Errorf("starting the emulator: %w", err)
	}
	listener, err := listen(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("listening for the emulator: %w", err), l.emulator.Close())
	}
	l.bigtable = listener.Addr().String()
	var serving sync.WaitGroup
	var served error
	serving.Go(func() { served = l.emulator.Serve(listener) })
	l.onClose(func() error {
		err := l.emulator.Close()
		serving.Wait()
		return errors.Join(err, served)
	})
	return nil
}

func listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", "127.0.0.1:0")
}

// startPubSub starts Pub/Sub, and what the functions publish through.
func (l *local) startPubSub(ctx context.Context) error {
	var err error
	if l.cloud, err = localcloud.New(localcloud.Options{Project: localProject, Forget: l.endless, Logger: l.logger}); err != nil {
		return err
	}
	// Its publishers end later than ctx: what is under way then publishes yet.
	if l.client, err = l.cloud.Client(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	l.onClose(l.client.Close)
	return nil
}
