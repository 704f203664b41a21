package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/emulatorserver"
	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func emulatorCommand() *cobra.Command {
	var cfg emulatorserver.Config
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Run a Bigtable on this machine",
		Long: `Run a Bigtable on this machine, for any language's client. Set BIGTABLE_EMULATOR_HOST
to what it prints. Projects and instances need not be created. It has no authentication
and listens on localhost only. docs/emulator.md says how it differs from the service.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return emulatorserver.Run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Port, "port", 8086, "port for Bigtable clients; 0 takes a free one")
	flags.IntVar(&cfg.ControlPort, "control-port", -1, "port for faults, clock and tablets over HTTP; 0 takes a free one, -1 is none")
	flags.StringVar(&cfg.Options.DataDir, "data-dir", "", "directory that keeps the data; without it nothing outlives the process")
	flags.BoolVar(&cfg.Options.Fsync, "fsync", false, "wait for the disk before a write is acknowledged, so that it survives a loss of power")
	flags.DurationVar(&cfg.Options.GCInterval, "gc-interval", time.Minute, "how often garbage collection runs; 0 is only when asked")
	flags.BoolVar(&cfg.Options.StrictInstances, "strict-instances", false, "refuse requests to an instance that was not created; that of --table is created")
	flags.BoolVar(&cfg.Options.EnforceIAM, "enforce-iam", false, "refuse what IAM policies do not allow to the principal that the header "+emulator.PrincipalHeader+" of a call names")
	flags.StringVar(&cfg.Project, "project", "local", "project of the tables made by --table")
	flags.StringVar(&cfg.Instance, "instance", "local", "instance of the tables made by --table")
	flags.StringArrayVar(&cfg.Tables, "table", nil, "create a table unless it exists, and then leave it as it is: 'name:cf,cf2;splits=a,m;stream=24h' (repeatable)")
	return cmd
}
