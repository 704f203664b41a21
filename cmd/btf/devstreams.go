package main

import (
	"context"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// This file is the part of dev that is about change streams.

// devTick is how often dev sends a tick: partitions that nobody reads, because the window of
// a visit has ended or the file has changed, are then read again soon.
const devTick = 5 * time.Second

// tick sends ticks to the function changes until ctx ends, also as soon as a new version of
// the file is served.
func (d *dev) tick(ctx context.Context) {
	ticker := time.NewTicker(devTick)
	defer ticker.Stop()
	for {
		if len(d.pipeline.Load().Changes) > 0 {
			if err := d.local.Tick(ctx, d.name); err != nil && ctx.Err() == nil {
				d.sums.line("change streams are not read for now", err.Error())
			}
		}
		select {
		case <-ticker.C:
		case <-d.reloaded:
		case <-ctx.Done():
			return
		}
	}
}

// tellReads says where the ledger is, how to start scans and where the changes go. It leaves
// out what it has told before.
func (d *dev) tellReads(p *pipeline.Pipeline) error {
	out := &terminal.Printer{Out: d.stdout}
	if d.ledger != nil && !d.placed {
		d.placed = true
		out.Printf("export LEDGER=%s\n", d.ledger.Place.String())
	}
	d.tellScans(p)
	if d.streams == nil {
		d.streams = map[string]string{}
	}
	for _, c := range p.Changes {
		text := describeStream(c)
		if d.streams[c.Name] != text {
			d.tell.line("change stream %s of table %s: %s", c.Name, c.Table.Name, text)
		}
		d.streams[c.Name] = text
	}
	return out.Err
}

// describeStream says where the changes go.
func describeStream(c *pipeline.Change) string {
	switch err := c.Served(); {
	case err != nil:
		return "it is not read here: " + err.Error() + "; btf tail shows its changes"
	case c.To.PubSub == nil:
		return "records are printed here"
	}
	topic := localdeploy.TopicName(c.To.PubSub.Topic)
	return "records go to topic " + topic + ", to be pulled from " + localdeploy.PullName(topic)
}

// visited tells of one visit of a partition, unless there was nothing to be read, and of a
// delivery that is no task.
func (d *dev) visited(_ context.Context, v changes.Visit) {
	switch v.Outcome {
	case changes.OutcomeFailed:
		d.sums.line("change stream "+v.Stream+" is tried again", v.Reason.Error())
	case changes.OutcomeMalformed:
		d.tell.line("a delivery to changes is no task of a change stream, and is dropped: %s", v.Reason)
	case changes.OutcomeClosed:
		d.tell.line("change stream %s: a partition has closed, %s opened", v.Stream, terminal.Plural(v.Successors, "successor"))
	}
	if v.Rows > 0 {
		d.tell.line("change stream %s: %s, %s, %d dropped, read in %s", v.Stream, terminal.Plural(int(v.Rows), "change"),
			terminal.Plural(int(v.Records), "record"), v.Dropped, v.Duration.Round(time.Millisecond))
	}
}
