package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/testrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func testCommand(env assemble.Env) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "test FILE…",
		Short: "Run the tests of pipeline files",
		Long: "Runs each entry of tests: maps its message as the function write would and compares every\n" +
			"mutation of every row; of a scan, compares what emit makes of a row. Where they differ, lines\n" +
			"with - are expected and lines with + are what came. Exits 1 when a test fails or a file cannot\n" +
			"be loaded. BIGTABLE_PROJECT and BIGTABLE_INSTANCE replace the file's defaults.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			t := testrun.Tester{Env: env, Out: cmd.OutOrStdout()}
			if watch {
				return t.Follow(cmd.Context(), files)
			}
			return t.Run(files)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "run a file's tests again whenever it changes, until interrupted")
	return cmd
}
