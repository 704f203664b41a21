package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/write"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/pipeline"
)

// profileTimeout bounds the check of application profiles, which a start waits for where
// the pipeline has dedupe.
const profileTimeout = 5 * time.Second

// checkProfiles fails where dedupe would rest on a profile that does not carry it.
func checkProfiles(p *pipeline.Pipeline, dialer *btrpc.Dialer, env environment) error {
	if !slices.ContainsFunc(p.Write.Mappings, func(m *pipeline.Mapping) bool {
		return m.Dedupe == pipeline.DedupeWindow || m.Dedupe == pipeline.DedupeMarker
	}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), profileTimeout)
	defer cancel()
	conn, err := dialer.Admin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = write.CheckProfiles(ctx, p, conn); errors.Is(err, write.ErrUnchecked) {
		env.logger.Info(write.ErrUnchecked.Error(), "reason", err)
		return nil
	}
	return err
}
