// Package googleemu starts Google's own emulators (Bigtable, Firestore, Pub/Sub) for a test and guarantees that none outlives it: the emulator
// and every process it started are killed when the test ends, and also when the test's process dies without cleaning up.
//
// It is the one place that knows how to start them; only tests and their support import it. A test calls
//
//	addr := googleemu.Start(t, "bigtable") // or "firestore", "pubsub"
//
// and points its client at addr, plaintext, without credentials. Where the emulator is not installed the test is skipped and says why; with
// CI=true in the environment it fails instead, so that a build machine cannot pass by testing less.
package googleemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// startTimeout covers gcloud and a cold Java virtual machine on a busy machine; both take about two seconds on an idle one.
	startTimeout = 2 * time.Minute
	// attempts bounds the tries for a port: another process may take the free port between finding it and the emulator binding it.
	attempts = 3
)

// errMissing marks a reason for which nothing was tested: the emulator is not installed here.
var errMissing = errors.New("emulator not installed")

// Start runs the emulator name ("bigtable", "firestore" or "pubsub") on a free port of 127.0.0.1, waits until it answers as a gRPC server and
// returns its host:port. It is stopped when t ends, after t's other cleanups. Every call starts an emulator of its own, empty.
//
// Start ends the test when there is no emulator to be had: skipped where gcloud or its component is not installed and CI is not "true", failed
// otherwise. The reason carries what gcloud printed.
func Start(t testing.TB, name string) string {
	t.Helper()
	addr, err := start(t, name)
	switch {
	case err == nil:
		return addr
	case errors.Is(err, errMissing) && os.Getenv("CI") != "true":
		t.Skipf("not tested against Google's %s emulator: %v", name, err)
	default:
		t.Fatalf("starting Google's %s emulator: %v", name, err)
	}
	return ""
}

func start(t testing.TB, name string) (string, error) {
	switch name {
	case "bigtable", "firestore", "pubsub":
	default:
		return "", fmt.Errorf("unknown emulator %q: want bigtable, firestore or pubsub", name)
	}
	gcloud, err := exec.LookPath("gcloud")
	if err != nil {
		return "", fmt.Errorf("%w: %v", errMissing, err)
	}
	if !canKillTree {
		return "", fmt.Errorf("%w: an emulator's processes cannot be stopped together on this system", errMissing)
	}
	dir := t.TempDir()
	for attempt := 1; ; attempt++ {
		addr, err := startOnce(t, gcloud, name, dir)
		if err == nil || attempt == attempts || errors.Is(err, errMissing) {
			return addr, err
		}
		t.Logf("starting Google's %s emulator, attempt %d of %d: %v", name, attempt, attempts, err)
	}
}

// startOnce starts the emulator on one port. Once it runs, t's cleanup stops it.
func startOnce(t testing.TB, gcloud, name, dir string) (string, error) {
	addr, err := freePort()
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	args := []string{gcloud, "beta", "emulators", name, "start", "--host-port=" + addr}
	if name == "pubsub" {
		args = append(args, "--data-dir="+dir)
	}
	p, err := startTree(args, environment(dir), filepath.Join(dir, "output.log"))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := awaitReady(ctx, addr, p.done); err != nil {
		p.stop()
		return "", withOutput(err, p.output())
	}
	t.Cleanup(p.stop)
	return addr, nil
}

// environment is the test's own with gcloud kept to dir: it neither reads nor writes the user's configuration, and looks for no update. Prompts
// stay on: with no terminal gcloud then refuses to install a missing component instead of downloading it.
func environment(dir string) []string {
	return append(os.Environ(),
		"CLOUDSDK_CONFIG="+dir,
		"CLOUDSDK_CORE_DISABLE_PROMPTS=false",
		"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true",
		"CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true",
	)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// awaitReady returns when a gRPC server answers at addr; an error when done is closed (the emulator ended) or ctx ends first.
func awaitReady(ctx context.Context, addr string, done <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return fmt.Errorf("dialing %s: %w", addr, err)
	}
	defer conn.Close()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		conn.Connect()
		if conn.WaitForStateChange(ctx, state) {
			continue
		}
		select {
		case <-done:
			return errors.New("it ended before it answered")
		default:
			return fmt.Errorf("no answer at %s: %w", addr, ctx.Err())
		}
	}
	return nil
}

// withOutput adds what gcloud printed to err, and errMissing where gcloud says that a component is not installed.
func withOutput(err error, output string) error {
	if strings.Contains(output, "component") && strings.Contains(output, "gcloud.beta.emulators") {
		err = fmt.Errorf("%w: %w", errMissing, err)
	}
	if output == "" {
		output = "(nothing)"
	}
	return fmt.Errorf("%w; gcloud printed:\n%s", err, output)
}
