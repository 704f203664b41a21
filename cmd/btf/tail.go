package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/tailrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func tailCommand(env assemble.Env) *cobra.Command {
	cfg := tailrun.Config{Env: env}
	cmd := &cobra.Command{
		Use:   "tail -f FILE [NAME]",
		Short: "Show the changes of a table as they come",
		Long: "Shows the changes of a change stream of the pipeline file, or of a table that NAME names instead,\n" +
			"until interrupted: each change once, those of one row in order, through splits and merges of the\n" +
			"table. The stream's own filter applies. Nothing is kept for a later run, and no ledger is needed.\n" +
			"If it must give up, the error says from which time on changes are missing.\n" +
			"BIGTABLE_EMULATOR_HOST is obeyed. The application profile must route to one cluster.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if len(args) > 0 {
				cfg.Name = args[0]
			}
			return tailrun.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&cfg.File, "file", "f", "", "the pipeline file (required)")
	f.StringVar(&cfg.From, "from", "", "show changes from then on: how long ago (-1h) or a time (RFC 3339); by default from now on")
	f.StringVar(&cfg.To, "to", "", "end with the changes of then: how long ago (-5m) or a time (RFC 3339)")
	f.StringSliceVar(&cfg.Families, "family", nil, "only entries of this family; may be given more than once")
	f.StringVar(&cfg.Prefix, "key-prefix", "", "only changes of row keys that begin with this")
	f.BoolVar(&cfg.JSON, "json", false, "print each change as one line of JSON, as the function changes publishes it")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}
