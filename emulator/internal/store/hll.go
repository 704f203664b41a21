package store

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
)

// A sketch counts distinct inputs. Up to hllExact of them it is a sorted list
// of 64-bit hashes, and the count is exact but for hash collisions; above that
// it is 2^12 HyperLogLog registers, with a standard error of 1.6 %. It is not
// the service's encoding, which is not published.
const (
	hllPrecision = 12
	hllRegisters = 1 << hllPrecision
	hllExact     = 512
	hllList      = 0x01 // first byte: a list of hashes follows
	hllDense     = 0x02 // first byte: the registers follow
)

var errNotASketch = errors.New("the accumulator is not a sketch of this emulator")

func hllHash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b) // never fails
	x := h.Sum64()
	// FNV's high bits are weak: finish as splitmix64 does.
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func hllOf(input []byte) []byte {
	return binary.BigEndian.AppendUint64([]byte{hllList}, hllHash(input))
}

func hllCheck(s []byte) error {
	switch {
	case len(s) > 0 && s[0] == hllList && (len(s)-1)%8 == 0 && (len(s)-1)/8 <= hllExact:
		return nil
	case len(s) == 1+hllRegisters && s[0] == hllDense:
		return nil
	}
	return errNotASketch
}

func hllMerge(x, y []byte) []byte {
	if x[0] == hllList && y[0] == hllList {
		hashes := append(hllHashes(x), hllHashes(y)...)
		slices.Sort(hashes)
		hashes = slices.Compact(hashes)
		if len(hashes) <= hllExact {
			out := make([]byte, 1, 1+8*len(hashes))
			out[0] = hllList
			for _, h := range hashes {
				out = binary.BigEndian.AppendUint64(out, h)
			}
			return out
		}
	}
	out := make([]byte, 1+hllRegisters)
	out[0] = hllDense
	hllFill(out[1:], x)
	hllFill(out[1:], y)
	return out
}

func hllHashes(s []byte) []uint64 {
	hashes := make([]uint64, 0, (len(s)-1)/8)
	for b := s[1:]; len(b) > 0; b = b[8:] {
		hashes = append(hashes, binary.BigEndian.Uint64(b))
	}
	return hashes
}

func hllFill(registers, s []byte) {
	if s[0] == hllDense {
		for i, v := range s[1:] {
			registers[i] = max(registers[i], v)
		}
		return
	}
	for _, h := range hllHashes(s) {
		i := h >> (64 - hllPrecision)
		rank := byte(bits.LeadingZeros64(h<<hllPrecision|1<<(hllPrecision-1)) + 1)
		registers[i] = max(registers[i], rank)
	}
}

// HLLCount estimates how many distinct inputs a sketch has seen.
func HLLCount(s []byte) (uint64, error) {
	if err := hllCheck(s); err != nil {
		return 0, err
	}
	if s[0] == hllList {
		return uint64(len(s)-1) / 8, nil
	}
	sum, zeros := 0.0, 0
	for _, v := range s[1:] {
		sum += math.Ldexp(1, -int(v))
		if v == 0 {
			zeros++
		}
	}
	const m = float64(hllRegisters)
	estimate := 0.7213 / (1 + 1.079/m) * m * m / sum
	if estimate <= 2.5*m && zeros > 0 {
		estimate = m * math.Log(m/float64(zeros))
	}
	return uint64(math.Round(estimate)), nil
}
