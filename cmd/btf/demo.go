package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/examples"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/localcloud"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// demoTimeout bounds the demo, but for the time that --hold adds.
const demoTimeout = 5 * time.Minute

func demoCommand() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Write 2,000 real flights through embedded Pub/Sub, function and Bigtable, and read them back",
		Long: "Publishes the flights of examples/flights to an embedded Pub/Sub, whose push subscription\n" +
			"delivers them over HTTP to the function write, which writes them into an embedded Bigtable.\n" +
			"Then reads every row back and compares. Exits 0 only if every row is there with the right cells.",
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

func (d *demo) run(ctx context.Context) (err error) {
	file, err := examples.Flights.ReadFile("flights/pipeline.yaml")
	if err != nil {
		return err
	}
	p, err := pipeline.Parse(file, pipeline.Options{File: "examples/flights/pipeline.yaml"})
	if err != nil {
		return err
	}
	data, err := examples.Flights.ReadFile("flights/flights.ndjson")
	if err != nil {
		return err
	}
	events := bytes.Split(bytes.TrimSpace(data), []byte("\n"))

	running, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	logger := slog.New(telemetry.NewHandler(d.stderr, slog.LevelWarn, ""))
	l, err := startLocal(running, p, logger, d.totals.add)
	if err != nil {
		return fmt.Errorf("starting the demo: %w", err)
	}
	defer func() { err = errors.Join(err, l.close()) }()

	result, err := d.write(running, l, p, events)
	if err != nil {
		return err
	}
	differences, err := d.compare(running, l, p, events, &result)
	if err != nil {
		return err
	}
	if err := d.tell(result); err != nil {
		return err
	}
	if d.hold {
		d.holdOpen(ctx, l)
	}
	return differences
}

// write publishes the events and waits until each is acknowledged.
func (d *demo) write(ctx context.Context, l *local, p *pipeline.Pipeline, events [][]byte) (demoResult, error) {
	client, err := l.cloud.Client(ctx)
	if err != nil {
		return demoResult{}, err
	}
	defer client.Close()
	began := time.Now()
	topic := client.Publisher(p.Name + "-events")
	defer topic.Stop()
	published := make([]*pubsub.PublishResult, len(events))
	for i, e := range events {
		published[i] = topic.Publish(ctx, &pubsub.Message{Data: e})
	}
	for _, r := range published {
		if _, err := r.Get(ctx); err != nil {
			return demoResult{}, fmt.Errorf("publishing: %w", err)
		}
	}
	bar := newProgress(d.stderr, "acknowledged", len(events))
	defer bar.end()
	err = l.events.Wait(ctx, func(n localcloud.Counts) bool {
		bar.set(int(n.Acked))
		return n.Settled() >= int64(len(events))
	})
	counts := l.events.Counts()
	sums := d.totals.read()
	return demoResult{
		Published: int(counts.Published), Acked: int(counts.Acked), Applied: sums.Applied, Skipped: sums.Skipped,
		Failed: sums.Failed, DeadLettered: sums.DeadLettered, Seconds: time.Since(began).Seconds(),
	}, err
}

func (t *totals) read() write.Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.s
}

// tell prints the result.
func (d *demo) tell(r demoResult) error {
	fmt.Fprintf(d.stderr, "%d events published, %d acknowledged, %d rows read back equal, in %.1f s\n", r.Published, r.Acked, r.Rows, r.Seconds)
	if !d.json {
		return nil
	}
	if err := json.NewEncoder(d.stdout).Encode(r); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// holdOpen says how to reach the parts and waits for an interrupt.
func (d *demo) holdOpen(ctx context.Context, l *local) {
	fmt.Fprintf(d.stderr, "holding; to look around, in another shell:\n"+
		"  export BIGTABLE_EMULATOR_HOST=%s\n"+
		"  cbt -project demo -instance demo read flights count=3\n"+
		"Ctrl-C ends it\n", l.bigtable)
	<-ctx.Done()
}
