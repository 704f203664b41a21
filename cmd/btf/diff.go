package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/diffreport"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/filediff"
)

func diffCommand(env assemble.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say what a new version of a pipeline file changes",
		Long: "Compares two versions of a pipeline file: the rows that they make, the tokens of dedupe, the ids\n" +
			"of records, topics, subscriptions, schedules and roles. Lines with an exclamation mark say what a\n" +
			"difference does to messages, counts or positions that are on their way while the new version is\n" +
			"deployed. The tests of both files are made under both versions, and what differs is shown.\n" +
			"It connects to nothing.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, files []string) error {
			old, err := setup.LoadAll(env, files[0])
			if err != nil {
				return err
			}
			new, err := setup.LoadAll(env, files[1])
			if err != nil {
				return err
			}
			report, err := filediff.Compare(old, new)
			if err != nil {
				return err
			}
			if asJSON {
				return diffreport.PrintJSON(cmd.OutOrStdout(), report)
			}
			return diffreport.Print(cmd.OutOrStdout(), report)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with differences and examples")
	return cmd
}
