package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/examples"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

const (
	// demoTimeout bounds the demo, but for the time that --hold adds.
	demoTimeout = 5 * time.Minute
	// demoWorkers is how many instances of scan-worker read the table.
	demoWorkers = 3
	// demoTablets is how many the table has, so that each worker gets several splits.
	demoTablets = 4 * demoWorkers
)

func demoCommand() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Write 2,000 real flights through embedded Pub/Sub, function and Bigtable, and read them back",
		Long: "Publishes the flights of examples/flights to an embedded Pub/Sub, whose push subscription\n" +
			"delivers them over HTTP to the function write, which writes them into an embedded Bigtable.\n" +
			"Then reads every row back and compares. Then scans the table: scan-planner cuts it into splits,\n" +
			"three instances of scan-worker read these in parallel and publish a record for each row, and\n" +
			"what arrives is compared too. All the while the function changes reads the table's change stream:\n" +
			"a tablet is split and merged again, and the reader is killed and replaced. Exits 0\n" +
			"only if every row is there with the right cells, every record of the scan once with the right\n" +
			"values, and one change of each row with the right cells, which may come again under its id.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.stdout, d.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&d.json, "json", false, "end with one JSON object on stdout")
	cmd.Flags().BoolVar(&d.hold, "hold", false, "keep everything running after the comparison, until interrupted")
	return cmd
}

type demo struct {
	json, hold     bool
	stdout, stderr io.Writer
	totals         totals
	scanning       scanning
	following      following
	result         demoResult
}

// demoResult is the object that --json prints. Its fields are a contract.
type demoResult struct {
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

// totals sums the summaries of all deliveries.
type totals struct {
	mu sync.Mutex
	s  write.Summary
}

func (t *totals) add(_ context.Context, s write.Summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Applied += s.Applied
	t.s.Skipped += s.Skipped
	t.s.Failed += s.Failed
	t.s.DeadLettered += s.DeadLettered
}

func (t *totals) read() write.Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.s
}

// flights are the example: its pipeline, its events and the rows that they make.
type flights struct {
	*lint.Loaded
	text   []byte // of the file
	events [][]byte
	rows   map[string]cells
}

func loadFlights() (*flights, error) {
	file, err := examples.Flights.ReadFile("flights/pipeline.yaml")
	if err != nil {
		return nil, err
	}
	loaded, findings := lint.Load(file, pipeline.Options{File: "examples/flights/pipeline.yaml"})
	if err := findings.Err(); err != nil {
		return nil, err
	}
	data, err := examples.Flights.ReadFile("flights/flights.ndjson")
	if err != nil {
		return nil, err
	}
	f := &flights{Loaded: loaded, text: file, events: bytes.Split(bytes.TrimSpace(data), []byte("\n"))}
	f.rows, err = expectedRows(loaded.Pipeline, f.events)
	return f, err
}

