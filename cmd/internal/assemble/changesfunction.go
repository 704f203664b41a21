package assemble

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
)

// Changes builds the function changes.
func Changes(cfg Config) (*Function, error) {
	return build(func(f *Function) (http.Handler, error) { return f.changes(&cfg) })
}

func (f *Function) changes(cfg *Config) (http.Handler, error) {
	if len(cfg.Pipeline.Changes) == 0 {
		return nil, errors.New("the pipeline has no changes")
	}
	l, err := cfg.Ledger(context.Background())
	if err != nil {
		return nil, err
	}
	conn, err := cfg.Dialer.Data(context.Background())
	if err != nil {
		return nil, err
	}
	f.open.Add(conn.Close)
	admin, err := cfg.Dialer.Admin(context.Background())
	if err != nil {
		return nil, err
	}
	f.open.Add(admin.Close)
	tasks, err := f.topic(cfg, pipeline.TopicChangeTasks)
	if err != nil {
		return nil, err
	}
	out := changes.Config{
		Pipeline: cfg.Pipeline, Ledger: l, Conn: conn, Retention: changes.NewRetentions(admin, cfg.Now).Retention,
		Sink: changes.Sinks(sink.NewSinks(cfg.PubSub, cfg.Records)), Tasks: tasks, Holder: cfg.Holder,
		Memory: memory(), Graces: changestream.DefaultGraces(), Budget: changes.Budget,
		CommitEvery: changes.CommitEvery, Heartbeat: changes.Heartbeat, Stopping: cfg.Stopping, Logger: cfg.Logger, Now: cfg.Now,
	}
	if slices.ContainsFunc(cfg.Pipeline.Changes, func(c *pipeline.Change) bool { return c.OnFailure == pipeline.PolicyDeadLetter }) {
		if out.DeadLetters, err = f.deadLetters(cfg); err != nil {
			return nil, err
		}
	}
	if out.Report, err = report(cfg, lint.Changes, changes.Log, changes.NewMetrics, cfg.Reports.Changes); err != nil {
		return nil, err
	}
	if out.Ticked, err = report(cfg, lint.Changes, changes.LogTick, changes.NewTickMetrics, nil); err != nil {
		return nil, err
	}
	if cfg.Meters != nil {
		if out.Reading, err = changes.NewReadingMetric(cfg.Meters.Meter("changes")); err != nil {
			return nil, err
		}
	}
	return changes.New(out)
}
