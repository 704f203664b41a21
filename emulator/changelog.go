package emulator

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// changeKind says why something changed.
type changeKind uint8

const (
	changeUser    changeKind = iota + 1 // a request wrote or deleted
	changeGC                            // garbage collection deleted
	changeTablets                       // tablets split, merged or moved
)

// change is one record of a table's log: the mutations that one atomic
// request made to one row, resolved (store.Applied.Changes), or a change of
// tablets.
type change struct {
	kind      changeKind
	commit    int64 // microseconds, strictly increasing within a table
	key       string
	mutations []*bigtablepb.Mutation
	token     []byte // idempotency token that the request used, if any
	tablets   *tabletChange
}

// tabletChange replaces tablets: old ones end, new ones begin, both cover the
// same keys.
type tabletChange struct {
	closed, opened []tabletRef
}

// tabletRef names a tablet and its keys, from start up to end, "" for none.
type tabletRef struct {
	id         uint64
	start, end string
}

// changeLog keeps a table's changes for as long as its change stream retains
// them; without a change stream it keeps none. Positions count all changes
// there ever were.
type changeLog struct {
	retention int64  // microseconds; 0: no change stream
	last      int64  // commit time of the latest change
	first     uint64 // position of the oldest change that is kept
	chunks    [][]change
}

const changesPerChunk = 512

// stamp is the commit time of a change made now: after every earlier one.
func (l *changeLog) stamp(now int64) int64 {
	l.last = max(now, l.last+1)
	return l.last
}

func (l *changeLog) append(c change) {
	if l.retention == 0 {
		l.first++
		return
	}
	if n := len(l.chunks); n == 0 || len(l.chunks[n-1]) == changesPerChunk {
		l.trim(c.commit)
		l.chunks = append(l.chunks, make([]change, 0, changesPerChunk))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, c)
}

// trim forgets whole chunks that are past retention.
func (l *changeLog) trim(now int64) {
	n := 0
	for n < len(l.chunks) && l.chunks[n][len(l.chunks[n])-1].commit < now-l.retention {
		l.first += uint64(len(l.chunks[n]))
		n++
	}
	clear(l.chunks[:n])
	l.chunks = l.chunks[n:]
}

// retain sets the retention. Turning the stream off forgets every change, as
// the service does.
func (l *changeLog) retain(retention int64) {
	l.retention = retention
	if retention == 0 {
		l.first = l.end()
		l.chunks = nil
	}
}

// end is the position of the next change.
func (l *changeLog) end() uint64 {
	n := l.first
	for _, c := range l.chunks {
		n += uint64(len(c))
	}
	return n
}

// all are the changes that are kept, oldest first.
func (l *changeLog) all() []change {
	var out []change
	for _, c := range l.chunks {
		out = append(out, c...)
	}
	return out
}
