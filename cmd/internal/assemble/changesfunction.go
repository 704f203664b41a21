package assemble

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
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
	f.onClose(conn.Close)
	admin, err := cfg.Dialer.Admin(context.Background())
	if err != nil {
		return nil, err
	}
	f.onClose(admin.Close)
	client, err := cfg.PubSub(context.Background())
	if err != nil {
		return nil, err
	}
	tasks := task.NewPublisher(client.Publisher(pipeline.TopicChangeTasks.Of(cfg.Pipeline.Name)))
	f.onClose(tasks.Close)
	out := changes.Config{
		Pipeline: cfg.Pipeline, Ledger: l, Conn: changes.Conns(conn), Retention: changes.NewRetentions(admin).Retention,
		Sink: changes.Sinks(sink.NewSinks(cfg.PubSub, cfg.Records)), Tasks: tasks, Holder: cfg.Holder,
		Memory: scanMemory(debug.SetMemoryLimit(-1)), Graces: changestream.DefaultGraces(), Budget: changes.Budget,
		CommitEvery: changes.CommitEvery, Heartbeat: changes.Heartbeat, Stopping: cfg.Stopping, Logger: cfg.Logger,
		Report: reportTo(cfg.Reports.Changes),
	}
	if slices.ContainsFunc(cfg.Pipeline.Changes, func(c *pipeline.Change) bool { return c.OnFailure == pipeline.PolicyDeadLetter }) {
		letters, err := f.deadLetters(cfg)
		if err != nil {
			return nil, err
		}
		out.DeadLetters = letters
	}
	if cfg.Meters != nil {
		metrics, err := changes.NewMetrics(cfg.Meters.Meter("changes"))
		if err != nil {
			return nil, err
		}
		out.Report = reportTo(changes.Log(cfg.Logger, cfg.Pipeline.Name), metrics.Report, cfg.Reports.Changes)
	}
	return changes.New(out)
}
