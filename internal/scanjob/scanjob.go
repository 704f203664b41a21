// Package scanjob guarantees that the planner and the worker of a scan mean the same
// by it: which scan a request's options make of the file's, how a split is told to a
// worker, and what is announced when the scan is finished.
package scanjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Find returns the scan of that name in the file as the options make it.
func Find(p *pipeline.Pipeline, name string, o task.Options) (*pipeline.Scan, error) {
	i := slices.IndexFunc(p.Scans, func(s *pipeline.Scan) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("pipeline %s has no scan of this name; it has: %s", p.Name, names(p))
	}
	s := *p.Scans[i]
	if err := window(&s, o); err != nil {
		return nil, err
	}
	if o.To != nil {
		if err := redirect(p, &s, o.To); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

func names(p *pipeline.Pipeline) string {
	var out []string
	for _, s := range p.Scans {
		out = append(out, s.Name)
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}

func window(s *pipeline.Scan, o task.Options) error {
	if o.Since.IsZero() && o.Until.IsZero() {
		return nil
	}
	if s.Cells.Filter != "" || s.Cells.KeysOnly {
		return errors.New("since and until cannot stand beside the file's cells.filter or cells.keysOnly")
	}
	if !o.Since.IsZero() {
		s.Cells.Since = o.Since
	}
	if !o.Until.IsZero() {
		s.Cells.Until = o.Until
	}
	return nil
}

// redirect gives the scan another sink; of another topic, what the file says beside
// the topic stays.
func redirect(p *pipeline.Pipeline, s *pipeline.Scan, to *task.To) error {
	if (to.PubSub != nil) == (to.Log != nil) {
		return errors.New("to takes exactly one of pubsub and log")
	}
	if to.Log != nil {
		s.To = pipeline.Sink{Pos: s.To.Pos, Log: true}
		return nil
	}
	if err := topicFault(p, to.PubSub.Topic); err != nil {
		return err
	}
	sink := &pipeline.PubSubSink{}
	if s.To.PubSub != nil {
		*sink = *s.To.PubSub
	}
	sink.Topic = to.PubSub.Topic
	s.To = pipeline.Sink{Pos: s.To.Pos, PubSub: sink}
	return nil
}

// topicFault says why a topic is refused. It does not quote it: requests are not the
// pipeline file.
func topicFault(p *pipeline.Pipeline, topic string) error {
	if fault := pipeline.TopicFault(topic); fault != "" {
		return errors.New("to.pubsub.topic " + fault)
	}
	if slices.Contains(p.OwnTopics(), pipeline.TopicID(topic)) {
		return errors.New("to.pubsub.topic is one of the pipeline's own: records sent to it would come back as work")
	}
	return nil
}

// Publisher sends messages to one topic.
type Publisher interface {
	// Publish returns nil once every message is stored.
	Publish(ctx context.Context, messages ...any) error
}

// Task is what tells a worker of a split.
func Task(t ledger.Task, name string, o task.Options) task.Scan {
	return task.Scan{Version: task.Version, Scan: t.Scan, Name: name, Attempt: t.Attempt, Split: t.Index, Options: o}
}

// Done is the completion event of a finished scan.
func Done(s *ledger.Scan) task.ScanDone {
	return task.ScanDone{
		Version: task.Version, Scan: s.ID, Name: s.Name, State: string(s.State), Error: s.Error, Splits: s.Splits, Failed: s.Failed,
		Rows: s.Rows, Records: s.Records, Dropped: s.Dropped, CreatedAt: s.CreatedAt, FinishedAt: s.FinishedAt,
	}
}

// Announce publishes the completion event of a finished scan, once where nobody dies
// in between: it is stored before the scan is marked, and due until then.
func Announce(ctx context.Context, l *ledger.Ledger, done Publisher, s *ledger.Scan) error {
	if !s.Finished() {
		return fmt.Errorf("announcing the end of scan %q, which is not finished", s.ID)
	}
	if err := done.Publish(ctx, Done(s)); err != nil {
		return fmt.Errorf("announcing the end of scan %q: %w", s.ID, err)
	}
	return l.MarkPublished(ctx, s.ID)
}
