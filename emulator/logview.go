package emulator

import "sort"

// logView is the changes of a range's keys as they were when it was taken. It
// is read without a lock.
type logView struct {
	keyRange
	from, upTo uint64 // positions
	clusters   []string
	parts      [][]logChunk // for each part of the log, chunks without a gap
}

// view takes the changes of a range's keys, from one position up to another:
// all of them, or at most one chunk of each part.
func (t *table) view(r keyRange, from, upTo uint64, all bool) logView {
	v := logView{keyRange: r, from: from, upTo: upTo, clusters: t.log.clusters}
	t.partsIn(r, from, func(p *logPart) {
		j := sort.Search(len(p.chunks), func(j int) bool { return p.chunks[j].last >= from })
		n := len(p.chunks) - j
		if n == 0 {
			return
		}
		if !all && n > 1 {
			n = 1
			v.upTo = min(v.upTo, p.chunks[j].last+1)
		}
		chunks := make([]logChunk, n)
		for k := range chunks {
			chunks[k] = *p.chunks[j+k]
		}
		v.parts = append(v.parts, chunks)
	})
	return v
}

// each visits the view's changes in the order of their positions, until
// visit returns false. Their mutations are encoded, and not to be changed.
func (v *logView) each(visit func(c *change) bool) {
	readers := make([]*partReader, 0, len(v.parts))
	for _, chunks := range v.parts {
		r := &partReader{rest: chunks}
		if r.seek(v.from) {
			readers = append(readers, r)
		}
	}
	for len(readers) > 0 {
		first := 0
		for i, r := range readers {
			if r.position < readers[first].position {
				first = i
			}
		}
		r := readers[first]
		if r.position >= v.upTo {
			return
		}
		c := v.decode(&r.chunkReader)
		if v.contains(c.key) && !visit(&c) {
			return
		}
		if !r.advance() {
			readers = append(readers[:first], readers[first+1:]...)
		}
	}
}

func (v *logView) decode(r *chunkReader) change {
	f := fields{b: r.body}
	c := change{position: r.position, commit: r.commit, kind: changeKind(f.b[0])}
	f.b = f.b[1:]
	c.tie = int32(f.uint())
	c.cluster = v.clusters[f.uint()]
	c.key = f.string()
	c.encoded = f.b
	return c
}

// chunkReader reads the changes of a chunk, without their content.
type chunkReader struct {
	chunk    logChunk
	offset   int
	position uint64
	commit   int64
	body     []byte
}

func (r *chunkReader) next() bool {
	if r.offset == len(r.chunk.buf) {
		return false
	}
	f := fields{b: r.chunk.buf[r.offset:]}
	r.position = r.chunk.first + f.uint()
	r.commit = r.chunk.oldest + f.int()
	r.body = f.bytes()
	r.offset = len(r.chunk.buf) - len(f.b)
	return true
}

// partReader reads chunks one after the other.
type partReader struct {
	chunkReader
	rest []logChunk
}

func (r *partReader) advance() bool {
	for !r.next() {
		if len(r.rest) == 0 {
			return false
		}
		r.chunkReader = chunkReader{chunk: r.rest[0]}
		r.rest = r.rest[1:]
	}
	return true
}

// seek advances to the first change from a position on.
func (r *partReader) seek(from uint64) bool {
	for r.advance() {
		if r.position >= from {
			return true
		}
	}
	return false
}
