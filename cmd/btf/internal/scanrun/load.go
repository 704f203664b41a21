package scanrun

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

var (
	// ErrWorkers says that the number of workers is too small.
	ErrWorkers = errors.New("--workers must be at least 1")
	errIDs     = errors.New("--ids is for --to: records for a sink of the file carry their ids already")
)

// check finds flags that contradict each other.
func (r *Request) check() error {
	switch {
	case r.Workers < 0:
		return ErrWorkers
	case r.IDs && r.To == "" && r.Resume == "":
		return errIDs
	case r.AcceptChanges && r.Resume == "":
		return errors.New("--accept-changes is for --resume")
	case r.Overwrite && (r.To == "" || r.To == "-"):
		return errors.New("--overwrite is for a file of --to")
	case r.Overwrite && r.Resume != "":
		return errors.New("--overwrite beside --resume would lose what the scan has written before")
	}
	return nil
}

// target is a scan of a pipeline file.
type target struct {
	file     string
	pipeline *pipeline.Pipeline
	scan     *pipeline.Scan
}

// load reads the pipeline file as a function does that serves it, and finds the scan in it.
func load(env assemble.Env, file, name string) (*target, error) {
	p, err := setup.LoadFile(env, file)
	if err != nil {
		return nil, err
	}
	scan, err := scanjob.Find(p, name, task.Options{})
	if err != nil {
		return nil, fmt.Errorf("scan %q: %w", name, err)
	}
	return &target{file: file, pipeline: p, scan: scan}, nil
}

// decision is how a scan is run: as its request says and, of a scan that is resumed, as it was run
// before.
type decision struct {
	id        string
	to        string
	ids       bool
	overwrite bool
	workers   int
	before    int64 // records that are committed and not in this output

	// Of a scan that is resumed:
	seen       *known            // what was decided from; nil: the scan is new
	fresh      bool              // the output has nothing of it
	expected   int64             // records that are committed and are in this output
	changed    []string          // what of its definition has changed since it was planned
	definition map[string]string // as it is now, if it has changed
}

// decide decides how the scan is run. The error is errFinished if there is nothing to do.
func decide(ctx context.Context, c Console, t *target, r Request) (*decision, error) {
	d := &decision{to: r.To, ids: r.IDs, overwrite: r.Overwrite, workers: r.Workers}
	if r.Resume == "" {
		d.id = newID(t.scan.Name)
	} else {
		k, err := lookUp(ctx, c, t.pipeline, t.file, t.scan.Name, r.Resume)
		if err != nil {
			return nil, fmt.Errorf("resuming: %w", err)
		}
		if d, err = resume(t, k, r); err != nil {
			return nil, err
		}
	}
	if d.workers == 0 {
		d.workers = DefaultWorkers
	}
	return d, nil
}

// check finds what the scan's records cannot do.
func (d *decision) check(scan *pipeline.Scan) error {
	if err := scan.To.Served(); err != nil && d.to == "" {
		return fmt.Errorf("scan %q: %w; --to FILE writes them to a file", scan.Name, err)
	}
	if d.ids && hasField(scan, sink.IDAttribute) {
		return fmt.Errorf("--ids: the records of scan %q have a field %s of their own", scan.Name, sink.IDAttribute)
	}
	if d.ids && d.to == "" {
		return errIDs
	}
	return nil
}

func hasField(scan *pipeline.Scan, name string) bool {
	return scan.Emit != nil && slices.ContainsFunc(scan.Emit.Fields, func(f pipeline.EmitField) bool { return f.Name == name })
}

// connection is how the services are reached.
type connection struct {
	services *assemble.Services
	probe    func(context.Context) error // asks Bigtable for something small
}

// connect connects to the services, which need not answer yet. It fails if there are no
// credentials for a service that the scan needs.
func connect(env assemble.Env, t *target, d *decision, open *closers.Stack) (*connection, error) {
	services, err := assemble.NewServices(assemble.ServicesConfig{Env: env, Pipeline: t.pipeline, UserAgent: "btf"})
	if err != nil {
		return nil, err
	}
	open.Add(services.Close)
	conn, err := services.Dialer.Data(context.Background())
	if err != nil {
		return nil, setup.Unconnected(err, btrpc.EmulatorVariable)
	}
	open.Add(conn.Close)
	if t.scan.OnFailure == pipeline.PolicyDeadLetter || d.to == "" && t.scan.To.PubSub != nil {
		if _, err := services.PubSub(context.Background()); err != nil {
			return nil, setup.Unconnected(err, assemble.PubSubEmulatorVariable)
		}
	}
	return &connection{services: services, probe: func(ctx context.Context) error {
		_, err := assemble.ScannedTable(t.scan).SampleRowKeys(ctx, conn)
		return err
	}}, nil
}
