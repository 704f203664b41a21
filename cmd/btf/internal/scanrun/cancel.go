package scanrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// Cancel ends the scan of an id for good, even if another process reads it. file and name are
// the pipeline file and the scan's name, which need not be in it any more.
func Cancel(ctx context.Context, c Console, file, name, id string) (err error) {
	var open closers.Stack
	defer func() { err = errors.Join(err, open.Close()) }()
	p, err := setup.ParseFile(c.Env, file) // what the scan asks for need not compile
	if err != nil {
		return err
	}
	if _, err := lookUp(ctx, c, p, file, name, id); err != nil {
		return fmt.Errorf("cancelling: %w", err)
	}
	l, err := openLedger(ctx, c, p, &open)
	if err != nil {
		return err
	}
	scan, err := l.Cancel(ctx, id)
	if errors.Is(err, ledger.ErrScanFinished) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; the same command goes on", err)
	}
	fmt.Fprintf(c.Stderr, "scan %s is cancelled: %d of %d splits done, %s, %s\n", scan.ID, scan.Splits-scan.Failed,
		scan.Splits, terminal.Plural(int(scan.Rows), "row"), Records(scan.Records))
	return nil
}
