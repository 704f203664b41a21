package emulator

import (
	"slices"
	"sort"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
)

// changeKind says why something changed.
type changeKind uint8

const (
	changeUser    changeKind = iota + 1 // a request wrote or deleted
	changeGC                            // garbage collection deleted
	changeTablets                       // tablets split, merged or moved
)

// change is what one atomic request did to one row, resolved
// (store.Applied.Changes), or a change of tablets, which only the journal keeps.
type change struct {
	kind      changeKind
	position  uint64 // among all changes of the table there ever were
	commit    int64  // microseconds; never earlier than that of an earlier change
	cluster   string // that the request was routed to; "" for garbage collection
	tie       int32  // larger than that of another cluster's earlier change with the same commit time
	key       string
	mutations []*bigtablepb.Mutation
	encoded   []byte // the mutations as a MutateRowsRequest.Entry
	token     []byte // idempotency token that the request used, if any
	tablets   *tabletChange
}

// tabletChange replaces tablets: old ones end, new ones begin, both cover the
// same keys.
type tabletChange struct {
	closed, opened []tabletRef
}

// tabletRef names a tablet and its keys.
type tabletRef struct {
	id uint64
	keyRange
}

// encode sets c.encoded, into a buffer that may be reused after the change
// has been appended to log and journal.
func (c *change) encode(buf []byte) {
	entry := &bigtablepb.MutateRowsRequest_Entry{Mutations: c.mutations}
	// The mutations came from the wire or were made here: they marshal.
	c.encoded, _ = proto.MarshalOptions{}.MarshalAppend(buf[:0], entry)
}

// changeLog keeps a table's changes of rows for as long as its change stream
// retains them; without a change stream it keeps none. It numbers all changes
// there ever were. Each tablet has its own part of it, so that a reader of one
// partition visits no changes of the others, and a part outlives its tablet.
type changeLog struct {
	retention  int64        // microseconds; 0: no change stream
	generation uint64       // how often the change stream was turned on
	since      int64        // when it was turned on the last time
	next       uint64       // position of the next change
	forgotten  int64        // commit times below it may have been forgotten
	last       int64        // commit time of the latest change
	tie        int32        // that of the latest change
	cluster    string       // that of the latest change
	clusters   []string     // that changes name by their index
	closed     []closedPart // of tablets that ended, in the order of their ends
	added      int          // changes since the last sweep
}

// closedPart is the part of a tablet that has ended, and the tablet's keys.
type closedPart struct {
	*logPart
	keyRange
}

// logPart is the changes of one tablet, oldest first.
type logPart struct {
	chunks  []*logChunk
	dropped uint64 // changes of the tablet's keys below this position have been forgotten
	ended   bool   // the tablet has, with the change at position until
	until   uint64
	wake    chan struct{} // closed when a reader of the tablet should look again; nil if none waits
}

// logChunk is encoded changes. Bytes that are there do not change.
type logChunk struct {
	first, last    uint64 // positions of its first and last change
	oldest, latest int64  // their commit times
	buf            []byte
}

// chunkBytes is the size of a full chunk; one change that is larger has a
// chunk of its own.
const chunkBytes = 32 << 10

// changesPerSweep is after how many changes all parts are looked through for
// chunks that are past retention.
const changesPerSweep = 4096

// stamp gives a change made now its commit time: after every earlier one, or,
// if equal times are asked for, not before any.
func (l *changeLog) stamp(c *change, now int64, equal bool) {
	if !equal {
		now = max(now, l.last+1)
	}
	c.commit = max(now, l.last)
	if c.commit == l.last {
		if c.tie = l.tie; c.cluster != l.cluster {
			c.tie++
		}
	}
}

// number gives a change its position and notes its commit time.
func (l *changeLog) number(c *change) {
	c.position = l.next
	l.next++
	if c.tablets == nil {
		l.tie, l.cluster = c.tie, c.cluster
	} else if c.commit > l.last {
		l.tie, l.cluster = 0, ""
	}
	l.last = c.commit
}

// add appends a change of a row, numbered, to the part of its tablet.
func (l *changeLog) add(p *logPart, c *change) {
	head := l.encodeHead(c)
	size := len(head) + len(c.encoded)
	var ch *logChunk
	if n := len(p.chunks); n > 0 && len(p.chunks[n-1].buf)+size <= chunkBytes {
		ch = p.chunks[n-1]
	} else {
		ch = &logChunk{first: c.position, oldest: c.commit}
		p.chunks = append(p.chunks, ch)
	}
	ch.buf = putUint(ch.buf, c.position-ch.first)
	ch.buf = putInt(ch.buf, c.commit-ch.oldest)
	ch.buf = putUint(ch.buf, uint64(size))
	ch.buf = append(append(ch.buf, head...), c.encoded...)
	ch.last, ch.latest = c.position, c.commit
	p.notify()
}

func (l *changeLog) encodeHead(c *change) []byte {
	b := append(make([]byte, 0, 16+len(c.key)), byte(c.kind))
	b = putUint(b, uint64(c.tie))
	b = putUint(b, uint64(l.clusterIndex(c.cluster)))
	return putString(b, c.key)
}

