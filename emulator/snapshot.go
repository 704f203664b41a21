package emulator

import (
	"github.com/tidwall/btree"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

func (e *Emulator) snapshotIfLong() {
	if e.journal.SegmentBytes() < e.opts.SnapshotBytes || !e.saving.CompareAndSwap(false, true) {
		return
	}
	e.spawn(func() {
		defer e.saving.Store(false)
		if err := e.saveSnapshot(); err != nil {
			e.log.Error("snapshot", "error", err)
		}
	})
}

// frozen is a table at one moment.
type frozen struct {
	table   *table // a copy, whose slices and maps no one changes
	rows    *btree.BTreeG[*store.Row]
	changes []logView // for each tablet
	tokens  []tokenUse
}

// saveSnapshot writes all there is to a snapshot. Only taking the moment
// stops writers; the writing does not.
func (e *Emulator) saveSnapshot() error {
	segment, nextID, tables, admin, err := e.freeze()
	if err != nil {
		return err
	}
	return e.journal.Snapshot(segment, func(put func(func([]byte) []byte) error) error {
		err := put(func(b []byte) []byte {
			return putUint(putUint(append(b, recordFormat), formatVersion), nextID)
		})
		if err != nil {
			return err
		}
		if err := admin.save(put); err != nil {
			return err
		}
		for _, f := range tables {
			if err := f.save(put); err != nil {
				return err
			}
		}
		return nil
	})
}

// freeze takes the state and starts the journal segment that comes after it.
func (e *Emulator) freeze() (uint64, uint64, []frozen, frozenAdmin, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	segment, err := e.journal.Rotate()
	if err != nil {
		return 0, 0, nil, frozenAdmin{}, err
	}
	var tables []frozen
	for _, t := range e.tables {
		tables = append(tables, t.freeze(e.clock.micros()))
	}
	return segment, e.nextID, tables, e.freezeAdmin(), nil
}

func (t *table) freeze(now int64) frozen {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &table{name: t.name, id: t.id, info: t.info, schema: t.schema, tabletID: t.tabletID, views: t.views, bundles: t.bundles}
	f := frozen{table: c, rows: t.rows.Copy(), tokens: append([]tokenUse(nil), t.tokens.queue...)}
	t.trim(now)
	for i, tab := range t.tablets {
		c.tablets = append(c.tablets, &tablet{id: tab.id, start: tab.start})
		f.changes = append(f.changes, t.view(t.tabletRange(i), 0, t.log.next, true))
	}
	c.log = t.log // without what is below a pointer: the views have that
	c.log.closed = nil
	return f
}

func (f frozen) save(put func(func([]byte) []byte) error) error {
	if err := put(func(b []byte) []byte { return putTable(append(b, recordTable), f.table) }); err != nil {
		return err
	}
	for name, v := range f.table.views {
		if err := put(func(b []byte) []byte {
			return putNamed(append(b, recordView), f.table.name+"/authorizedViews/"+name, v.info)
		}); err != nil {
			return err
		}
	}
	for name, s := range f.table.bundles {
		if err := put(func(b []byte) []byte {
			return putNamed(append(b, recordBundle), f.table.name+"/schemaBundles/"+name, s)
		}); err != nil {
			return err
		}
	}
	if err := saveRows(put, recordRows, f.table.name, f.rows); err != nil {
		return err
	}
	if err := f.saveLog(put); err != nil {
		return err
	}
	if len(f.tokens) == 0 {
		return nil
	}
	return put(func(b []byte) []byte {
		b = putString(append(b, recordTokens), f.table.name)
		for _, u := range f.tokens {
			b = putString(putInt(b, u.at), u.id)
		}
		return b
	})
}

func (f frozen) saveLog(put func(func([]byte) []byte) error) (err error) {
	for _, v := range f.changes {
		v.each(func(c *change) bool {
			err = put(func(b []byte) []byte { return putChange(putUint(append(b, recordLog), c.position), f.table, *c) })
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
