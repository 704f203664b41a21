package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// check finds what can be known to be wrong before anything is written, and connects to
// the services, which need not answer yet. The error is errFinished where there is
// nothing to do.
func (s *scanner) check(ctx context.Context) (*pipeline.Pipeline, error) {
	if err := s.checkFlags(); err != nil {
		return nil, err
	}
	p, err := loadServed(s.env, s.file)
	if err != nil {
		return nil, err
	}
	scan, err := scanjob.Find(p, s.name, task.Options{})
	if err != nil {
		return nil, fmt.Errorf("scan %q: %w", s.name, err)
	}
	if s.resume != "" {
		if err := s.checkResume(ctx, p); err != nil {
			return nil, err
		}
	}
	if s.workers == 0 {
		s.workers = defaultWorkers
	}
	if err := scan.To.Served(); err != nil && s.to == "" {
		return nil, fmt.Errorf("scan %q: %w; --to FILE writes them to a file", s.name, err)
	}
	if s.ids && hasField(scan, sink.IDAttribute) {
		return nil, fmt.Errorf("--ids: the records of scan %q have a field %s of their own", s.name, sink.IDAttribute)
	}
	if s.ids && s.to == "" {
		return nil, errIDs
	}
	return p, s.connect(p, scan)
}

func (s *scanner) checkFlags() error {
	switch {
	case s.workers < 0:
		return errWorkers
	case s.ids && s.to == "" && s.resume == "":
		return errIDs
	case s.acceptChanges && s.resume == "":
		return errors.New("--accept-changes is for --resume")
	case s.overwrite && (s.to == "" || s.to == "-"):
		return errors.New("--overwrite is for a file of --to")
	case s.overwrite && s.resume != "":
		return errors.New("--overwrite beside --resume would lose what the scan has written before")
	}
	return nil
}

var (
	errWorkers = errors.New("--workers must be at least 1")
	errIDs     = errors.New("--ids is for --to: what a sink of the file gets carries its id already")
)

// loadServed reads a pipeline file as a function does that serves it, for this machine's
// project and instance.
func loadServed(env assemble.Env, name string) (*pipeline.Pipeline, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the pipeline file: %w", err)
	}
	loaded, findings := loadPipeline(env, name, text)
	if err := findings.Err(); err != nil {
		return nil, err
	}
	return loaded.Pipeline, nil
}

func hasField(scan *pipeline.Scan, name string) bool {
	return scan.Emit != nil && slices.ContainsFunc(scan.Emit.Fields, func(f pipeline.EmitField) bool { return f.Name == name })
}

// connect prepares what asks Bigtable how it is. It fails where there are no credentials
// for a service that the scan needs.
func (s *scanner) connect(p *pipeline.Pipeline, scan *pipeline.Scan) error {
	var err error
	s.services, err = assemble.NewServices(assemble.ServicesConfig{Env: s.env, Pipeline: p, UserAgent: "btf"})
	if err != nil {
		return err
	}
	s.onClose(s.services.Close)
	conn, err := s.services.Dialer.Data(context.Background())
	if err != nil {
		return unconnected(err, btrpc.EmulatorVariable)
	}
	s.onClose(conn.Close)
	s.probe = func(ctx context.Context) error {
		_, err := btrpc.NewTable(scan.Table.Ref().String(), scan.AppProfile).SampleRowKeys(ctx, conn)
		return err
	}
	if scan.OnFailure == pipeline.PolicyDeadLetter || s.to == "" && scan.To.PubSub != nil {
		if _, err := s.services.PubSub(context.Background()); err != nil {
			return unconnected(err, assemble.PubSubEmulatorVariable)
		}
	}
	return nil
}

// unconnected says how to connect to a service, or to an emulator of it.
func unconnected(err error, variable string) error {
	return fmt.Errorf("%w; `gcloud auth application-default login` makes credentials, and %s=HOST:PORT names an emulator that needs none", err, variable)
}
