package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/dev"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func devCommand(env assemble.Env) *cobra.Command {
	cfg := dev.Config{Env: env, Clock: dev.SystemClock()}
	cmd := &cobra.Command{
		Use:   "dev -f FILE",
		Short: "Run a pipeline on this machine, and again whenever its file changes",
		Long: "Runs an embedded Bigtable with the file's tables, a Pub/Sub with its topics, and the functions\n" +
			"for its write section, its scans and its change streams behind push subscriptions, until\n" +
			"interrupted. Prints the variables that point clients to them. Scans with a schedule are started\n" +
			"when they are due. Tables whose changes are read have a change stream, with a tick every few seconds.\n" +
			"When the file changes it is loaded again: what the next delivery meets is the new version.\n" +
			"One that cannot be loaded is told of, and the version before stays. Data is gone when it\n" +
			"ends, and with it the ledger, which is one of its own (.btf/PIPELINE.dev.db).",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			running, err := dev.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, running.Close()) }()
			return running.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&cfg.File, "file", "f", "", "the pipeline file")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // there is no such flag
	}
	return cmd
}
