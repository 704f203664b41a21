// Package demo writes the flights of examples/flights through the functions on this machine, reads,
// scans and follows what they have written, and compares all of it, for btf demo. It guarantees that
// it finds no difference only if every row, every record of the scan and every change is as the
// events say.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// timeout bounds Run.
	timeout = 5 * time.Minute
	// workers is how many instances of scan-worker read the table.
	workers = 3
	// tablets is how many the table has, so that each worker gets several splits.
	tablets = 4 * workers
)

// Demo is the pipeline of the example, which runs on this machine.
type Demo struct {
	stderr    io.Writer
	flights   *flights
	dir       string          // of the ledger
	place     ledger.Location // of the ledger
	local     *localdeploy.Deployment
	open      closers.Stack
	totals    totals
	scanning  scanning
	following following
}

// Start runs the pipeline. stderr takes progress and warnings. The caller closes the demo.
func Start(ctx context.Context, stderr io.Writer) (_ *Demo, err error) {
	f, err := loadFlights()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "btf-demo-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the ledger: %w", err)
	}
	d := &Demo{
		stderr: stderr, flights: f, dir: dir, place: ledger.Location{Path: filepath.Join(dir, "ledger.db")},
		scanning: scanning{done: make(chan task.ScanDone, 1)},
	}
	d.open.Add(func() error { return os.RemoveAll(dir) })
	if d.local, err = localdeploy.Start(ctx, f.Loaded, d.options()); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the demo: %w", err), d.Close())
	}
	d.open.Add(d.local.Close)
	return d, nil
}

// Close ends what runs and removes its data.
func (d *Demo) Close() error { return d.open.Close() }

func (d *Demo) options() localdeploy.Options {
	logger := slog.New(telemetry.NewHandler(d.stderr, slog.LevelWarn, ""))
	name := d.flights.Pipeline.Name
	return localdeploy.Options{
		Logger: logger, Records: logger, Holder: process.Self(), Workers: workers,
		Tablets: map[string][]string{d.flights.Pipeline.Tables[0].ID: cutKeys(d.flights.rows, tablets)},
		OpenLedger: func(ctx context.Context) (*ledger.Ledger, error) {
			l, _, err := assemble.OpenLedger(ctx, d.place, name, ledger.Options{})
			return l, err
		},
		StreamLedger: func(ctx context.Context) (*ledger.Ledger, error) { return d.following.openLedger(ctx, d.place, name) },
		Finished:     d.scanning.finish,
		Reports: func(instance int) assemble.Reports {
			return assemble.Reports{Write: d.totals.add, Changes: d.following.add, ScanWorker: func(_ context.Context, s scanworker.Summary) { d.scanning.add(instance, s) }}
		},
	}
}

// Run writes, follows, reads back and scans. differences say how what has come differs from what
// the events say. If Run fails, what it has found until then is in differences.
func (d *Demo) Run(ctx context.Context) (r Result, differences, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := d.local.Tick(ctx, d.flights.Pipeline.Name); err != nil { // changes are read from now on
		return r, nil, err
	}
	began := time.Now()
	written, err := d.write(ctx)
	if err != nil {
		return r, nil, err
	}
	followed, unlikeChanges, err := d.follow(ctx, began)
	if err != nil {
		return r, nil, err
	}
	rows, unlikeRows, err := d.readBack(ctx)
	if err != nil {
		return r, nil, err
	}
	differences = errors.Join(unlikeRows, unlikeChanges)
	scanned, unlikeRecords, err := d.scan(ctx)
	if err != nil {
		return r, differences, err
	}
	return Result{
		Published: int(written.counts.Published), Acked: int(written.counts.Acked),
		Applied: written.sums.Applied, Skipped: written.sums.Skipped, Failed: written.sums.Failed, DeadLettered: written.sums.DeadLettered,
		Rows: rows, Seconds: written.took.Seconds(),
		Scanned: scanned.equal, Splits: scanned.splits, Workers: scanned.workers, ScanSeconds: scanned.took.Seconds(),
		Changes: followed.equal, ChangesRepeated: followed.repeated, ReadersKilled: followed.killed, Closed: followed.closed, ChangeSeconds: followed.took.Seconds(),
	}, errors.Join(differences, unlikeRecords), nil
}

// Result is what the demo has counted. As JSON its fields and their order are a contract.
type Result struct {
	Published    int     `json:"published"`    // messages
	Acked        int     `json:"acked"`        // messages acknowledged by the function
	Applied      int     `json:"applied"`      // entries that Bigtable took
	Skipped      int     `json:"skipped"`      // records
	Failed       int     `json:"failed"`       // records that can never be written
	DeadLettered int     `json:"deadLettered"` // of these, kept as dead letters
	Rows         int     `json:"rows"`         // rows read back that are as expected
	Seconds      float64 `json:"seconds"`      // from the first publish to the last acknowledgement
	Scanned      int     `json:"scanned"`      // records of the scan that came once and as expected
	Splits       int     `json:"splits"`       // that the scan's plan has
	Workers      int     `json:"workers"`      // that have read one of them
	ScanSeconds  float64 `json:"scanSeconds"`  // from the request to the completion event

	Changes         int     `json:"changes"`         // that arrived as expected, each counted once
	ChangesRepeated int     `json:"changesRepeated"` // records of changes that came again, under the same ids
	ReadersKilled   int     `json:"readersKilled"`   // while changes were under way
	Closed          int     `json:"closed"`          // partitions that a split or a merge replaced
	ChangeSeconds   float64 `json:"changeSeconds"`   // from the first publish to the last change
}

// Print prints the result for a reader.
func (r *Result) Print(stderr io.Writer) {
	fmt.Fprintf(stderr, "%d events published, %d acknowledged, %d rows read back equal, in %.1f s\n", r.Published, r.Acked, r.Rows, r.Seconds)
	fmt.Fprintf(stderr, "%d splits scanned by %d workers, %d records arrived equal, in %.1f s\n", r.Splits, r.Workers, r.Scanned, r.ScanSeconds)
	fmt.Fprintf(stderr, "%d changes arrived equal through %d closed partitions and %d killed reader, %d of them again under their ids, in %.1f s\n",
		r.Changes, r.Closed, r.ReadersKilled, r.ChangesRepeated, r.ChangeSeconds)
}

// PrintJSON prints the result as one object.
func (r *Result) PrintJSON(stdout io.Writer) error {
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// Hold says how to reach the parts, the pipeline file among them, and waits until ctx ends.
func (d *Demo) Hold(ctx context.Context) error {
	file := filepath.Join(d.dir, "pipeline.yaml")
	if err := os.WriteFile(file, d.flights.text, 0o600); err != nil {
		return fmt.Errorf("writing the demo's pipeline file: %w", err)
	}
	fmt.Fprintf(d.stderr, "holding; to look around, in another shell:\n"+
		"  export BIGTABLE_EMULATOR_HOST=%s\n"+
		"  export PUBSUB_EMULATOR_HOST=%s PUBSUB_PROJECT=%s\n"+
		"  export LEDGER=%s\n"+
		"  cbt -project demo -instance demo read flights count=3\n"+
		"  btf status -f %[5]s --all\n"+
		"  btf scan -f %[5]s %[6]s --to -\n"+
		"  btf tail -f %[5]s --from -10m\n"+
		"Ctrl-C ends it\n", d.local.Bigtable, d.local.Cloud.Addr(), localdeploy.Project, d.place.String(), terminal.ShellQuoted(file), d.flights.Pipeline.Scans[0].Name)
	<-ctx.Done()
	return nil
}
