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

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	err := root(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		terminal.PrintError(os.Stderr, err)
		os.Exit(1)
	}
}

func root(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "btf",
		Short:         "Serverless pipelines for Cloud Bigtable",
		Version:       version.Current(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	env, wrong := assemble.ReadEnv(os.Getenv)
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return wrong }
	cmd.AddCommand(demoCommand(), emulatorCommand())
	cmd.AddCommand(initCommand(), lintCommand(env), planCommand(env), diffCommand(env), devCommand(env))
	cmd.AddCommand(testCommand(env), explainCommand(env))
	cmd.AddCommand(scanCommand(env), statusCommand(env))
	cmd.AddCommand(tailCommand(env), restoredCommand(env), replayCommand(env), versionCommand())
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of btf",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &terminal.Printer{Out: cmd.OutOrStdout()}
			p.Printf("btf version %s\n", version.Current())
			return p.Err
		},
	}
}
