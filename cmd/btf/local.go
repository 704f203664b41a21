package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	cloud    *localcloud.Cloud
	events   *localcloud.Subscription
	emulator *emulator.Emulator
	closers  []func() error
}

// startLocal deploys p. report is told of each delivery.
func startLocal(ctx context.Context, p *pipeline.Pipeline, logger *slog.Logger, report func(context.Context, write.Summary)) (_ *local, err error) {
	l := &local{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := l.startBigtable(); err != nil {
		return nil, err
	}
	if err := l.createTables(ctx, p); err != nil {
		return nil, err
	}
	if l.cloud, err = localcloud.New(localcloud.Options{Project: localProject, Logger: logger}); err != nil {
		return nil, err
	}
	l.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return l.cloud.Close(ctx)
	})
	return l, l.startWrite(ctx, p, logger, report)
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

func (l *local) startBigtable() error {
	var err error
	if l.emulator, err = emulator.New(emulator.Options{}); err != nil {
		return fmt.Errorf("starting the emulator: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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

// startWrite puts the function write behind the push subscription of its topic.
func (l *local) startWrite(ctx context.Context, p *pipeline.Pipeline, logger *slog.Logger, report func(context.Context, write.Summary)) error {
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{Emulator: l.bigtable})
	if err != nil {
		return err
	}
	w, err := write.NewWriter(p, dialer, logger)
	if err != nil {
		return err
	}
	l.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return w.Close(ctx)
	})
	var client *pubsub.Client
	if client, err = l.cloud.Client(ctx); err != nil {
		return err
	}
	l.onClose(client.Close)
	letters := deadletter.NewPublisher(client.Publisher(p.Name + "-dead-letter"))
	l.onClose(letters.Close)
	handler, err := write.New(write.Config{
		Pipeline: p, Writer: w, DeadLetters: letters, Limits: mapping.ServiceLimits(), Budget: write.Budget,
		Logger: logger, Now: time.Now, Report: report,
	})
	if err != nil {
		return err
	}
	subscription := localcloud.Events(p.Name)
	subscription.Handler, subscription.Ordered = handler, p.Write.Ordered
	l.events, err = l.cloud.DeployWrite(ctx, p.Name, subscription)
	return err
}

// createTables makes every table whose name the file says.
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
		s, err := schema(pipeline.TableRef{Project: t.Project, Instance: t.Instance, Table: t.ID})
		if err != nil {
			return err
		}
		_, err = admin.CreateTable(ctx, &adminpb.CreateTableRequest{
			Parent: "projects/" + t.Project + "/instances/" + t.Instance, TableId: t.ID,
			Table: &adminpb.Table{ColumnFamilies: s.Declared()},
		})
		if err != nil && status.Code(err) != codes.AlreadyExists {
			return fmt.Errorf("creating table %s: %w", t.Name, err)
		}
	}
	return nil
}
