// Command btf runs pipelines of bigtable-functions on this machine: with embedded
// parts (demo, emulator) and, for what reads a pipeline file, without any. Results go
// to stdout and everything else to stderr; it exits 0 only when what was asked for is
// true.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		printError(os.Stderr, err)
		os.Exit(1)
	}
}

func root(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "btf",
		Short:         "Serverless pipelines for Cloud Bigtable",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.AddCommand(demoCommand(), emulatorCommand())
	cmd.AddCommand(initCommand(), lintCommand(), devCommand())
	cmd.AddCommand(testCommand(), explainCommand())
	cmd.AddCommand(scanCommand(), statusCommand())
	cmd.AddCommand(replayCommand())
	return cmd
}
