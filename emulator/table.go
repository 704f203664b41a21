package emulator

import (
	"cmp"
	"sync"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/tidwall/btree"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// table is one table. Rows are immutable values in a copy-on-write tree, so a
// reader takes a snapshot in no time and then needs no lock.
type table struct {
	name string
	id   uint64 // of this incarnation of the name

	mu       sync.Mutex // guards all below
	dropped  bool
	info     *adminpb.Table // without families; replaced, never changed
	schema   *store.Schema
	rows     *btree.BTreeG[*store.Row]
	tablets  []*tablet
	tabletID uint64
	interner store.Interner
	tokens   tokenWindow
	log      changeLog
	settings StreamSettings
	views    map[string]*view                 // authorized views, by id; replaced, never changed
	bundles  map[string]*adminpb.SchemaBundle // by id; replaced, never changed
	encoded  []byte                           // of the change being made, reused
}

func newTable(name string, id uint64, info *adminpb.Table, schema *store.Schema) *table {
	t := &table{name: name, id: id, info: info, schema: schema, rows: newRows()}
	t.tablets = []*tablet{t.newTablet("")}
	return t
}

func newRows() *btree.BTreeG[*store.Row] {
	return btree.NewBTreeGOptions(func(a, b *store.Row) bool { return a.Key < b.Key }, btree.Options{NoLocks: true})
}

// snapshot is the table's rows as they are, for reading only.
func (t *table) snapshot() (*btree.BTreeG[*store.Row], *store.Schema) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows.Copy(), t.schema
}

func (t *table) currentSchema() *store.Schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.schema
}

// session is a series of changes to one table at one time. Whoever has one
// holds e.mu for reading, or for writing, and t.mu.
type session struct {
	e         *Emulator
	t         *table
	now       int64  // microseconds
	cluster   string // that the request is routed to
	replaying bool   // the journal: nothing is journaled again or splits by itself
	hint      btree.PathHint
	key       store.Row // lookup key, reused
}

func (s *session) row(key string) *store.Row {
	s.key.Key = key
	r, _ := s.t.rows.GetHint(&s.key, &s.hint)
	return r
}

// mutate applies validated mutations to a row and logs what changed. token is
// the idempotency token they used, if any.
func (s *session) mutate(kind changeKind, key string, muts []*bigtablepb.Mutation, token []byte) {
	old := s.row(key)
	if old != nil {
		key = old.Key
	}
	a := store.Apply(s.t.schema, &s.t.interner, key, old, muts, s.now)
	s.put(key, old, a.Row)
	if len(a.Changes) > 0 {
		c := change{kind: kind, key: key, mutations: a.Changes, token: token}
		if kind != changeGC {
			c.cluster = cmp.Or(s.cluster, Cluster)
		}
		s.record(c)
	}
}

// keptBuffer is how large the buffer of a table for the change being made may
// stay between changes.
const keptBuffer = 64 << 10

// record stamps a change and appends it to log and journal.
func (s *session) record(c change) {
	s.t.log.stamp(&c, s.now, s.t.settings.EqualCommitTimes)
	if c.tablets == nil && (s.t.log.retention > 0 || s.e.journal != nil) {
		c.encode(s.t.encoded)
		if cap(c.encoded) <= keptBuffer {
			s.t.encoded = c.encoded
		}
	}
	s.note(c)
	s.e.journalChange(s.t, c)
}

// note keeps what a change leaves behind beside the rows.
func (s *session) note(c change) {
	if len(c.token) > 0 {
		s.t.tokens.use(tokenID(c.key, c.token), c.commit)
	}
	s.t.log.number(&c)
	if c.tablets == nil {
		s.t.keep(&c)
	}
}

// put makes r, nil for none, the row of a key.
func (s *session) put(key string, old, r *store.Row) {
	switch {
	case r != nil:
		s.t.rows.SetHint(r, &s.hint)
	case old != nil:
		s.t.rows.DeleteHint(old, &s.hint)
	default:
		return
	}
	s.resize(key, store.SizeOf(r)-store.SizeOf(old))
}

// change runs f on a table that exists, with all locks held, and waits until
// what it did, and all that it may have seen, is durable.
func (e *Emulator) change(name string, f func(s *session) error) error {
	position, err := e.changeLocked(name, f)
	if err != nil {
		return err
	}
	return e.durable(position)
}

// changeThrough is like change, through the authorized view that a request
// names, nil for none.
func (e *Emulator) changeThrough(on subject, f func(s *session, v *view) error) error {
	return e.change(on.table, func(s *session) (err error) {
		var v *view
		if on.view != "" {
			if v, err = s.t.viewLocked(on.view); err != nil {
				return err
			}
		}
		return f(s, v)
	})
}

func (e *Emulator) changeLocked(name string, f func(s *session) error) (position int64, err error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t := e.tables[name]
	if t == nil {
		return 0, tableNotFound(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := f(e.session(t)); err != nil {
		return 0, err
	}
	return e.appended(), nil
}

func (e *Emulator) session(t *table) *session {
	return &session{e: e, t: t, now: e.clock.micros()}
}

func (e *Emulator) table(name string) (*table, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if t := e.tables[name]; t != nil {
		return t, nil
	}
	return nil, tableNotFound(name)
}
