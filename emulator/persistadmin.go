package emulator

import (
	"fmt"
	"maps"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"github.com/tidwall/btree"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// Journal records of what is administered beside tables.

func (e *Emulator) journalInstance(name string, i *instance) {
	e.append(func(b []byte) []byte { return putInstance(append(b, recordInstance), name, i) })
}

func (e *Emulator) journalPolicy(resource string, p *iampb.Policy) {
	e.append(func(b []byte) []byte { return putNamed(append(b, recordPolicy), resource, p) })
}

// journalView records a view, nil if it is deleted.
func (e *Emulator) journalView(name string, v *adminpb.AuthorizedView) {
	e.append(func(b []byte) []byte {
		if v == nil {
			return putNamed(append(b, recordView), name, nil)
		}
		return putNamed(append(b, recordView), name, v)
	})
}

// journalBundle records a schema bundle, nil if it is deleted.
func (e *Emulator) journalBundle(name string, s *adminpb.SchemaBundle) {
	e.append(func(b []byte) []byte {
		if s == nil {
			return putNamed(append(b, recordBundle), name, nil)
		}
		return putNamed(append(b, recordBundle), name, s)
	})
}

// What a record of a backup says of its content.
const (
	backupOfTable  = iota + 1 // the source table as it is at this point of the journal
	backupOfBackup            // the source backup's
	backupChanged             // it stays as it is
	backupDeleted             // there is none any more
	backupFollows             // the schema, then recordBackupRows; in snapshots only
)

func (e *Emulator) journalBackup(what uint64, info *adminpb.Backup) {
	e.append(func(b []byte) []byte { return putProto(putUint(append(b, recordBackup), what), info) })
}

// journalRestore records a table that has the rows of a backup.
func (e *Emulator) journalRestore(t *table, from string) {
	e.append(func(b []byte) []byte { return putTable(putString(append(b, recordRestore), from), t) })
}

func putInstance(b []byte, name string, i *instance) []byte {
	b = putString(b, name)
	if i.deleted {
		return putUint(b, 0)
	}
	b = putProto(putUint(b, 1), i.info)
	b = putUint(b, uint64(len(i.clusters)))
	for _, id := range slices.Sorted(maps.Keys(i.clusters)) {
		b = putProto(b, i.clusters[id])
	}
	return b
}

// putNamed is a name and its message, nil for none.
func putNamed(b []byte, name string, m proto.Message) []byte {
	b = putString(b, name)
	if m == nil {
		return putUint(b, 0)
	}
	return putProto(putUint(b, 1), m)
}

// named reads what putNamed wrote and reports whether there is a message.
func (f *fields) named(m proto.Message) (name string, there bool) {
	name, there = f.string(), f.uint() == 1
	if there {
		f.proto(m)
	}
	return name, there
}

func (e *Emulator) replayInstance(f *fields) {
	name := f.string()
	if f.uint() == 0 {
		e.dropInstance(name, &instance{deleted: true})
		return
	}
	i := &instance{info: &adminpb.Instance{}, clusters: map[string]*adminpb.Cluster{}}
	f.proto(i.info)
	for range f.count() {
		c := &adminpb.Cluster{}
		f.proto(c)
		i.clusters[lastOf(c.Name)] = c
	}
	e.instances[name] = i
}

func (e *Emulator) replayPolicy(f *fields) {
	p := &iampb.Policy{}
	if resource, there := f.named(p); there {
		e.policies[resource] = p
	}
}

// parentTable is the table that a view or bundle belongs to.
func (e *Emulator) parentTable(name string) (*table, error) {
	parent, _ := parentOf(name)
	if t := e.tables[parent]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("a journal record names a table that does not exist: %s", parent)
}

func (e *Emulator) replayView(f *fields) error {
	v := &adminpb.AuthorizedView{}
	name, there := f.named(v)
	t, err := e.parentTable(name)
	switch {
	case f.err != nil || err != nil:
		return err
	case there:
		t.setView(v)
	default:
		t.dropView(lastOf(name))
		e.dropPolicies(name)
	}
	return nil
}

func (e *Emulator) replayBundle(f *fields) error {
	b := &adminpb.SchemaBundle{}
	name, there := f.named(b)
	t, err := e.parentTable(name)
	switch {
	case f.err != nil || err != nil:
		return err
	case there:
		t.setBundle(b)
	default:
		t.dropBundle(lastOf(name))
		e.dropPolicies(name)
	}
	return nil
}

func (e *Emulator) replayBackup(f *fields) error {
	what, info := f.uint(), &adminpb.Backup{}
	f.proto(info)
	if f.err != nil {
		return f.err
	}
	switch what {
	case backupOfTable:
		t := e.tables[info.SourceTable]
		if t == nil {
			return fmt.Errorf("a journal record is of a backup of a table that does not exist: %s", info.SourceTable)
		}
		e.keepBackup(t, info)
	case backupOfBackup, backupChanged:
		from := e.backups[info.Name]
		if what == backupOfBackup {
			from = e.backups[info.SourceBackup]
		}
		if from == nil {
			return fmt.Errorf("a journal record is of a backup that does not exist: %s", info.Name)
		}
		e.copyBackup(from, info)
	case backupDeleted:
		e.dropBackup(info.Name)
	case backupFollows:
		b := &backup{info: info, schema: &adminpb.Table{}, rows: newRows()}
		f.proto(b.schema)
		e.backups[info.Name] = b
	default:
		return fmt.Errorf("a journal record of a backup has the unknown kind %d", what)
	}
	return nil
}

func (e *Emulator) replayBackupRows(f *fields) error {
	name := f.string()
	b := e.backups[name]
	if b == nil {
		return fmt.Errorf("a journal record names a backup that does not exist: %s", name)
	}
	var in store.Interner
	for len(f.b) > 0 {
		key, cells := f.row(&in)
		b.rows.Set(store.NewRow(key, cells))
	}
	return nil
}

func (e *Emulator) replayRestore(f *fields) error {
	from := f.string()
	b := e.backups[from]
	if b == nil {
		return fmt.Errorf("a journal record names a backup that does not exist: %s", from)
	}
	t, err := e.replayTable(f)
	if err != nil {
		return err
	}
	e.fill(t, b)
	return nil
}

// frozenAdmin is what is administered beside tables, at one moment.
type frozenAdmin struct {
	instances map[string]*instance
	profiles  map[string]map[string]*adminpb.AppProfile
	policies  map[string]*iampb.Policy
	backups   []*backup
}

// freezeAdmin takes what is administered. The caller holds e.mu for writing.
func (e *Emulator) freezeAdmin() frozenAdmin {
	f := frozenAdmin{
		instances: maps.Clone(e.instances), profiles: map[string]map[string]*adminpb.AppProfile{}, policies: maps.Clone(e.policies),
	}
	for instance, p := range e.profiles {
		f.profiles[instance] = maps.Clone(p)
	}
	for _, b := range e.backups {
		f.backups = append(f.backups, &backup{info: b.info, schema: b.schema, rows: b.rows.Copy()})
	}
	return f
}

func (f frozenAdmin) save(put func(func([]byte) []byte) error) error {
	for name, i := range f.instances {
		if err := put(func(b []byte) []byte { return putInstance(append(b, recordInstance), name, i) }); err != nil {
			return err
		}
	}
	for instance, p := range f.profiles {
		if err := put(func(b []byte) []byte { return putProfiles(append(b, recordProfiles), instance, p) }); err != nil {
			return err
		}
	}
	for resource, p := range f.policies {
		if err := put(func(b []byte) []byte { return putNamed(append(b, recordPolicy), resource, p) }); err != nil {
			return err
		}
	}
	for _, k := range f.backups {
		err := put(func(b []byte) []byte {
			return putProto(putProto(putUint(append(b, recordBackup), backupFollows), k.info), k.schema)
		})
		if err != nil {
			return err
		}
		if err := saveRows(put, recordBackupRows, k.info.Name, k.rows); err != nil {
			return err
		}
	}
	return nil
}

// saveRows writes rows in records of many, each of a kind and under a name.
func saveRows(put func(func([]byte) []byte) error, kind byte, name string, rows *btree.BTreeG[*store.Row]) error {
	var batch []*store.Row
	size := int64(0)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := put(func(b []byte) []byte {
			b = putString(append(b, kind), name)
			for _, r := range batch {
				b = putRow(b, r)
			}
			return b
		})
		batch, size = batch[:0], 0
		return err
	}
	for _, r := range allRows(rows) {
		batch, size = append(batch, r), size+r.Size
		if size >= recordBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
