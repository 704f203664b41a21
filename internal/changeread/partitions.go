package changeread

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// asking is waited between two attempts to read the service's partitions.
var asking = retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.25}

const askAttempts = 5

// Partitions asks for the partitions that the service has, which are all keys, each once.
// An error quotes no key.
func Partitions(ctx context.Context, table *btrpc.Table, conn grpc.ClientConnInterface) ([]rowrange.Range, error) {
	for failures := 1; ; failures++ {
		ranges, err := table.Partitions(ctx, conn)
		if err == nil {
			out := make([]rowrange.Range, len(ranges))
			for i, r := range ranges {
				if out[i], err = changestream.ReadRange(r); err != nil {
					return nil, err
				}
			}
			return out, changestream.CheckPartitions(out)
		}
		class := retry.Classify(err)
		if class.Verdict != retry.VerdictTransient || failures == askAttempts {
			return nil, fmt.Errorf("asking for the partitions of %s: %w", table.Name(), retry.Bare(class.Code))
		}
		if err := retry.Sleep(ctx, max(class.Delay, asking.Delay(failures, 0.5))); err != nil {
			return nil, err
		}
	}
}
