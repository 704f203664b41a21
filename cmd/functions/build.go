package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"

	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// environment is what the process was started with.
type environment struct {
	logger *slog.Logger
	get    func(string) string
	ledger ledger.Options        // zero: as deployed
	google []option.ClientOption // of clients of Pub/Sub and Firestore; nil: the network
	certs  http.RoundTripper     // for the keys with which Google signs tokens; nil: the network
}

// pubSubEmulator is the variable by which Google's clients find an emulator of Pub/Sub.
const pubSubEmulator = "PUBSUB_EMULATOR_HOST"

// parts are the functions built and what they hold open.
type parts struct {
	handlers map[string]http.Handler
	stopping context.Context // ends when the process is to stop
	stop     context.CancelFunc
	meters   *telemetry.Meters
	closers  []func() error
}

// close ends what the functions hold, the newest first.
func (p *parts) close() error {
	var errs []error
	for _, c := range slices.Backward(p.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// closeWithin is close for a process that is about to end: what takes longer than d is
// left behind.
func (p *parts) closeWithin(d time.Duration) error {
	closed := make(chan error, 1)
	go func() { closed <- p.close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(d):
		return fmt.Errorf("closing what the functions hold took longer than %s", d)
	}
}

// build makes the function that target names, or all of them where it is empty.
func build(target string, env environment) (*parts, error) {
	makers := map[string]func(*parts, *lint.Loaded, environment) (http.Handler, error){
		"write": buildWrite, "scan-planner": buildScanPlanner, "scan-worker": buildScanWorker,
	}
	if target != "" && makers[target] == nil {
		return nil, fmt.Errorf("FUNCTION_TARGET=%s names no function; there are: %s", target, strings.Join(slices.Sorted(maps.Keys(makers)), ", "))
	}
	loaded, err := loadPipeline(env)
	if err != nil {
		return nil, err
	}
	caller, err := newCaller(env)
	if err != nil {
		return nil, err
	}
	out := &parts{handlers: map[string]http.Handler{}}
	out.stopping, out.stop = context.WithCancel(context.Background())
	out.closers = append(out.closers, func() error { out.stop(); return nil })
	if err := out.startMeters(target, loaded.Pipeline, env); err != nil {
		return nil, err
	}
	for name, maker := range makers {
		if target != "" && target != name || target == "" && !wanted(loaded.Pipeline, name) {
			continue
		}
		h, err := maker(out, loaded, env)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("building %s: %w", name, err), out.close())
		}
		out.handlers[name] = caller.guard(h)
	}
	return out, nil
}

// wanted reports whether a pipeline has work for a function. One that has none at all
// builds write, which says so.
func wanted(p *pipeline.Pipeline, function string) bool {
	switch function {
	case "scan-planner", "scan-worker":
		return len(p.Scans) > 0
	}
	return p.Write != nil || len(p.Scans) == 0
}

// startMeters sets up the export of metrics, which ends last.
func (p *parts) startMeters(target string, file *pipeline.Pipeline, env environment) error {
	service := file.Name
	if target != "" {
		service += "-" + target
	}
	var err error
	if p.meters, err = telemetry.NewMeters(context.Background(), env.get, service, env.logger); err != nil {
		return err
	}
	p.closers = append(p.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return p.meters.Shutdown(ctx)
	})
	return nil
}

// loadPipeline reads PIPELINE, or the file that PIPELINE_FILE names.
func loadPipeline(env environment) (*lint.Loaded, error) {
	text, file := []byte(env.get("PIPELINE")), env.get("PIPELINE_FILE")
	switch {
	case len(text) > 0 && file != "":
		return nil, errors.New("PIPELINE and PIPELINE_FILE are both set: set one")
	case len(text) == 0 && file == "":
		return nil, errors.New("neither PIPELINE (the YAML) nor PIPELINE_FILE (its path) is set")
	case file == "":
		file = "PIPELINE"
	default:
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("reading the pipeline file: %w", err)
		}
	}
	loaded, findings := lint.Load(text, pipeline.Options{
		File: file, Project: env.get("BIGTABLE_PROJECT"), Instance: env.get("BIGTABLE_INSTANCE"),
	})
	if err := findings.Err(); err != nil {
		return nil, err
	}
	return loaded, nil
}

func buildWrite(out *parts, loaded *lint.Loaded, env environment) (http.Handler, error) {
	p := loaded.Pipeline
	if p.Write == nil {
		return nil, errors.New("the pipeline has no write section")
	}
	dialer, err := btrpc.NewDialer(btrpc.DialConfig{
		Emulator: env.get(btrpc.EmulatorVariable), CredentialsFile: p.CredentialsFile, UserAgent: "bigtable-functions",
	})
	if err != nil {
		return nil, err
	}
	if err := checkProfiles(p, dialer, env); err != nil {
		return nil, err
	}
	w, err := write.NewWriter(p, dialer, env.logger)
	if err != nil {
		return nil, err
	}
	out.closers = append(out.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return w.Close(ctx)
	})
	cfg := write.Config{
		Pipeline: p, Compiled: loaded.Write, Writer: w, Budget: write.Budget, Logger: env.logger, Now: time.Now,
	}
	gauges := write.Gauges{Writer: w.Stats}
	publisher, err := buildDeadLetters(out, p, dialer, env)
	if err != nil {
		return nil, err
	}
	if publisher != nil {
		cfg.DeadLetters, gauges.DeadLetters = publisher, publisher.Stats
	}
	metrics, err := write.NewMetrics(out.meters.Meter("write"), gauges)
	if err != nil {
		return nil, err
	}
	log := write.NewLog(env.logger, p.Name)
	out.closers = append(out.closers, log.Flush)
	cfg.Report = func(ctx context.Context, s write.Summary) {
		log.Report(ctx, s)
		metrics.Report(ctx, s)
	}
	return write.New(cfg)
}

// buildDeadLetters connects to NAME-dead-letter where a policy needs it.
func buildDeadLetters(out *parts, p *pipeline.Pipeline, dialer *btrpc.Dialer, env environment) (*deadletter.Publisher, error) {
	if p.Write.OnFailure != pipeline.PolicyDeadLetter && p.Write.OnUnmatched != pipeline.PolicyDeadLetter {
		return nil, nil
	}
	client, err := connectPubSub(out, p, dialer, env)
	if err != nil {
		return nil, err
	}
	publisher := deadletter.NewPublisher(client.Publisher(p.Name + "-dead-letter"))
	out.closers = append(out.closers, publisher.Close)
	return publisher, nil
}

// connectPubSub connects to the project of the pipeline's topics, with the credentials
// of the dialer.
func connectPubSub(out *parts, p *pipeline.Pipeline, dialer *btrpc.Dialer, env environment) (*pubsub.Client, error) {
	project := env.get("PUBSUB_PROJECT")
	if project == "" {
		project = env.get("BIGTABLE_PROJECT")
	}
	if project == "" {
		project = p.Tables[0].Project
	}
	credentials, err := dialer.Credentials(pubSubEmulator, env.get(pubSubEmulator))
	if err != nil {
		return nil, err
	}
	client, err := pubsub.NewClient(context.Background(), project, append(credentials, env.google...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to Pub/Sub: %w", err)
	}
	out.closers = append(out.closers, client.Close)
	return client, nil
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
