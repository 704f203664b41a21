package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/demo"
)

func demoCommand() *cobra.Command {
	var asJSON, hold bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Write 2,000 real flights through embedded Pub/Sub, function and Bigtable, and read them back",
		Long: "Publishes the flights of examples/flights to an embedded Pub/Sub, whose push subscription\n" +
			"delivers them over HTTP to the function write, which writes them into an embedded Bigtable.\n" +
			"Then reads every row back and compares. Then scans the table: scan-planner cuts it into splits,\n" +
			"three instances of scan-worker read these in parallel and publish a record for each row, and\n" +
			"what arrives is compared too. All the while the function changes reads the table's change stream:\n" +
			"a tablet is split and merged again, and the reader is killed and replaced. Exits 0\n" +
			"only if every row is there with the right cells, every record of the scan once with the right\n" +
			"values, and one change of each row with the right cells, which may come again under its id.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
			d, err := demo.Start(ctx, stderr)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, d.Close()) }()
			result, differences, err := d.Run(ctx)
			if err != nil {
				return errors.Join(err, differences)
			}
			result.Print(stderr)
			if asJSON {
				err = result.PrintJSON(cmd.OutOrStdout())
			}
			if err == nil && hold {
				err = d.Hold(ctx)
			}
			return errors.Join(err, differences)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "end with one JSON object on stdout")
	cmd.Flags().BoolVar(&hold, "hold", false, "keep everything running after the comparison, until interrupted")
	return cmd
}
