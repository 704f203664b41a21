package emulator

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// A journal record is a byte that says what it is, and fields: numbers as
// varints, bytes and messages behind their length.

func putUint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

func putInt(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

func putString[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func putProto(b []byte, m proto.Message) []byte {
	b = binary.AppendUvarint(b, uint64(proto.Size(m)))
	// The message came from the wire or was made here: it marshals.
	b, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	return b
}

// fields reads a record. The first error sticks.
type fields struct {
	b   []byte
	err error
}

var errShortRecord = errors.New("a journal record is incomplete")

func (f *fields) uint() uint64 {
	n, size := binary.Uvarint(f.b)
	return take(f, n, size)
}

func (f *fields) int() int64 {
	n, size := binary.Varint(f.b)
	return take(f, n, size)
}

func take[T int64 | uint64](f *fields, n T, size int) T {
	if size <= 0 {
		f.fail(errShortRecord)
		return 0
	}
	f.b = f.b[size:]
	return n
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
	f.b = nil
}

// bytes is the next field, which is part of the record: the caller copies
// what it keeps.
func (f *fields) bytes() []byte {
	n := f.uint()
	if n > uint64(len(f.b)) {
		f.fail(errShortRecord)
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

func (f *fields) string() string { return string(f.bytes()) }

// count is the number of fields that follow, each of one byte at least.
func (f *fields) count() int {
	n := f.uint()
	if n > uint64(len(f.b)) {
		f.fail(errShortRecord)
		return 0
	}
	return int(n)
}

func (f *fields) proto(m proto.Message) {
	if err := proto.Unmarshal(f.bytes(), m); err != nil && f.err == nil {
		f.fail(fmt.Errorf("a journal record holds a damaged message: %w", err))
	}
}
