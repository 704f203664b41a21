package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func scanCommand(env assemble.Env) *cobra.Command {
	var r scanrun.Request
	var cancel string
	cmd := &cobra.Command{
		Use:   "scan -f FILE NAME",
		Short: "Run a scan of a pipeline file here: plan it, read its splits in parallel, send its records",
		Long: "Plans the scan NAME and reads its splits with several workers in this process. Records go to\n" +
			"the scan's own sink or, with --to, as lines of JSON to a file or, with --to -, to stdout.\n" +
			"A file that holds data already is left alone unless --overwrite or --resume is given.\n\n" +
			"What is done is kept in the ledger (LEDGER, or .btf/PIPELINE.db), and with it where the records\n" +
			"go and how. Ctrl-C commits and prints the command that goes on; a second one ends at once.\n" +
			"After that, kill -9 or a crash, --resume ID alone goes on with the same output, where the last\n" +
			"commit was: up to five seconds of rows then come a second time, with the same record id, which\n" +
			"--ids puts into each line. Splits that another process holds are waited for, 90 s at most if it\n" +
			"has died, and not at all where this machine knows that it has. --cancel ID ends a scan for good,\n" +
			"also one that deployed functions read, where LEDGER names their ledger.\n\n" +
			"Exits 0 only if every row that was asked for is delivered, or nobody reads stdout any more.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := scanrun.Console{Env: env, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
			r.Name, r.IDsGiven = args[0], cmd.Flags().Changed("ids")
			for _, name := range []string{"to", "resume", "cancel"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" { // a variable that is not set
					return fmt.Errorf("--%s is empty: leave it out, or say what it is", name)
				}
			}
			if cmd.Flags().Changed("workers") && r.Workers < 1 {
				return scanrun.ErrWorkers
			}
			if cancel == "" {
				return scanrun.Run(cmd.Context(), c, r)
			}
			if r.To != "" || r.Resume != "" || r.IDs || r.Overwrite || r.AcceptChanges || r.Workers != 0 {
				return errors.New("--cancel takes no other flag than --file")
			}
			return scanrun.Cancel(cmd.Context(), c, r.File, r.Name, cancel)
		},
	}
	cmd.Flags().StringVarP(&r.File, "file", "f", "", "the pipeline file")
	cmd.Flags().StringVar(&r.To, "to", "", "where records go instead of the scan's sink: a file, or - for stdout")
	cmd.Flags().BoolVar(&r.Overwrite, "overwrite", false, "empty the file of --to first, once the scan is planned")
	cmd.Flags().BoolVar(&r.IDs, "ids", false, "put the record's id into each line of --to, as the first field, recordId")
	cmd.Flags().IntVar(&r.Workers, "workers", 0, fmt.Sprintf("how many splits are read at a time (default %d)", scanrun.DefaultWorkers))
	cmd.Flags().StringVar(&r.Resume, "resume", "", "go on with the scan of this id, with the output and the settings that it had")
	cmd.Flags().BoolVar(&r.AcceptChanges, "accept-changes", false, "go on with --resume though the scan has changed in the file since it was planned")
	cmd.Flags().StringVar(&cancel, "cancel", "", "the id of a scan to end for good: it has then failed")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}
