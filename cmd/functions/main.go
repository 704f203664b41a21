// Command functions serves the function that FUNCTION_TARGET names, or all of them by
// path where it is unset, and guarantees that an instance which is told to stop
// finishes what it has accepted: on SIGTERM it refuses what is new, waits up to eight
// seconds for what is in flight, and exits 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
	"github.com/bigtable-functions/bigtable-functions/internal/version"
)

func main() {
	settings, err := readSettings(os.Getenv)
	logger := slog.New(telemetry.NewHandler(os.Stdout, slog.LevelInfo, settings.project))
	if err == nil {
		err = run(environment{settings: settings, logger: logger})
	}
	if err != nil {
		logger.Error("the functions stopped", "error", err)
		os.Exit(1)
	}
}

// gcPercent lets the small live heap of a function grow before it is collected, where
// GOMEMLIMIT bounds it: collecting less often saves about a tenth of the CPU time. Beyond it,
// the limit decides when to collect.
const gcPercent = 800

// closeTime bounds what comes after the drain; with it, less than the ten seconds that
// Cloud Run grants.
const closeTime = 1500 * time.Millisecond

// run serves until SIGTERM or SIGINT, then drains. Once it was told to stop, it returns
// no error: what could not be finished is refused, and only logged.
func run(env environment) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if env.collectLess {
		debug.SetGCPercent(gcPercent)
	}

	parts, err := build(env)
	if err != nil {
		return err
	}
	gate := &push.Gate{}
	err = serve(ctx, parts, gate, env)
	parts.stop()
	drain, cancel := context.WithTimeout(context.Background(), push.DrainTime)
	defer cancel()
	unfinished := gate.Drain(drain, push.DrainPatience)
	unfinished = errors.Join(unfinished, parts.closeWithin(closeTime))
	if unfinished != nil {
		env.logger.Warn("stopped before everything was finished", "error", unfinished)
	}
	return err
}

// serve serves the functions behind the gate until ctx is done.
func serve(ctx context.Context, parts *parts, gate *push.Gate, env environment) error {
	for name, h := range parts.gated(gate) {
		functions.HTTP(name, telemetry.Trace(h).ServeHTTP)
	}
	// The framework cannot be stopped: its goroutine ends with the process. It prints one
	// plain line for each function, `Serving function: "write"`, between the JSON of ours:
	// nothing but another os.Stdout keeps it from that. Cloud Logging takes it as text.
	failed := make(chan error, 1)
	go func() { failed <- funcframework.Start(strconv.Itoa(env.port)) }()
	env.logger.Info("serving", "functions", parts.names(), "port", env.port, "version", version.Current())
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
		return nil
	}
}
