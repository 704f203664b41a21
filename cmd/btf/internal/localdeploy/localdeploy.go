// Package localdeploy guarantees that a pipeline runs on this machine as it is deployed: an
// emulated Bigtable with its tables, a Pub/Sub with its topics, and its functions behind the
// push subscriptions that lint derives from its file. A new version of the file replaces the
// one that runs without losing a delivery.
package localdeploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// closeTimeout bounds how long a part of a local deployment may take to end.
	closeTimeout = 10 * time.Second
	// Project is the project of the topics of a local deployment.
	Project = "local"
)

// Options are the ways in which deployments on this machine differ.
type Options struct {
	Logger *slog.Logger
	// Records takes the records of scans and change streams with `to: log`.
	Records *slog.Logger
	// Holder is this process in leases.
	Holder ledger.Holder
	// OpenLedger is called once, when a file has scans or change streams. The deployment does not close it.
	OpenLedger func(context.Context) (*ledger.Ledger, error)
	// StreamLedger, if it is set, opens the ledger of the function changes, anew for each
	// version. The deployment does not close it.
	StreamLedger func(context.Context) (*ledger.Ledger, error)
	// Tablets are the keys at which a table is cut when it is made, by the table's id.
	Tablets map[string][]string
	// Workers is how many instances scan-worker has, each for one split at a time; 0: one
	// instance for any number of them.
	Workers int
	// Emulation are the options of the emulator of Bigtable.
	Emulation emulator.Options
	// Principal names the principal of a function's calls to the emulator. It may be nil.
	Principal func(lint.Principal) string
	// Endless is set if what was published is not kept, for a process that runs for long.
	Endless bool

	// Reports, if it is set, returns what each function reports to. instance numbers the instances
	// of scan-worker from 0.
	Reports func(instance int) assemble.Reports
	// Finished is called with each scan that is finished. A pipeline with scans needs it.
	Finished func(task.ScanDone)
}

// Deployment is a pipeline that runs in this process. It must be closed. Deploy and Close
// are not safe for concurrent use.
type Deployment struct {
	Options
	Bigtable string // host:port of the emulator
	Emulator *emulator.Emulator
	Cloud    *localcloud.Cloud
	Client   *pubsub.Client // of Cloud
	ledger   *ledger.Ledger // nil until a file has scans or change streams

	mu       sync.Mutex                          // guards services against ServiceURL
	services map[string]*service                 // by the service's id
	pushes   map[string]*localcloud.Subscription // by the subscription's id
	made     map[string]bool                     // what once has made
	open     closers.Stack
}

// Start deploys a pipeline.
func Start(ctx context.Context, loaded *lint.Loaded, o Options) (_ *Deployment, err error) {
	d := &Deployment{
		Options: o, services: map[string]*service{}, pushes: map[string]*localcloud.Subscription{}, made: map[string]bool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := d.startBigtable(ctx); err != nil {
		return nil, err
	}
	if err := d.startPubSub(ctx); err != nil {
		return nil, err
	}
	return d, d.Deploy(ctx, loaded)
}

// Push returns the push subscription of this id. It is nil if the pipeline has none.
func (d *Deployment) Push(id string) *localcloud.Subscription { return d.pushes[id] }

// ServiceURL returns the URL of the service of this id. It is empty if the pipeline has none.
// It may be called while Deploy is at work.
func (d *Deployment) ServiceURL(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.services[id]; s != nil {
		return s.url
	}
	return ""
}

// Close ends everything: deliveries first, which need all the rest, then the newest
// first.
func (d *Deployment) Close() error {
	var errs []error
	if d.Cloud != nil {
		d.Cloud.Stop()
		for _, s := range d.services {
			s.versions.stop()
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		errs = append(errs, d.Cloud.Close(ctx))
	}
	return errors.Join(append(errs, d.open.Close())...)
}

func (d *Deployment) startBigtable(ctx context.Context) error {
	var err error
	if d.Emulator, err = emulator.New(d.Emulation); err != nil {
		return fmt.Errorf("starting the emulator: %w", err)
	}
	listener, err := listen(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("listening for the emulator: %w", err), d.Emulator.Close())
	}
	d.Bigtable = listener.Addr().String()
	var serving sync.WaitGroup
	var served error
	serving.Go(func() { served = d.Emulator.Serve(listener) })
	d.open.Add(func() error {
		err := d.Emulator.Close()
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
func (d *Deployment) startPubSub(ctx context.Context) error {
	var err error
	if d.Cloud, err = localcloud.New(localcloud.Options{Project: Project, Forget: d.Endless, Logger: d.Logger}); err != nil {
		return err
	}
	// Its publishers end later than ctx: what is under way then publishes yet.
	if d.Client, err = d.Cloud.Client(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	d.open.Add(d.Client.Close)
	return nil
}
