package assemble

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// profileTimeout bounds the check of application profiles, for which a start waits if the
// pipeline has dedupe.
const profileTimeout = 5 * time.Second

// Write builds the function write.
func Write(cfg Config) (*Function, error) {
	return build(func(f *Function) (http.Handler, error) { return f.write(&cfg) })
}

func (f *Function) write(cfg *Config) (http.Handler, error) {
	p := cfg.Pipeline
	if p.Write == nil {
		return nil, errors.New("the pipeline has no write section")
	}
	if err := checkProfiles(cfg); err != nil {
		return nil, err
	}
	w, err := write.NewWriter(p, cfg.Dialer, cfg.Logger)
	if err != nil {
		return nil, err
	}
	f.open.Add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), cfg.CloseTime)
		defer cancel()
		return w.Close(ctx)
	})
	out := write.Config{
		Pipeline: p, Compiled: cfg.Compiled, Writer: w, Budget: write.Budget, Logger: cfg.Logger, Now: cfg.Now,
	}
	gauges := write.Gauges{Writer: w.Stats}
	if p.Write.OnFailure == pipeline.PolicyDeadLetter || p.Write.OnUnmatched == pipeline.PolicyDeadLetter {
		letters, err := f.deadLetters(cfg)
		if err != nil {
			return nil, err
		}
		out.DeadLetters, gauges.DeadLetters = letters, letters.Stats
	}
	if out.Report, err = f.writeReport(cfg, gauges); err != nil {
		return nil, err
	}
	return write.New(out)
}

func (f *Function) writeReport(cfg *Config, gauges write.Gauges) (func(context.Context, write.Summary), error) {
	if cfg.Meters == nil {
		return reportTo(cfg.Reports.Write), nil
	}
	metrics, err := write.NewMetrics(cfg.Meters.Meter(string(lint.Write)), gauges)
	if err != nil {
		return nil, err
	}
	log := write.NewLog(cfg.Logger, cfg.Pipeline.Name)
	f.open.Add(log.Flush)
	return reportTo(log.Report, metrics.Report, cfg.Reports.Write), nil
}

// checkProfiles fails if dedupe needs an application profile that does not allow it.
func checkProfiles(cfg *Config) error {
	if !cfg.CheckProfiles || !slices.ContainsFunc(cfg.Pipeline.Write.Mappings, func(m *pipeline.Mapping) bool {
		return m.Dedupe == pipeline.DedupeWindow || m.Dedupe == pipeline.DedupeMarker
	}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), profileTimeout)
	defer cancel()
	conn, err := cfg.Dialer.Admin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = write.CheckProfiles(ctx, cfg.Pipeline, conn); errors.Is(err, write.ErrUnchecked) {
		cfg.Logger.Info(write.ErrUnchecked.Error(), "reason", err)
		return nil
	}
	return err
}
