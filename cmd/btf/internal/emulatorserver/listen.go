package emulatorserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// localHost is the address that clients are to use: "localhost" where it is
// served over IPv4 and IPv6, else the one address there is.
func localHost(listeners []net.Listener) string {
	addr := listeners[0].Addr().String()
	if _, port, err := net.SplitHostPort(addr); err == nil && len(listeners) == 2 {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}

func serveControl(ctx context.Context, g *errgroup.Group, e *emulator.Emulator, listeners []net.Listener) {
	server := &http.Server{Handler: e.Control(), ReadHeaderTimeout: 10 * time.Second}
	for _, l := range listeners {
		g.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving the control API: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
}

// portTries is how often a free port is looked for that is free in both
// address families.
const portTries = 20

// listenLocal listens on a port of localhost, over IPv4 and, where the
// machine has it, IPv6.
func listenLocal(ctx context.Context, port int) ([]net.Listener, error) {
	for try := 1; ; try++ {
		listeners, err := listenBoth(ctx, port)
		if err == nil || port != 0 || try == portTries {
			return listeners, err
		}
	}
}

func listenBoth(ctx context.Context, port int) ([]net.Listener, error) {
	var lc net.ListenConfig
	v4, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, portError(port, err)
	}
	chosen := v4.Addr().(*net.TCPAddr).Port
	v6, err := lc.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(chosen)))
	if errors.Is(err, syscall.EADDRINUSE) {
		v4.Close()
		return nil, portError(chosen, err)
	}
	if err != nil { // no IPv6 here
		return []net.Listener{v4}, nil
	}
	return []net.Listener{v4, v6}, nil
}

func portError(port int, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is taken: choose another, or 0 for a free one", port)
	}
	return fmt.Errorf("listening on port %d: %w", port, err)
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