func (d *demo) run(ctx context.Context) (err error) {
	f, err := loadFlights()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "btf-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	place := ledger.Location{Path: filepath.Join(dir, "ledger.db")}

	running, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	l, err := localdeploy.Start(running, f.Loaded, d.options(f, place))
	if err != nil {
		return fmt.Errorf("starting the demo: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	if err := l.Tick(running, f.Pipeline.Name); err != nil { // changes are read from now on
		return err
	}
	began := time.Now()
	if err := d.write(running, l, f); err != nil {
		return err
	}
	changed, err := d.follow(running, l, f, began)
	if err != nil {
		return err
	}
	differences, err := d.compare(running, l, f)
	if err != nil {
		return err
	}
	differences = errors.Join(differences, changed)
	scanned, err := d.scan(running, l, f)
	if err != nil {
		return errors.Join(err, differences)
	}
	if err := d.tell(); err != nil {
		return err
	}
	if d.hold {
		return errors.Join(d.holdOpen(ctx, l, f, dir, place), differences, scanned)
	}
	return errors.Join(differences, scanned)
}

func (d *demo) options(f *flights, place ledger.Location) localdeploy.Options {
	d.scanning.done = make(chan task.ScanDone, 1)
	logger := slog.New(telemetry.NewHandler(d.stderr, slog.LevelWarn, ""))
	return localdeploy.Options{
		Logger: logger, Records: logger, Holder: process.Self(), Workers: demoWorkers,
		Tablets: map[string][]string{f.Pipeline.Tables[0].ID: cutKeys(f.rows, demoTablets)},
		OpenLedger: func(ctx context.Context) (*ledger.Ledger, error) {
			l, _, err := assemble.OpenLedger(ctx, place, f.Pipeline.Name, ledger.Options{})
			return l, err
		},
		StreamLedger: func(ctx context.Context) (*ledger.Ledger, error) {
			return d.following.openLedger(ctx, place, f.Pipeline.Name)
		},
		Wrote: d.totals.add, Visited: d.following.add,
		Scanned: d.scanning.add, Finished: d.scanning.finish,
	}
}

// write publishes the events and waits until each is acknowledged.
func (d *demo) write(ctx context.Context, l *localdeploy.Deployment, f *flights) error {
	name := pipeline.TopicEvents.Of(f.Pipeline.Name)
	began := time.Now()
	topic := l.Client.Publisher(name)
	defer topic.Stop()
	bar := terminal.NewCounter(d.stderr, "acknowledged", len(f.events))
	defer bar.End()
	sent := 0
	for i := range disturbances {
		part := f.events[sent : (i+1)*len(f.events)/disturbances]
		if err := publishAll(ctx, topic, part); err != nil {
			return err
		}
		sent += len(part)
		// The reader is killed while changes are under way.
		err := l.Push(name).Wait(ctx, func(n localcloud.Counts) bool {
			bar.Set(int(n.Acked))
			return n.Settled() >= int64(sent-len(part)/2)
		})
		if err == nil {
			err = d.following.disturb(ctx, l, f, i)
		}
		if err != nil {
			return err
		}
	}
	err := l.Push(name).Wait(ctx, func(n localcloud.Counts) bool {
		bar.Set(int(n.Acked))
		return n.Settled() >= int64(sent)
	})
	counts := l.Push(name).Counts()
	sums := d.totals.read()
	d.result = demoResult{
		Published: int(counts.Published), Acked: int(counts.Acked), Applied: sums.Applied, Skipped: sums.Skipped,
		Failed: sums.Failed, DeadLettered: sums.DeadLettered, Seconds: time.Since(began).Seconds(),
	}
	return err
}

// publishAll publishes events, and returns when Pub/Sub has all of them.
func publishAll(ctx context.Context, topic *pubsub.Publisher, events [][]byte) error {
	published := make([]*pubsub.PublishResult, len(events))
	for i, e := range events {
		published[i] = topic.Publish(ctx, &pubsub.Message{Data: e})
	}
	for _, r := range published {
		if _, err := r.Get(ctx); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
	return nil
}

// tell prints the result.
func (d *demo) tell() error {
	r := &d.result
	fmt.Fprintf(d.stderr, "%d events published, %d acknowledged, %d rows read back equal, in %.1f s\n", r.Published, r.Acked, r.Rows, r.Seconds)
	fmt.Fprintf(d.stderr, "%d splits scanned by %d workers, %d records arrived equal, in %.1f s\n", r.Splits, r.Workers, r.Scanned, r.ScanSeconds)
	fmt.Fprintf(d.stderr, "%d changes arrived equal through %d closed partitions and %d killed reader, %d of them again under their ids, in %.1f s\n",
		r.Changes, r.Closed, r.ReadersKilled, r.ChangesRepeated, r.ChangeSeconds)
	if !d.json {
		return nil
	}
	if err := json.NewEncoder(d.stdout).Encode(r); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// holdOpen says how to reach the parts, the pipeline file among them, and waits for an
// interrupt.
func (d *demo) holdOpen(ctx context.Context, l *localdeploy.Deployment, f *flights, dir string, place ledger.Location) error {
	file := filepath.Join(dir, "pipeline.yaml")
	if err := os.WriteFile(file, f.text, 0o600); err != nil {
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
		"Ctrl-C ends it\n", l.Bigtable, l.Cloud.Addr(), localdeploy.Project, place.String(), scanrun.ShellQuoted(file), f.Pipeline.Scans[0].Name)
	<-ctx.Done()
	return nil
}
