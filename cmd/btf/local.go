package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/writer"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// closeTimeout bounds how long a local deployment may take to end.
const closeTimeout = 10 * time.Second

// local is a pipeline deployed in this process: an emulated Bigtable with its tables,
// a Pub/Sub with its topics, and the function write behind a push subscription.
type local struct {
	bigtable string // host:port of the emulator
	function string // URL of the function write
	cloud    *localcloud.Cloud
	events   *localcloud.Subscription
	emulator *emulator.Emulator
	logger   *slog.Logger
	report   func(context.Context, write.Summary)
	letters  *deadletter.Publisher
	versions versions // of the function
	closers  []func() error
}

// startLocal deploys p. report is told of each delivery.
func startLocal(ctx context.Context, p *pipeline.Pipeline, logger *slog.Logger, report func(context.Context, write.Summary)) (_ *local, err error) {
	l := &local{logger: logger, report: report, versions: versions{grace: closeTimeout}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for _, step := range []func(context.Context, *pipeline.Pipeline) error{
		l.startBigtable, l.startFunction, l.startPubSub, l.deploy, l.subscribe,
	} {
		if err := step(ctx, p); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// localProject is the project of the topics of a local deployment.
const localProject = "local"

func (l *local) onClose(f func() error) { l.closers = append(l.closers, f) }

// close ends everything, the newest first.
func (l *local) close() error {
	var errs []error
	for len(l.closers) > 0 {
		last := len(l.closers) - 1
		errs = append(errs, l.closers[last]())
		l.closers = l.closers[:last]
	}
	return errors.Join(errs...)
}

func (l *local) startBigtable(ctx context.Context, _ *pipeline.Pipeline) error {
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

// startFunction serves the function write over HTTP, of which deploy makes versions.
func (l *local) startFunction(ctx context.Context, _ *pipeline.Pipeline) error {
	l.onClose(l.versions.close)
	listener, err := listen(ctx)
	if err != nil {
		return fmt.Errorf("listening for the function write: %w", err)
	}
	l.function = "http://" + listener.Addr().String() + "/"
	server := &http.Server{Handler: &l.versions, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	var served error
	serving.Go(func() { served = server.Serve(listener) })
	l.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		serving.Wait()
		if errors.Is(served, http.ErrServerClosed) {
			return err
		}
		return errors.Join(err, served)
	})
	return nil
}

// startPubSub starts Pub/Sub, and what dead letters are published through.
func (l *local) startPubSub(ctx context.Context, p *pipeline.Pipeline) error {
	var err error
	if l.cloud, err = localcloud.New(localcloud.Options{Project: localProject, Logger: l.logger}); err != nil {
		return err
	}
	l.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return l.cloud.Close(ctx)
	})
	var client *pubsub.Client
	if client, err = l.cloud.Client(ctx); err != nil {
		return err
	}
	l.onClose(client.Close)
	l.letters = deadletter.NewPublisher(client.Publisher(p.Name + "-dead-letter"))
	l.onClose(l.letters.Close)
	return nil
}

// deploy makes p's tables and serves deliveries by p from now on. Deliveries under way
// end in the version they began in. After an error the version before stays.
func (l *local) deploy(ctx context.Context, p *pipeline.Pipeline) error {
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: l.bigtable, CredentialsFile: p.CredentialsFile})
	if err != nil {
		return err
	}
	w, err := write.NewWriter(p, dialer, l.logger)
	if err != nil {
		return err
	}
	end := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return w.Close(ctx)
	}
	handler, err := write.New(write.Config{
		Pipeline: p, Writer: w, DeadLetters: l.letters, Limits: mapping.ServiceLimits(), Budget: write.Budget,
		Logger: l.logger, Now: time.Now, Report: l.report,
	})
	if err == nil {
		err = l.createTables(ctx, p)
	}
	if err != nil {
		return errors.Join(err, end())
	}
	l.versions.replace(handler, end)
	return nil
}

// subscribe makes p's topics, and the subscription that pushes events to the function.
func (l *local) subscribe(ctx context.Context, p *pipeline.Pipeline) error {
	subscription := localcloud.Events(p.Name)
	subscription.Endpoint, subscription.Ordered = l.function, p.Write.Ordered
	var err error
	l.events, err = l.cloud.DeployWrite(ctx, p.Name, subscription)
	return err
}

// createTables makes every table whose name the file says, and what families it lacks.
func (l *local) createTables(ctx context.Context, p *pipeline.Pipeline) error {
	conn, err := l.emulator.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	admin := adminpb.NewBigtableTableAdminClient(conn)
	schema := writer.Schemas(p.Tables)
	for _, t := range p.Tables {
		if !t.IDFrom.IsZero() {
			continue
		}
		ref := pipeline.TableRef{Project: t.Project, Instance: t.Instance, Table: t.ID}
		s, err := schema(ref)
		if err != nil {
			return err
		}
		_, err = admin.CreateTable(ctx, &adminpb.CreateTableRequest{
			Parent: "projects/" + t.Project + "/instances/" + t.Instance, TableId: t.ID,
			Table: &adminpb.Table{ColumnFamilies: s.Declared()},
		})
		if status.Code(err) == codes.AlreadyExists {
			err = alterTable(ctx, admin, ref.String(), s.Declared())
		}
		if err != nil {
			return fmt.Errorf("creating table %s: %w", t.Name, err)
		}
	}
	return nil
}

// alterTable gives a table the declared families that it lacks, and those it has their
// declared garbage collection. A family's aggregate type stays as it was made, and
// families that are no longer declared keep their data.
func alterTable(ctx context.Context, admin adminpb.BigtableTableAdminClient, name string, declared map[string]*adminpb.ColumnFamily) error {
	table, err := admin.GetTable(ctx, &adminpb.GetTableRequest{Name: name, View: adminpb.Table_SCHEMA_VIEW})
	if err != nil {
		return err
	}
	req := &adminpb.ModifyColumnFamiliesRequest{Name: name}
	for id, f := range declared {
		m := &adminpb.ModifyColumnFamiliesRequest_Modification{Id: id}
		if table.ColumnFamilies[id] == nil {
			m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: f}
		} else {
			m.Mod = &adminpb.ModifyColumnFamiliesRequest_Modification_Update{Update: f}
			m.UpdateMask = &fieldmaskpb.FieldMask{Paths: []string{"gc_rule", "value_type"}}
		}
		req.Modifications = append(req.Modifications, m)
	}
	_, err = admin.ModifyColumnFamilies(ctx, req)
	return err
}
