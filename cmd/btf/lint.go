package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/lintreport"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func lintCommand(env assemble.Env) *cobra.Command {
	var asJSON, grants, resources bool
	cmd := &cobra.Command{
		Use:   "lint FILE…",
		Short: "Check pipeline files and say what a second delivery does to each mapping's rows",
		Long: "Reads, compiles and checks pipeline files without running them. Prints every fault, warning\n" +
			"and note with its place, and for each mapping what a second delivery of a message does.\n" +
			"Exits 1 where a file has an error; warnings and notes are for the reader to weigh.\n" +
			"BIGTABLE_PROJECT and BIGTABLE_INSTANCE replace the file's defaults, as in a deployment.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) (err error) {
			report := lintreport.Of(env, files)
			if asJSON {
				err = report.PrintJSON(cmd.OutOrStdout())
			} else {
				err = report.Print(cmd.OutOrStdout(), grants, resources)
			}
			if err != nil {
				return err
			}
			return report.Err()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array with an object for each file, grants and resources included")
	cmd.Flags().BoolVar(&grants, "grants", false, "print the roles that the pipeline needs, by principal")
	cmd.Flags().BoolVar(&resources, "resources", false, "print the services, topics, subscriptions and schedules that it needs")
	return cmd
}
