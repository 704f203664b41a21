package emulator

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/fnv"
	"slices"
)

// place is the progress of a reader of a partition: it has been served all of
// the partition's changes below a position, and those of some keys up to a later
// one.
type place struct {
	floor uint64
	ahead []aheadRange // in the order of keys, none below or at the floor
	at    int64        // microseconds: no change it has not been served has an earlier commit time
}

type aheadRange struct {
	keyRange
	position uint64
}

// served reports whether a change of a key was served already.
func (p *place) served(key string, position uint64) bool {
	if position < p.floor {
		return true
	}
	for i := range p.ahead {
		if p.ahead[i].contains(key) {
			return position < p.ahead[i].position
		}
	}
	return false
}

// advance notes that all changes below a position have been served.
func (p *place) advance(floor uint64, at int64) {
	p.floor, p.at = max(p.floor, floor), max(p.at, at)
	if len(p.ahead) > 0 {
		p.ahead = slices.DeleteFunc(p.ahead, func(a aheadRange) bool { return a.position <= p.floor })
	}
}

// in is the place of a reader of a part of the partition.
func (p *place) in(r keyRange) place {
	out := place{floor: p.floor, at: p.at}
	for _, a := range p.ahead {
		if both, empty := a.within(r); !empty {
			out.ahead = append(out.ahead, aheadRange{both, a.position})
		}
	}
	return out
}

// placed is a place of a reader of some keys.
type placed struct {
	keyRange
	place
}

// join is the place of a reader of the ranges together, which are in order
// and leave no gap.
func join(parts []placed) place {
	out := parts[0].place
	out.ahead = nil
	for _, p := range parts {
		out.floor, out.at = min(out.floor, p.floor), min(out.at, p.at)
	}
	for _, p := range parts {
		key := p.start
		for _, a := range p.ahead {
			out.stretch(keyRange{key, a.start}, p.floor, key < a.start)
			out.stretch(a.keyRange, a.position, true)
			key = a.end
		}
		last := len(p.ahead) > 0 && p.ahead[len(p.ahead)-1].end == p.end
		out.stretch(keyRange{key, p.end}, p.floor, !last)
	}
	return out
}

// stretch adds, at the end, a range that has been served up to a position. It
// adds nothing if the range has no keys, which some says, or is not ahead.
func (p *place) stretch(r keyRange, position uint64, some bool) {
	if !some || position <= p.floor {
		return
	}
	if n := len(p.ahead); n > 0 && p.ahead[n-1].position == position && p.ahead[n-1].end == r.start {
		p.ahead[n-1].end = r.end
		return
	}
	p.ahead = append(p.ahead, aheadRange{r, position})
}

// A token is opaque to clients: a version, what it is bound to (table, turning
// on of its stream, partition), a place, and a checksum, in base64.
const tokenVersion = 1

var tokenTable = crc32.MakeTable(crc32.Castagnoli)

// tokenBinding is the beginning of all tokens of a partition.
func tokenBinding(t *table, r keyRange) []byte {
	h := fnv.New64a()
	h.Write(putString(putString(nil, r.start), r.end)) // never fails
	b := putUint(putUint([]byte{tokenVersion}, t.id), t.log.generation)
	return h.Sum(b)
}

// encodeToken appends a place to the binding of its partition.
func encodeToken(binding []byte, p *place) string {
	b := append(make([]byte, 0, 64), binding...)
	b = putUint(putInt(putUint(b, p.floor), p.at), uint64(len(p.ahead)))
	for _, a := range p.ahead {
		b = putUint(putString(putString(b, a.start), a.end), a.position)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, tokenTable))
	return base64.RawURLEncoding.EncodeToString(b)
}

var (
	errNoToken      = errors.New("it is not a continuation token of this emulator")
	errForeignToken = errors.New("the token is of another partition, table or turning on of the change stream")
)

// decodeToken is the place of a token that has the binding.
func decodeToken(binding []byte, token string) (place, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 4 || b[0] != tokenVersion {
		return place{}, errNoToken
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, tokenTable) != sum {
		return place{}, errNoToken
	}
	if len(body) < len(binding) || string(body[:len(binding)]) != string(binding) {
		return place{}, errForeignToken
	}
	f := fields{b: body[len(binding):]}
	p := place{floor: f.uint(), at: f.int()}
	for range f.count() {
		p.ahead = append(p.ahead, aheadRange{keyRange{f.string(), f.string()}, f.uint()})
	}
	if f.err != nil || len(f.b) > 0 {
		return place{}, errNoToken
	}
	return p, nil
}

// compareStart orders by the first key.
func compareStart(a, b placed) int { return cmp.Compare(a.start, b.start) }
