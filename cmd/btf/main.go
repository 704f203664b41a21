// Command btf runs pipelines of bigtable-functions on this machine: with embedded
// parts (demo, emulator) and, for what reads a pipeline file, without any. Results go
// to stdout and everything else to stderr; it exits 0 only when what was asked for is
// true.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
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
		Version:       builtFrom(debug.ReadBuildInfo()),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	env, wrong := assemble.ReadEnv(os.Getenv)
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return wrong }
	cmd.AddCommand(demoCommand(), emulatorCommand())
	cmd.AddCommand(initCommand(), lintCommand(env), planCommand(env), devCommand(env))
	cmd.AddCommand(testCommand(env), explainCommand(env))
	cmd.AddCommand(scanCommand(env), statusCommand(env))
	cmd.AddCommand(tailCommand(env), restoredCommand(env), replayCommand(env))
	return cmd
}

// builtFrom says what this program was built from: the module's version where it has one,
// else the commit.
func builtFrom(info *debug.BuildInfo, known bool) string {
	if !known {
		return "of unknown origin"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "(devel)"
		if commit := settings["vcs.revision"]; commit != "" {
			v = "commit " + commit
			if settings["vcs.modified"] == "true" {
				v += ", modified"
			}
		}
	}
	return fmt.Sprintf("%s (%s %s/%s)", v, info.GoVersion, settings["GOOS"], settings["GOARCH"])
}
