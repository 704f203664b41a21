package changestream

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// ID returns the id of the record in a table, given by its full name: 32 hex digits, the
// same whenever, wherever and in whatever chunks the record is read, different for
// records that differ. Two changes of one row may have one commit time and one tie
// breaker, so the entries are part of it.
func (r *Record) ID(table string) string {
	content := r.content
	d := digest{b: make([]byte, 0, min(r.Bytes+idBytes, gathered))}
	if !r.Oversize {
		for i := range r.Entries {
			d.entry(&r.Entries[i], int64(len(r.Entries[i].Value)))
			d.value(r.Entries[i].Value)
		}
		content = d.sum()
		d = digest{b: d.b[:0]}
	}
	d.text(table)
	d.text(r.RowKey)
	d.number(r.CommitTime.Unix())
	d.number(int64(r.CommitTime.Nanosecond()))
	d.text(r.Cluster)
	d.number(int64(r.TieBreaker))
	d.number(int64(r.Type))
	d.value(content[:])
	sum := d.sum()
	return hex.EncodeToString(sum[:16])
}

// idBytes is about what is hashed of a small record beside what Bytes counts.
const idBytes = 400

// digest hashes parts of known length, so that no two sequences of parts are one text.
// Small parts are gathered in a buffer. The zero value is ready.
type digest struct {
	h hash.Hash // nil while the buffer holds everything
	b []byte
}

// gathered is how many bytes are hashed at once.
const gathered = 4096

func (d *digest) number(n int64) { d.b = binary.BigEndian.AppendUint64(d.b, uint64(n)) }

func (d *digest) text(s string) {
	d.number(int64(len(s)))
	d.b = append(d.b, s...)
}

// entry adds an entry whose value, of that length, follows it.
func (d *digest) entry(e *Entry, length int64) {
	isNumber := int64(0)
	if e.IsNumber {
		isNumber = 1
	}
	d.text(e.Family)
	d.text(e.Qualifier)
	for _, n := range [...]int64{int64(e.Kind), e.Timestamp, isNumber, e.Number, e.Start, e.End, length} {
		d.number(n)
	}
	if len(d.b) > gathered {
		d.flush()
	}
}

// value adds bytes whose length is known from what stands before them.
func (d *digest) value(v []byte) {
	if len(d.b)+len(v) <= gathered {
		d.b = append(d.b, v...)
		return
	}
	d.flush()
	d.h.Write(v)
}

func (d *digest) flush() {
	if d.h == nil {
		d.h = sha256.New()
	}
	d.h.Write(d.b)
	d.b = d.b[:0]
}

func (d *digest) sum() (out [sha256.Size]byte) {
	if d.h == nil {
		return sha256.Sum256(d.b)
	}
	d.flush()
	d.h.Sum(out[:0])
	return out
}
