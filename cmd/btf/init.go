package main

import (
	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/firstfile"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
)

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init NAME",
		Short: "Write a first pipeline file, NAME.yaml, with a test that passes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := firstfile.Write(args[0])
			if err != nil {
				return err
			}
			p := &terminal.Printer{Out: cmd.OutOrStdout()}
			p.Printf("wrote %s; next:\n  btf lint %[1]s\n  btf test %[1]s\n  btf dev -f %[1]s\n", file)
			return p.Err
		},
	}
}