func (l *changeLog) clusterIndex(name string) int {
	if i := slices.Index(l.clusters, name); i >= 0 {
		return i
	}
	// Readers hold the list as it was: it is replaced, never changed.
	l.clusters = append(slices.Clip(l.clusters), name)
	return len(l.clusters) - 1
}

// notify wakes the readers that wait for a part.
func (p *logPart) notify() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// waiter is a channel that is closed at the next notify.
func (p *logPart) waiter() <-chan struct{} {
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	return p.wake
}

// end keeps the part of a tablet that ends now.
func (l *changeLog) end(p *logPart, keys keyRange) {
	p.ended, p.until = true, l.next
	p.notify()
	if len(p.chunks) > 0 {
		l.closed = append(l.closed, closedPart{p, keys})
	}
}

// keep appends a change of a row to the log if there is a change stream, and
// now and then forgets changes that are past retention.
func (t *table) keep(c *change) {
	l := &t.log
	if l.retention == 0 {
		return
	}
	l.add(t.tablets[t.tabletAt(c.key)].part, c)
	if l.added++; l.added == changesPerSweep {
		l.added = 0
		t.trim(c.commit)
	}
}

// forget is trim for a caller that does not hold t.mu.
func (t *table) forget(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trim(now)
}

// trim forgets chunks that are past retention at a time.
func (t *table) trim(now int64) {
	l := &t.log
	if l.retention == 0 {
		return
	}
	cutoff := now - l.retention
	for _, tab := range t.tablets {
		if dropped := tab.part.trim(cutoff); dropped > 0 {
			tab.part.dropped = max(tab.part.dropped, dropped)
			l.forgotten = max(l.forgotten, cutoff)
		}
	}
	l.closed = slices.DeleteFunc(l.closed, func(c closedPart) bool {
		if dropped := c.trim(cutoff); dropped > 0 {
			l.forgotten = max(l.forgotten, cutoff)
			for _, tab := range t.tabletsIn(c.keyRange) {
				tab.part.dropped = max(tab.part.dropped, dropped)
			}
		}
		return len(c.chunks) == 0
	})
}

// trim forgets chunks with earlier commit times only, and returns the
// position after the last change that is forgotten, 0 if none is.
func (p *logPart) trim(cutoff int64) (dropped uint64) {
	n := 0
	for n < len(p.chunks) && p.chunks[n].latest < cutoff {
		dropped = p.chunks[n].last + 1
		n++
	}
	if n > 0 {
		p.chunks = slices.Delete(p.chunks, 0, n)
	}
	return dropped
}

// retain sets the retention at a time. Turning the stream off forgets every
// change, as the service does, and turning it on begins another generation.
func (t *table) retain(retention, now int64) {
	l := &t.log
	switch was := l.retention; {
	case was == 0 && retention > 0:
		l.generation++
		l.since = max(now, l.last)
	case was > 0 && retention == 0:
		for _, tab := range t.tablets {
			tab.part.chunks = nil
		}
		l.closed = nil
	}
	l.retention = retention
	t.wakeReaders()
}

// wakeReaders makes every reader of the table's stream look again.
func (t *table) wakeReaders() {
	for _, tab := range t.tablets {
		tab.part.notify()
	}
}

// tabletsIn are the tablets that hold keys of a range.
func (t *table) tabletsIn(r keyRange) []*tablet {
	i := t.tabletAt(r.start)
	j := i + 1
	for j < len(t.tablets) && (r.end == "" || t.tablets[j].start < r.end) {
		j++
	}
	return t.tablets[i:j]
}

// partsIn visits the parts that may hold changes of a range's keys, from a
// position on.
func (t *table) partsIn(r keyRange, from uint64, visit func(*logPart)) {
	l := &t.log
	for _, c := range l.closed[sort.Search(len(l.closed), func(j int) bool { return l.closed[j].until > from }):] {
		if _, empty := c.within(r); !empty {
			visit(c.logPart)
		}
	}
	for _, tab := range t.tabletsIn(r) {
		visit(tab.part)
	}
}

// droppedIn is the position below which changes of a range's keys may have
// been forgotten.
func (t *table) droppedIn(r keyRange) uint64 {
	dropped := uint64(0)
	for _, tab := range t.tabletsIn(r) {
		dropped = max(dropped, tab.part.dropped)
	}
	return dropped
}

// seek is a position from which on a reader of a range finds every change that
// was committed at a time or later.
func (t *table) seek(r keyRange, at int64) uint64 {
	position := t.log.next
	t.partsIn(r, 0, func(p *logPart) {
		j := sort.Search(len(p.chunks), func(j int) bool { return p.chunks[j].latest >= at })
		if j == len(p.chunks) {
			return
		}
		c := chunkReader{chunk: *p.chunks[j]}
		for c.next() {
			if c.commit >= at {
				position = min(position, c.position)
				return
			}
		}
	})
	return position
}
