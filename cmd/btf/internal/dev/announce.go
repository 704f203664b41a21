package dev

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/localdeploy"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// announcements say how to reach what runs, each once until it changes.
type announcements struct {
	tell         *teller
	stdout       io.Writer
	file         string
	pipelineName string
	local        *localdeploy.Deployment
	ledger       *ownLedger

	placed  bool              // the place of the ledger was printed
	scans   map[string]string // what was said of each scan; nil until the file has some
	streams map[string]string // what was said of each change stream
}

// start says how to reach the parts: variables on stdout, to be sourced by a shell, and the rest
// for a reader.
func (a *announcements) start(p *pipeline.Pipeline) error {
	out := &terminal.Printer{Out: a.stdout}
	out.Printf("export BIGTABLE_EMULATOR_HOST=%s\n", a.local.Bigtable)
	out.Printf("export PUBSUB_EMULATOR_HOST=%s\n", a.local.Cloud.Addr())
	out.Printf("export PUBSUB_PROJECT=%s\n", localdeploy.Project)
	for _, table := range p.Tables {
		if table.IDFrom.IsZero() {
			a.tell.line("table %s", table.Ref())
		}
	}
	if url := a.local.ServiceURL(a.pipelineName + "-" + string(lint.Write)); url != "" {
		a.tell.line("topic %s, whose messages go to the function write at %s", localdeploy.TopicName(pipeline.TopicEvents.Of(a.pipelineName)), url)
	}
	err := errors.Join(out.Err, a.reads(p))
	a.tell.line("running %s; change it and save, or end with Ctrl-C", a.file)
	return err
}

// reads says where the ledger is, how to start scans and where records and changes go.
func (a *announcements) reads(p *pipeline.Pipeline) error {
	out := &terminal.Printer{Out: a.stdout}
	if l := a.ledger.made; l != nil && !a.placed {
		a.placed = true
		out.Printf("export LEDGER=%s\n", l.Place.String())
	}
	a.tellScans(p.Scans)
	if a.streams == nil {
		a.streams = map[string]string{}
	}
	for _, c := range p.Changes {
		text := describeStream(c)
		if a.streams[c.Name] != text {
			a.tell.line("change stream %s of table %s: %s", c.Name, c.Table.Name, text)
		}
		a.streams[c.Name] = text
	}
	return out.Err
}

// tellScans says how to start scans, and where the records of each go.
func (a *announcements) tellScans(scans []*pipeline.Scan) {
	if len(scans) == 0 {
		return
	}
	first := a.scans == nil
	if first {
		a.scans = map[string]string{}
	}
	for _, s := range scans {
		text := describeScan(s)
		if a.scans[s.Name] != text {
			a.tell.line("scan %s: %s", s.Name, text)
		}
		a.scans[s.Name] = text
	}
	if first {
		done := localdeploy.TopicName(pipeline.TopicScanDone.Of(a.pipelineName))
		a.tell.line("when a scan has ended, a message says so on topic %s, to be pulled from %s", done, localdeploy.PullName(done))
		a.tellStart(scans)
	}
}

// tellStart says how to start one of the scans whose records are sent from here.
func (a *announcements) tellStart(all []*pipeline.Scan) {
	i := slices.IndexFunc(all, func(s *pipeline.Scan) bool { return s.To.Served() == nil })
	if i < 0 {
		return
	}
	request := fmt.Sprintf(`{"scan": "%s"}`, all[i].Name)
	topic := localdeploy.TopicName(pipeline.TopicScanRequests.Of(a.pipelineName))
	a.tell.line("to start a scan, publish %s to topic %s:", request, topic)
	a.tell.line(`  curl http://%s/v1/%s:publish -d '{"messages": [{"data": "%s"}]}'`,
		a.local.Cloud.Addr(), topic, base64.StdEncoding.EncodeToString([]byte(request)))
	a.tell.line("or have its records as lines, with the variables above in another shell: btf scan -f %s %s --to -", terminal.ShellQuoted(a.file), all[i].Name)
}

// describeScan says where a scan's records go, and when it is due.
func describeScan(s *pipeline.Scan) string {
	text := ""
	switch {
	case s.To.Served() != nil:
		text = fmt.Sprintf("it cannot be started here: %s; btf scan with --to FILE writes its records to a file", s.To.Served())
	case s.To.Log:
		text = "records are printed here"
	case s.To.PubSub != nil:
		text = describeTopic(s.To.PubSub.Topic)
	}
	if s.Schedule != nil {
		text += "; due at " + s.Schedule.Cron + " in " + s.Schedule.TimeZone
	}
	return text
}

// describeStream says where the changes go.
func describeStream(c *pipeline.Change) string {
	switch err := c.Served(); {
	case err != nil:
		return "it is not read here: " + err.Error() + "; btf tail shows its changes"
	case c.To.PubSub == nil:
		return "records are printed here"
	}
	return describeTopic(c.To.PubSub.Topic)
}

// describeTopic says that records go to a topic.
func describeTopic(id string) string {
	topic := localdeploy.TopicName(id)
	return "records go to topic " + topic + ", to be pulled from " + localdeploy.PullName(topic)
}
