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
	var room [1024]byte
	b := room[:0]
	content := r.content
	switch {
	case r.Oversize:
	case r.Bytes+entryBytes*int64(len(r.Entries)) <= gathered:
		for i := range r.Entries {
			e := &r.Entries[i]
			b = append(appendEntry(b, e, int64(len(e.Value))), e.Value...)
		}
		content = sha256.Sum256(b)
	default:
		var d digest
		for i := range r.Entries {
			d.entry(&r.Entries[i], int64(len(r.Entries[i].Value)))
			d.value(r.Entries[i].Value)
		}
		content = d.sum()
	}
	b = appendText(b[:0], table)
	b = appendText(b, r.RowKey)
	b = appendNumber(b, r.CommitTime.Unix())
	b = appendNumber(b, int64(r.CommitTime.Nanosecond()))
	b = appendText(b, r.Cluster)
	b = appendNumber(b, int64(r.TieBreaker))
	b = appendNumber(b, int64(r.Type))
	sum := sha256.Sum256(append(b, content[:]...))
	var id [32]byte
	hex.Encode(id[:], sum[:16])
	return string(id[:])
}

// entryBytes is what is hashed of an entry beside its family, qualifier and value.
const entryBytes = 9 * 8

func appendNumber(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func appendText(b []byte, s string) []byte { return append(appendNumber(b, int64(len(s))), s...) }

// appendEntry appends an entry whose value, of that length, follows it.
func appendEntry(b []byte, e *Entry, length int64) []byte {
	isNumber := int64(0)
	if e.IsNumber {
		isNumber = 1
	}
	b = appendText(appendText(b, e.Family), e.Qualifier)
	for _, n := range [...]int64{int64(e.Kind), e.Timestamp, isNumber, e.Number, e.Start, e.End, length} {
		b = appendNumber(b, n)
	}
	return b
}

// digest hashes entries and their values, each with its length before it, so that no two
// sequences of them are one text. Small ones are gathered in a buffer. The zero value is ready.
type digest struct {
	h hash.Hash // nil while the buffer holds everything
	b []byte
}

// gathered is how many bytes are hashed at once.
const gathered = 4096

// entry adds an entry whose value, of that length, follows it.
func (d *digest) entry(e *Entry, length int64) {
	d.b = appendEntry(d.b, e, length)
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
