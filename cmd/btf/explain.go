package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/explain"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func explainCommand(env assemble.Env) *cobra.Command {
	e := explain.Explainer{Env: env}
	cmd := &cobra.Command{
		Use:   "explain FILE MESSAGE",
		Short: "Say what a pipeline would do with a message",
		Long: "Says for each record of a message which mappings take it and why others do not, and prints the\n" +
			"rows that they make, one mutation a line, in the order in which they would be applied. MESSAGE\n" +
			"is a file, or - for stdin: the body of a push request, or a bare payload, which then has the id\n" +
			"and publish time that a test without them has. Writes nothing.\n" +
			"BIGTABLE_PROJECT and BIGTABLE_INSTANCE replace the file's defaults.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Stdin, e.Stdout = cmd.InOrStdin(), cmd.OutOrStdout()
			return e.Explain(args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&e.AsTest, "as-test", false, "print an entry for the file's tests instead, which passes")
	return cmd
}
