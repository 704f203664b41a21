package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/replayrun"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/assemble"
)

func replayCommand(env assemble.Env) *cobra.Command {
	cfg := replayrun.Config{Env: env}
	var from string
	cmd := &cobra.Command{
		Use:   "replay -f FILE",
		Short: "Apply dead letters and undelivered messages as they were meant",
		Long: "Pulls what the function write gave up on (subscription NAME-dead-letter) and what Pub/Sub gave up on\n" +
			"(NAME-undelivered), applies it under the pipeline file with the ids and times of the original messages,\n" +
			"and acknowledges what is applied. Everything else stays where it is. Exits 0 only if nothing failed.\n" +
			"BIGTABLE_PROJECT, BIGTABLE_INSTANCE, PUBSUB_PROJECT and the emulators' variables mean what they mean\n" +
			"for the function.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if cfg.After, err = since(from, time.Now()); err != nil {
				return err
			}
			return replayrun.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&cfg.File, "file", "f", "", "the pipeline file (required)")
	f.StringVar(&cfg.Table, "table", "", "only what is for this table, by its name in the file")
	f.StringVar(&cfg.Error, "error", "", "only dead letters whose error contains this text")
	f.StringVar(&from, "since", "", "only what was given up since then: a time (RFC 3339) or how long ago (24h)")
	f.BoolVar(&cfg.DryRun, "dry-run", false, "print the mutations, apply and acknowledge nothing")
	f.BoolVar(&cfg.NewIDs, "new-ids", false, "replay undelivered messages under the ids that Pub/Sub gave them, although something depends on message.id")
	// Not an error: the flag exists.
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

// since reads the flag: a time, or a duration before now; zero if it is empty.
func since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since %s: neither a time as 2026-08-30T10:00:00Z nor a duration as 24h", text)
	}
	return t, nil
}
