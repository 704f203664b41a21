// Package emulatorserver serves a Bigtable on localhost until it is told to end, for btf emulator. It
// guarantees that its addresses are printed only once clients can connect and the tables are there,
// and that tables that exist stay as they are.
package emulatorserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// Config says what is served.
type Config struct {
	// Port is for clients, and ControlPort for the control API. 0 is any free port. A control port
	// below 0 is none.
	Port, ControlPort int
	// Options are those of the emulator. Run sets their logger.
	Options emulator.Options
	// Tables are created unless they exist, each as 'name:cf,cf2;splits=a,m;stream=24h', of which all
	// but the name may be missing. They are in Project and Instance.
	Tables            []string
	Project, Instance string
}

// Run serves until ctx is done. It prints the addresses to stdout, that for clients last. stderr
// takes the log of the emulator.
func Run(ctx context.Context, cfg Config, stdout, stderr io.Writer) (err error) {
	tables, err := parseTables(cfg)
	if err != nil {
		return err
	}
	cfg.Options.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	e, err := emulator.New(cfg.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := createTables(ctx, e, tables, cfg.Options.StrictInstances, stderr); err != nil {
		return err
	}
	listeners, err := listenLocal(ctx, cfg.Port)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if cfg.ControlPort >= 0 {
		control, err := listenLocal(ctx, cfg.ControlPort)
		if err != nil {
			closeAll(listeners)
			return err
		}
		serveControl(ctx, g, e, control)
		fmt.Fprintf(stdout, "BIGTABLE_EMULATOR_CONTROL=http://%s\n", localHost(control))
	}
	for _, l := range listeners {
		g.Go(func() error { return e.Serve(l) })
	}
	g.Go(func() error {
		<-ctx.Done()
		return e.Close()
	})
	fmt.Fprintf(stdout, "BIGTABLE_EMULATOR_HOST=%s\n", localHost(listeners))
	return g.Wait()
}
