package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/status"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func statusCommand(env assemble.Env) *cobra.Command {
	cfg := status.Config{Env: env, Now: time.Now}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status -f FILE",
		Short: "Show how far the scans and change streams of a pipeline are",
		Long: "Reads the ledger (LEDGER, or .btf/PIPELINE.db), also while something works on it, and makes none.\n" +
			"For each scan that is not done it lists the splits that are not either: how much is read, who\n" +
			"holds the lease and for how long, and why it was last given up. A scan of btf scan that no\n" +
			"process goes on with is stopped, and the command that goes on is shown. Of each change stream it\n" +
			"draws which keys are read, and lists the partitions with the oldest positions, those that wait and\n" +
			"the keys that no partition holds. If LEDGER is unset and a btf dev runs in this directory, its\n" +
			"ledger comes first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Notices = cmd.ErrOrStderr()
			report, err := status.Read(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if asJSON {
				return report.PrintJSON(cmd.OutOrStdout())
			}
			return report.Print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&cfg.File, "file", "f", "", "the pipeline file")
	cmd.Flags().BoolVar(&cfg.All, "all", false, "list every split of every scan, and every partition")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with everything but the splits")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}
