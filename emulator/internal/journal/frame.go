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
// taken for a torn one. The version before had no checksum of a length.
const magic = "btfemu2\n"

// A frame is a record on disk: its length, the CRC-32C of the length, the CRC-32C
// of its bytes (all little endian, 4 bytes) and its bytes, of which there is at
// least one. A length that its checksum confirms is what was written, so that a
// damaged one is not taken for a record that the end of the file cuts off.
const frameHeader = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the frame of the record that encode appends.
func appendFrame(b []byte, encode func([]byte) []byte) []byte {
	at := len(b)
	b = encode(append(b, make([]byte, frameHeader)...))
	record := b[at+frameHeader:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(record)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(b[at:at+4], castagnoli))
	binary.LittleEndian.PutUint32(b[at+8:], crc32.Checksum(record, castagnoli))
	return b
}

var (
	errTorn    = errors.New("the file ends within a record")
	errDamaged = errors.New("a record is damaged")
)

// reader reads the frames of a file.
type reader struct {
	r    *bufio.Reader
	file io.ReaderAt // the same bytes
	size int64       // of the file
	good int64       // bytes of magic and whole, undamaged frames read
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
// for one that was being written when the process or the machine died, or
// errDamaged.
func (r *reader) next() ([]byte, error) {
	var header [frameHeader]byte
	rest := r.size - r.good
	if rest == 0 {
		return nil, io.EOF
	}
	if rest < frameHeader {
		return nil, errTorn
	}
	if _, err := io.ReadFull(r.r, header[:]); err != nil {
		return nil, err
	}
	n, whole := lengthIn(header[:])
	if !whole {
		return nil, r.hole()
	}
	if rest-frameHeader < n {
		return nil, r.torn()
	}
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	record := r.buf[:n]
	if _, err := io.ReadFull(r.r, record); err != nil {
		return nil, err
	}
	if crc32.Checksum(record, castagnoli) != binary.LittleEndian.Uint32(header[8:]) {
		if rest-frameHeader == n {
			return nil, r.torn() // the last frame: its bytes had not all been written
		}
		return nil, r.damaged()
	}
	r.good += frameHeader + n
	return record, nil
}

// lengthIn is the length of the record behind a header, if its checksum confirms it.
func lengthIn(header []byte) (n int64, whole bool) {
	n = int64(binary.LittleEndian.Uint32(header))
	return n, n > 0 && crc32.Checksum(header[:4], castagnoli) == binary.LittleEndian.Uint32(header[4:])
}

func (r *reader) damaged() error { return fmt.Errorf("%w at byte %d", errDamaged, r.good) }

// hole tells zeros up to the end of a file, which a loss of power leaves where
// blocks were allocated and not written, from damage to what was written.
func (r *reader) hole() error {
	rest := bufio.NewReaderSize(io.NewSectionReader(r.file, r.good, r.size-r.good), 1<<16)
	for {
		b, err := rest.ReadByte()
		if err == io.EOF {
			return errTorn
		}
		if err != nil {
			return err
		}
		if b != 0 {
			return r.damaged()
		}
	}
}

// torn tells a last record that is incomplete from one with others behind it.
func (r *reader) torn() error {
	at, size := r.good+1, r.size
	rest := bufio.NewReaderSize(io.NewSectionReader(r.file, at, size-at), 1<<16)
	for ; size-at > frameHeader; at++ {
		header, err := rest.Peek(frameHeader)
		if err != nil {
			return err
		}
		if n, whole := lengthIn(header); whole && size-at-frameHeader >= n {
			sum := crc32.New(castagnoli)
			if _, err := io.Copy(sum, io.NewSectionReader(r.file, at+frameHeader, n)); err != nil {
				return err
			}
			if sum.Sum32() == binary.LittleEndian.Uint32(header[8:]) {
				return r.damaged()
			}
		}
		if _, err := rest.Discard(1); err != nil {
			return err
		}
	}
	return errTorn
}
