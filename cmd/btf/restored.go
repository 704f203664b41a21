package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/restored"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func restoredCommand(env assemble.Env) *cobra.Command {
	cfg := restored.Config{Env: env}
	cmd := &cobra.Command{
		Use:   "restored -f FILE [NAME]",
		Short: "Go on with change streams after the ledger was restored from a backup",
		Long: "Call it once the ledger (LEDGER, or .btf/PIPELINE.db) was restored from a backup, before the function\n" +
			"changes uses it. All change streams of the file, or the one that NAME names, go on at their positions\n" +
			"in the backup, and what is still under way from before the restore cannot change them any more.\n" +
			"What has changed since the backup is delivered again. It may be called more than once.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Stdout = cmd.OutOrStdout()
			if len(args) > 0 {
				cfg.Name = args[0]
			}
			return restored.Run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVarP(&cfg.File, "file", "f", "", "the pipeline file (required)")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}
