package status

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/streamstatus"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// readLedger reads all that one ledger knows of a pipeline.
func readLedger(ctx context.Context, cfg Config, p *pipeline.Pipeline) (out Ledger, err error) {
	out = Ledger{Place: setup.LedgerPlace(cfg.Env, p).String(), Scans: []Scan{}, Changes: []streamstatus.Stream{}}
	l, scans, closer, err := open(ctx, cfg, p)
	defer func() { err = errors.Join(err, closer()) }()
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return out, err
	}
	out.Exists = true
	for _, scan := range scans {
		s, err := readScan(ctx, cfg, l, scan)
		if err != nil {
			return out, err
		}
		out.Scans = append(out.Scans, s)
	}
	for _, c := range p.Changes {
		stream, err := readStream(ctx, l, c)
		if err != nil {
			return out, err
		}
		out.Changes = append(out.Changes, stream)
	}
	out.at = cfg.Now()
	return out, nil
}

// open opens a ledger, and lists its scans, the newest first. If there is none, the error is
// fs.ErrNotExist. The caller calls the function that is returned, also after an error.
func open(ctx context.Context, cfg Config, p *pipeline.Pipeline) (l *ledger.Ledger, scans []*ledger.Scan, closer func() error, err error) {
	closer = func() error { return nil }
	err = setup.AwaitLedger(ctx, cfg.Patience, cfg.Notices, cfg.Env, p, func(ctx context.Context) error {
		opened, closing, err := setup.ReadLedger(ctx, cfg.Env, p)
		if err != nil {
			return err
		}
		l, closer = opened, closing
		scans, err = l.Scans(ctx)
		return err
	})
	slices.SortFunc(scans, func(a, b *ledger.Scan) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return l, scans, closer, err
}

// readScan reads the splits of a scan, unless it is finished and they are not asked for.
func readScan(ctx context.Context, cfg Config, l *ledger.Ledger, scan *ledger.Scan) (Scan, error) {
	var splits []*ledger.Split
	if !scan.Finished() || cfg.All {
		err := l.Splits(ctx, scan, func(split *ledger.Split) error {
			splits = append(splits, split)
			return nil
		})
		if err != nil {
			return Scan{}, err
		}
	}
	slices.SortFunc(splits, func(a, b *ledger.Split) int { return a.Index - b.Index })
	total, done, state := scan.Counts, scan.Splits-scan.Failed, string(scan.State)
	if !scan.Finished() {
		total, done = sum(splits)
	}
	out := Scan{
		ID: scan.ID, Name: scan.Name, Splits: scan.Splits, Done: done, Rows: total.Rows, Records: total.Records, Dropped: total.Dropped,
		Error: scan.Error, CreatedAt: scan.CreatedAt, listed: splits,
	}
	if out.stopped = isStopped(scan, splits, cfg.Now()); out.stopped {
		state, out.ended = "stopped", scan.Run.Ended
	}
	out.State = state
	return out, nil
}

// isStopped reports whether a scan that a command has begun waits for one that goes on
// with it. If the command runs elsewhere, this is known after the time of a lease.
func isStopped(scan *ledger.Scan, splits []*ledger.Split, now time.Time) bool {
	if scan.Finished() || scan.Run == nil {
		return false
	}
	moved := scan.CreatedAt
	for _, split := range splits {
		if split.Holder != "" && split.Until.After(now) && !process.Died(split.Holder) {
			return false
		}
		if split.UpdatedAt.After(moved) {
			moved = split.UpdatedAt
		}
	}
	switch by := scan.Run.Holder; {
	case by == "" || process.Died(by):
		return true
	case process.Alive(by):
		return false
	}
	return now.Sub(moved) >= ledger.LeaseTime
}

// sum adds up splits and counts those that are done.
func sum(splits []*ledger.Split) (total ledger.Counts, done int) {
	for _, split := range splits {
		total.Rows += split.Rows
		total.Records += split.Records
		total.Dropped += split.Dropped
		if split.State == ledger.SplitDone {
			done++
		}
	}
	return total, done
}

// readStream returns what the ledger knows of a change stream.
func readStream(ctx context.Context, l *ledger.Ledger, c *pipeline.Change) (streamstatus.Stream, error) {
	id := ledger.StreamID{Name: c.Name, Table: c.Table.Ref().String()}
	topology, err := l.Topology(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return streamstatus.Stream{Name: id.Name, Table: id.Table}, nil
	} else if err != nil {
		return streamstatus.Stream{}, err
	}
	return streamstatus.Of(topology), nil
}
