package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// runCancel ends a scan for good, whoever reads it.
func (s *scanner) runCancel(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	if s.to != "" || s.resume != "" || s.ids || s.overwrite || s.acceptChanges || s.workers != 0 {
		return errors.New("--cancel takes no other flag than --file")
	}
	p, err := parseFile(s.env, s.file) // what the scan asks for need not compile, nor be there any more
	if err != nil {
		return err
	}
	if _, err := s.lookUp(ctx, p, s.cancel); err != nil {
		return fmt.Errorf("cancelling: %w", err)
	}
	if err := s.openLedger(ctx, p); err != nil {
		return err
	}
	scan, err := s.ledger.Cancel(ctx, s.cancel)
	if errors.Is(err, ledger.ErrScanFinished) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; the same command goes on", err)
	}
	fmt.Fprintf(s.stderr, "scan %s is cancelled: %d of %d splits done, %s, %s\n", scan.ID, scan.Splits-scan.Failed,
		scan.Splits, terminal.Plural(int(scan.Rows), "row"), records(scan.Records))
	return nil
}
