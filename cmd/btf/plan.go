package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/plan"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
	"github.com/bigtable-functions/bigtable-functions/internal/bill"
)

func planCommand(env assemble.Env) *cobra.Command {
	var file, prices string
	var load bill.Load
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Say what a deployment of a pipeline file consists of, and what a month of it costs",
		Long: "Prints the services, topics, subscriptions, schedules and roles that a deployment of the file\n" +
			"consists of, and what a month costs under a load, each amount with its arithmetic, beside the\n" +
			"least that Dataflow costs for the same work. It connects to nothing. The prices are a table of\n" +
			"this version that nobody has verified: docs/cost.md says how to replace it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := setup.LoadAll(env, file)
			if err != nil {
				return err
			}
			p, err := plan.Of(file, loaded, load, prices)
			if err != nil {
				return err
			}
			if asJSON {
				return p.PrintJSON(cmd.OutOrStdout())
			}
			return p.Print(cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "file", "f", "", "the pipeline file")
	flags.Float64Var(&load.EventsPerSecond, "events-per-second", 0, "messages published to NAME-events, on average")
	flags.Float64Var(&load.ChangesPerSecond, "changes-per-second", 0, "changes of each change stream, on average")
	flags.IntVar(&load.Partitions, "partitions", 10, "partitions of each change stream: about as many as its table has tablets")
	flags.Float64Var(&load.RowsPerScan, "rows-per-scan", 0, "rows that each run of a scheduled scan reads")
	flags.StringVar(&prices, "prices", "", "a table of prices, in YAML or JSON, that replaces the one of this version")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	_ = cmd.MarkFlagRequired("file") // fails only if there is no such flag
	return cmd
}
