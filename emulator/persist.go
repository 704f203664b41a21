package emulator

import (
	"fmt"
	"maps"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/journal"
	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// What a journal record is. Rows, retained changes, tokens and the format
// occur in snapshots only.
const (
	recordChange     = iota + 1 // a change of a row or of tablets
	recordTable                 // a table, new or in a snapshot
	recordDelete                // a table is deleted
	recordSchema                // a table's schema is replaced
	recordProfiles              // an instance's app profiles are replaced
	recordRows                  // rows as they are
	recordLog                   // the position of a change that the log retains, then the change; it has been applied
	recordTokens                // idempotency tokens in use
	recordFormat                // first in a snapshot: the version of all this
	recordInstance              // an instance and its clusters, or that it is deleted
	recordPolicy                // the IAM policy of a resource
	recordView                  // an authorized view, or that it is deleted
	recordBundle                // a schema bundle, or that it is deleted
	recordBackup                // a backup, and what its content is
	recordRestore               // a table that has the rows of a backup
	recordBackupRows            // rows of a backup, in snapshots only
)

// formatVersion is the version of the records, and oldestFormat the oldest
// one that is still read.
const (
	formatVersion = 3
	oldestFormat  = 2
)

// load opens the data directory and brings back its state.
func (e *Emulator) load() error {
	j, err := journal.Open(e.opts.DataDir, e.opts.Fsync, e.replay)
	if err != nil {
		return err
	}
	e.journal = j
	if torn := j.Torn(); torn.Bytes > 0 {
		e.log.Warn("cut off a record that was being written when the last emulator ended", "file", torn.File, "at", torn.At, "bytes", torn.Bytes)
	}
	return nil
}

// appended is the journal position after everything so far.
func (e *Emulator) appended() int64 {
	if e.journal == nil {
		return 0
	}
	return e.journal.Appended()
}

// durable waits until the journal is durable up to a position, and has a
// snapshot taken if it has grown long.
func (e *Emulator) durable(position int64) error {
	if e.journal == nil {
		return nil
	}
	if err := e.journal.Wait(position); err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	e.snapshotIfLong()
	return nil
}

func (e *Emulator) append(encode func(b []byte) []byte) {
	if e.journal != nil {
		e.journal.Append(encode)
	}
}

func (e *Emulator) journalChange(t *table, c change) {
	if e.journal != nil {
		e.journal.Append(func(b []byte) []byte { return putChange(append(b, recordChange), t, c) })
	}
}

func (e *Emulator) journalTable(t *table) {
	e.append(func(b []byte) []byte { return putTable(append(b, recordTable), t) })
}

func (e *Emulator) journalDelete(t *table) {
	e.append(func(b []byte) []byte { return putString(append(b, recordDelete), t.name) })
}

func (e *Emulator) journalSchema(t *table, dropped []string) {
	e.append(func(b []byte) []byte {
		b = putProto(putString(append(b, recordSchema), t.name), t.schemaProto())
		b = putUint(b, uint64(len(dropped)))
		for _, name := range dropped {
			b = putString(b, name)
		}
		return putInt(b, t.log.since)
	})
}

func (e *Emulator) journalProfiles(instance string, profiles map[string]*adminpb.AppProfile) {
	e.append(func(b []byte) []byte { return putProfiles(append(b, recordProfiles), instance, profiles) })
}

func putProfiles(b []byte, instance string, profiles map[string]*adminpb.AppProfile) []byte {
	b = putUint(putString(b, instance), uint64(len(profiles)))
	for _, id := range slices.Sorted(maps.Keys(profiles)) {
		b = putProto(b, profiles[id])
	}
	return b
}

func putTable(b []byte, t *table) []byte {
	b = putUint(putString(b, t.name), t.id)
	b = putProto(b, t.schemaProto())
	b = putUint(b, t.tabletID)
	b = putUint(b, uint64(len(t.tablets)))
	for _, tab := range t.tablets {
		b = putString(putUint(b, tab.id), tab.start)
	}
	l := &t.log
	b = putUint(putInt(b, l.last), l.next)
	b = putInt(putInt(putUint(b, l.generation), l.since), l.forgotten)
	return putString(putUint(b, uint64(l.tie)), l.cluster)
}

func putChange(b []byte, t *table, c change) []byte {
	b = putString(b, t.name)
	b = putInt(putUint(b, uint64(c.kind)), c.commit)
	if c.tablets != nil {
		return putRefs(putRefs(b, c.tablets.closed), c.tablets.opened)
	}
	b = putString(putString(putString(b, c.key), c.token), c.encoded)
	return putUint(putString(b, c.cluster), uint64(c.tie))
}

func putRefs(b []byte, refs []tabletRef) []byte {
	b = putUint(b, uint64(len(refs)))
	for _, r := range refs {
		b = putString(putString(putUint(b, r.id), r.start), r.end)
	}
	return b
}

// recordBytes is about how large a snapshot record of many rows gets.
const recordBytes = 256 << 10

func putRow(b []byte, r *store.Row) []byte {
	b = putUint(putString(b, r.Key), uint64(len(r.Cells)))
	for i := range r.Cells {
		c := &r.Cells[i]
		b = putString(putString(b, c.Family), c.Qualifier)
		b = putString(putInt(b, c.Timestamp), c.Value)
	}
	return b
}

// row reads what putRow wrote.
func (f *fields) row(in *store.Interner) (key string, cells []store.Cell) {
	key = f.string()
	cells = make([]store.Cell, f.count())
	for i := range cells {
		c := &cells[i]
		c.Family, c.Qualifier = f.string(), in.Intern(f.bytes())
		c.Timestamp, c.Value = f.int(), slices.Clone(f.bytes())
	}
	return key, cells
}

// replay applies one record of the data directory. No one else is there yet,
// so it takes no locks.
func (e *Emulator) replay(record []byte) error {
	f := &fields{b: record[1:]}
	var err error
	switch record[0] {
	case recordFormat:
		if v := f.uint(); v < oldestFormat || v > formatVersion {
			err = fmt.Errorf("the data directory has format %d, this emulator reads %d to %d", v, oldestFormat, formatVersion)
		}
		e.nextID = f.uint()
	case recordChange, recordLog:
		err = e.replayChange(f, record[0] == recordChange)
	case recordTable:
		_, err = e.replayTable(f)
	case recordDelete:
		if t := e.tables[f.string()]; t != nil {
			e.dropTable(t)
		}
	case recordSchema:
		err = e.replaySchema(f)
	case recordProfiles:
		e.replayProfiles(f)
	case recordRows:
		err = e.replayRows(f)
	case recordTokens:
		err = e.replayTokens(f)
	case recordInstance:
		e.replayInstance(f)
	case recordPolicy:
		e.replayPolicy(f)
	case recordView:
		err = e.replayView(f)
	case recordBundle:
		err = e.replayBundle(f)
	case recordBackup:
		err = e.replayBackup(f)
	case recordRestore:
		err = e.replayRestore(f)
	case recordBackupRows:
		err = e.replayBackupRows(f)
	default:
		err = fmt.Errorf("a journal record has the unknown kind %d", record[0])
	}
	if f.err != nil {
		return f.err
	}
	return err
}

// replaySession is the table that a record names, ready to be changed.
func (e *Emulator) replaySession(f *fields) (*session, error) {
	name := f.string()
	t := e.tables[name]
	if t == nil {
		return nil, fmt.Errorf("a journal record names a table that does not exist: %s", name)
	}
	return &session{e: e, t: t, replaying: true}, nil
}

func (e *Emulator) replayChange(f *fields, apply bool) error {
	position := uint64(0)
	if !apply {
		position = f.uint()
	}
	s, err := e.replaySession(f)
	if err != nil {
		return err
	}
	c, err := f.change(apply)
	if err != nil {
		return err
	}
	if apply {
		s.reapply(c)
		s.note(c)
		return nil
	}
	c.position = position
	s.t.keep(&c)
	return nil
}

// change reads what putChange wrote behind the table's name. The mutations
// are decoded only if they are to be applied again.
func (f *fields) change(decode bool) (change, error) {
	c := change{kind: changeKind(f.uint()), commit: f.int()}
	if c.kind == changeTablets {
		c.tablets = &tabletChange{closed: f.refs(), opened: f.refs()}
		return c, f.err
	}
	c.key, c.token, c.encoded = f.string(), slices.Clone(f.bytes()), f.bytes()
	c.cluster, c.tie = f.string(), int32(f.uint())
	if f.err != nil || !decode {
		return c, f.err
	}
	entry := &bigtablepb.MutateRowsRequest_Entry{}
	if err := proto.Unmarshal(c.encoded, entry); err != nil {
		return c, fmt.Errorf("a journal record holds a damaged message: %w", err)
	}
	c.mutations = entry.Mutations
	return c, nil
}

// reapply makes a change to rows or tablets again.
func (s *session) reapply(c change) {
	if c.tablets != nil {
		i := s.t.tabletAt(c.tablets.closed[0].start)
		starts := make([]string, len(c.tablets.opened))
		for j, r := range c.tablets.opened {
			starts[j] = r.start
		}
		s.t.retile(i, len(c.tablets.closed), starts)
		return
	}
	old := s.row(c.key)
	a := store.Apply(s.t.schema, &s.t.interner, c.key, old, c.mutations, c.commit)
	s.put(c.key, old, a.Row)
}

func (f *fields) refs() []tabletRef {
	refs := make([]tabletRef, f.count())
	for i := range refs {
		refs[i] = tabletRef{f.uint(), keyRange{f.string(), f.string()}}
	}
	return refs
}

func (e *Emulator) replayTable(f *fields) (*table, error) {
	t := &table{name: f.string(), id: f.uint(), rows: newRows()}
	p := &adminpb.Table{}
	f.proto(p)
	t.tabletID = f.uint()
	for range f.count() {
		t.tablets = append(t.tablets, &tablet{id: f.uint(), start: f.string(), part: &logPart{}})
	}
	l := &t.log
	l.last, l.next = f.int(), f.uint()
	l.generation, l.since, l.forgotten = f.uint(), f.int(), f.int()
	l.tie, l.cluster = int32(f.uint()), f.string()
	if f.err != nil {
		return nil, f.err
	}
	e.tables[t.name] = t
	e.nextID = max(e.nextID, t.id)
	l.retention = retentionOf(p) // the stream is not turned on anew
	return t, t.setSchema(p, l.since)
}

// setSchema takes a table's schema from its admin form. If that turns its
// change stream on, that was at since, in microseconds.
func (t *table) setSchema(p *adminpb.Table, since int64) error {
	schema := &store.Schema{Unit: 1000, Families: map[string]*store.Family{}}
	if p.Granularity == adminpb.Table_MICROS {
		schema.Unit = 1
	}
	for name, family := range p.ColumnFamilies {
		fam, err := store.NewFamily(name, family)
		if err != nil {
			return fmt.Errorf("family %s of %s: %w", name, t.name, err)
		}
		schema.Families[name] = fam
	}
	info := proto.Clone(p).(*adminpb.Table)
	info.ColumnFamilies = nil
	t.schema, t.info = schema, info
	t.retain(retentionOf(info), since)
	return nil
}

func (e *Emulator) replaySchema(f *fields) error {
	s, err := e.replaySession(f)
	if err != nil {
		return err
	}
	p := &adminpb.Table{}
	f.proto(p)
	dropped := make([]string, f.count())
	for i := range dropped {
		dropped[i] = f.string()
	}
	since := f.int()
	if f.err != nil {
		return f.err
	}
	if err := s.t.setSchema(p, since); err != nil {
		return err
	}
	s.purge(dropped)
	return nil
}

func (e *Emulator) replayProfiles(f *fields) {
	instance, profiles := f.string(), map[string]*adminpb.AppProfile{}
	for range f.count() {
		p := &adminpb.AppProfile{}
		f.proto(p)
		p.Etag = "" // that format 2 had
		_, id := splitProfile(p.Name)
		profiles[id] = p
	}
	e.profiles[instance] = profiles
}

func (e *Emulator) replayRows(f *fields) error {
	s, err := e.replaySession(f)
	if err != nil {
		return err
	}
	for len(f.b) > 0 {
		key, cells := f.row(&s.t.interner)
		if f.err != nil {
			return f.err
		}
		for i := range cells {
			if fam := s.t.schema.Families[cells[i].Family]; fam != nil {
				cells[i].Family = fam.Name
			}
		}
		s.put(key, nil, store.NewRow(key, cells))
	}
	return nil
}

func (e *Emulator) replayTokens(f *fields) error {
	s, err := e.replaySession(f)
	if err != nil {
		return err
	}
	for len(f.b) > 0 {
		at, id := f.int(), f.string()
		s.t.tokens.use(id, at)
	}
	return nil
}
