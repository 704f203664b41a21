package scanrun

import (
	"context"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/scanshare"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// share is how far a scan is.
type share struct {
	share  float64 // of what there is to read, from 0 to 1
	rows   int64
	open   int // splits that are not finished
	failed int
	of     int
	held   []*ledger.Split // those that somebody has leased
}

// shareOf reads how far a scan is.
func shareOf(ctx context.Context, l *ledger.Ledger, id string) (*share, error) {
	scan, err := l.Scan(ctx, id)
	if err != nil {
		return nil, err
	}
	var splits []*ledger.Split
	err = l.Splits(ctx, scan, func(split *ledger.Split) error {
		splits = append(splits, split)
		return nil
	})
	s := &share{of: scan.Splits, share: scanshare.Of(scan, splits)}
	for _, split := range splits {
		s.rows += split.Rows
		switch {
		case split.State == ledger.SplitFailed:
			s.failed++
		case !split.Finished():
			s.open++
			if split.Holder != "" {
				s.held = append(s.held, split)
			}
		}
	}
	return s, err
}
