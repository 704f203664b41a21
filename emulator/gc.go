package emulator

import (
	"context"
	"time"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// CollectGarbage deletes what the families' GC rules say has expired by the
// emulator's clock, forgets expired backups, and returns how many rows it
// changed. It runs only when
// called, and every Options.GCInterval; until then reads see expired cells,
// as they may on the service.
func (e *Emulator) CollectGarbage(ctx context.Context) (rows int, err error) {
	e.expireBackups()
	e.mu.RLock()
	names := make([]string, 0, len(e.tables))
	for name := range e.tables {
		names = append(names, name)
	}
	e.mu.RUnlock()
	for _, name := range names {
		n, err := e.collectTable(ctx, name)
		rows += n
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// collectTable works on a snapshot and looks again at each row that has garbage
// in it, so that it does not hold up writers. It also lets the change log forget
// changes that are past retention.
func (e *Emulator) collectTable(ctx context.Context, name string) (changed int, err error) {
	t, err := e.table(name)
	if err != nil {
		return 0, nil // deleted meanwhile
	}
	now := e.clock.micros()
	t.forget(now)
	rows, schema := t.snapshot()
	for key, r := range allRows(rows) {
		if err := ctx.Err(); err != nil {
			return changed, err
		}
		if len(store.Collect(schema, r, now)) == 0 {
			continue
		}
		err := e.change(name, func(s *session) error {
			if r := s.row(key); r != nil {
				if muts := store.Collect(s.t.schema, r, s.now); len(muts) > 0 {
					s.mutate(changeGC, key, muts, nil)
					changed++
				}
			}
			return nil
		})
		if err != nil {
			return changed, nil // deleted meanwhile
		}
	}
	return changed, nil
}

func (e *Emulator) collectEvery(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := e.CollectGarbage(ctx); err != nil && ctx.Err() == nil {
				e.log.Error("garbage collection", "error", err)
			}
		}
	}
}
