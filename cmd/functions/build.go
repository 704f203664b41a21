package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// environment is what the process was started with. Only tests set the last three.
type environment struct {
	settings
	logger        *slog.Logger
	ledgerOptions ledger.Options
	google        []option.ClientOption // of clients of Pub/Sub and Firestore
	certs         http.RoundTripper     // for the keys with which Google signs tokens; nil: the network
}

// parts are the functions built and what they hold open.
type parts struct {
	handlers map[string]http.Handler
	stopping context.Context // ends when the process is to stop
	stop     context.CancelFunc
	open     closers.Stack
}

// closeWithin closes what the functions hold for a process that is about to end: what takes longer
// than d is left behind.
func (p *parts) closeWithin(d time.Duration) error {
	closed := make(chan error, 1)
	go func() { closed <- p.open.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(d):
		return fmt.Errorf("closing what the functions hold took longer than %s", d)
	}
}

// build makes the function that FUNCTION_TARGET names or, if it names none, every function
// for which the pipeline has work. If it fails, it has closed what it opened.
func build(env environment) (_ *parts, err error) {
	target, err := named(env.target)
	if err != nil {
		return nil, err
	}
	loaded, err := loadPipeline(env)
	if err != nil {
		return nil, err
	}
	builders := assemble.Needed(loaded)
	if target != nil {
		builders = []assemble.Builder{*target}
	}
	caller, err := newCaller(env)
	if err != nil {
		return nil, err
	}
	out := &parts{handlers: map[string]http.Handler{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.open.Close())
		}
	}()
	out.stopping, out.stop = context.WithCancel(context.Background())
	out.open.Add(func() error { out.stop(); return nil })
	cfg, err := out.config(loaded, env)
	if err != nil {
		return nil, err
	}
	for _, b := range builders {
		f, err := b.Build(cfg)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", b.Name, err)
		}
		out.open.Add(f.Close)
		out.handlers[string(b.Name)] = caller.guard(f)
	}
	if len(out.handlers) == 0 {
		return nil, errors.New("the pipeline has work for no function: it needs a write section, scans or changes")
	}
	return out, nil
}

// named returns the builder of one function, or nil if target is empty.
func named(target string) (*assemble.Builder, error) {
	if target == "" {
		return nil, nil
	}
	var names []string
	for _, b := range assemble.Builders() {
		if string(b.Name) == target {
			return &b, nil
		}
		names = append(names, string(b.Name))
	}
	slices.Sort(names)
	return nil, fmt.Errorf("%s=%s names no function; there are: %s", targetVariable, target, strings.Join(names, ", "))
}

// config opens what the functions share.
func (p *parts) config(loaded *lint.Loaded, env environment) (assemble.Config, error) {
	meters, err := p.startMeters(loaded.Pipeline, env)
	if err != nil {
		return assemble.Config{}, err
	}
	services, err := assemble.NewServices(assemble.ServicesConfig{
		Env: env.Env, Pipeline: loaded.Pipeline, UserAgent: "bigtable-functions", LedgerOptions: env.ledgerOptions, Google: env.google,
	})
	if err != nil {
		return assemble.Config{}, err
	}
	p.open.Add(services.Close)
	return assemble.Config{
		Pipeline: loaded.Pipeline, Compiled: loaded.Write,
		Dialer: services.Dialer, PubSub: services.PubSub, Ledger: services.Ledger,
		Stopping: p.stopping, Holder: env.holder(), Logger: env.logger, Records: env.logger, Now: time.Now,
		CloseTime: time.Second, Meters: meters, CheckProfiles: true,
	}, nil
}

// startMeters sets up the export of metrics, which ends last.
func (p *parts) startMeters(file *pipeline.Pipeline, env environment) (*telemetry.Meters, error) {
	service := file.Name
	if env.target != "" {
		service += "-" + env.target
	}
	meters, err := telemetry.NewMeters(context.Background(), env.metrics, service, env.logger)
	if err != nil {
		return nil, err
	}
	p.open.Add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return meters.Shutdown(ctx)
	})
	return meters, nil
}

// loadPipeline reads PIPELINE, or the file that PIPELINE_FILE names.
func loadPipeline(env environment) (*lint.Loaded, error) {
	text, name := []byte(env.pipeline), pipelineVariable
	if env.pipelineFile != "" {
		name = env.pipelineFile
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("reading the pipeline file: %w", err)
		}
	}
	loaded, findings := lint.Load(text, env.PipelineOptions(name))
	if err := findings.Err(); err != nil {
		return nil, err
	}
	return loaded, nil
}

// gated puts every handler behind one gate.
func (p *parts) gated(gate *push.Gate) map[string]http.Handler {
	out := make(map[string]http.Handler, len(p.handlers))
	for name, h := range p.handlers {
		out[name] = gate.Wrap(h)
	}
	return out
}

// names lists the functions built, for the log.
func (p *parts) names() string {
	var out []string
	for name := range p.handlers {
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
