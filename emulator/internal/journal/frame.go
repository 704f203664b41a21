package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// magic begins every file, so that one of another kind or version is not
// taken for a torn one.
const magic = "btfemu1\n"

// A frame is a record on disk: its length, the CRC-32C of its bytes (both
// little endian, 4 bytes) and its bytes, of which there is at least one.
const frameHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the frame of the record that encode appends.
func appendFrame(b []byte, encode func([]byte) []byte) []byte {
	at := len(b)
	b = encode(append(b, make([]byte, frameHeader)...))
	record := b[at+frameHeader:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(record)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(record, castagnoli))
	return b
}

var (
	errTorn    = errors.New("the file ends within a record")
	errDamaged = errors.New("a record is damaged")
)

// reader reads the frames of a file.
type reader struct {
	r    *bufio.Reader
	size int64 // of the file
	good int64 // bytes of magic and whole, undamaged frames read
	buf  []byte
}

// begin reads the magic. A file that is shorter is torn.
func (r *reader) begin() error {
	b := make([]byte, len(magic))
	n, err := io.ReadFull(r.r, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	if string(b[:n]) != magic[:n] {
		return errors.New("not a file of this emulator, or of another version")
	}
	if n < len(magic) {
		return errTorn
	}
	r.good = int64(n)
	return nil
}

// next is the next record, valid until the following call, or io.EOF, errTorn
// for a frame that runs past the end of the file, or errDamaged.
func (r *reader) next() ([]byte, error) {
	var header [frameHeader]byte
	if r.good == r.size {
		return nil, io.EOF
	}
	if r.size-r.good < frameHeader {
		return nil, errTorn
	}
	if _, err := io.ReadFull(r.r, header[:]); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(header[:]))
	if n == 0 {
		return nil, r.damage(n)
	}
	if r.size-r.good-frameHeader < n {
		return nil, errTorn
	}
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	record := r.buf[:n]
	if _, err := io.ReadFull(r.r, record); err != nil {
		return nil, err
	}
	if crc32.Checksum(record, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		if r.good+frameHeader+n == r.size {
			return nil, errTorn // the last frame: its bytes had not all been written
		}
		return nil, r.damage(n)
	}
	r.good += frameHeader + n
	return record, nil
}

// damage tells a hole at the end of a file, which a loss of power leaves where
// blocks were allocated and not written, from damage to what was written.
func (r *reader) damage(length int64) error {
	if length != 0 {
		return fmt.Errorf("%w at byte %d", errDamaged, r.good)
	}
	for {
		b, err := r.r.ReadByte()
		if err == io.EOF {
			return errTorn
		}
		if err != nil {
			return err
		}
		if b != 0 {
			return fmt.Errorf("%w at byte %d", errDamaged, r.good)
		}
	}
}
