package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// size is the number of bytes of a complete value, 0 where it varies.
func (k Kind) size() int {
	switch k {
	case Bool, Int8:
		return 1
	case Int16:
		return 2
	case Int32, Float32, Date, Time:
		return 4
	case Int64, Float64, Timestamp:
		return 8
	}
	return 0
}

// Decode returns the value of a cell, as the type named beside the Kind, or nil
// for a null. An empty cell is a null except in string columns, where nullString
// is the null and an empty cell is "". A cell that is too short for its type is an
// error; bytes after a complete value of fixed width are ignored. A []byte result
// shares b.
func (e Encoding) Decode(b []byte, nullString string) (any, error) {
	if e.Kind == String {
		if string(b) == nullString {
			return nil, nil
		}
		if !utf8.Valid(b) {
			return nil, errors.New("the cell is not UTF-8 text, as string must be")
		}
		return string(b), nil
	}
	if len(b) == 0 {
		return nil, nil
	}
	if n := e.Kind.size(); len(b) < n {
		return nil, fmt.Errorf("the cell has %d bytes, and %s needs %d", len(b), e, n)
	}
	return e.decode(b)
}

func (e Encoding) decode(b []byte) (any, error) {
	switch e.Kind {
	case Bytes:
		return b, nil
	case Bool:
		return b[0] != 0, nil
	case Int8:
		return int64(int8(b[0])), nil
	case Int16:
		return int64(int16(binary.BigEndian.Uint16(b))), nil
	case Int32:
		return int64(int32(binary.BigEndian.Uint32(b))), nil
	case Int64:
		return int64(binary.BigEndian.Uint64(b)), nil
	case Float32:
		return widen(binary.BigEndian.Uint32(b)), nil
	case Float64:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case Decimal:
		return e.decodeDecimal(b)
	case Date:
		return time.Unix(int64(int32(binary.BigEndian.Uint32(b)))*daySecs, 0).UTC(), nil
	case Time:
		ms := int32(binary.BigEndian.Uint32(b))
		if d := time.Duration(ms) * time.Millisecond; d >= 0 && d < day {
			return d, nil
		}
		return nil, errors.New("the cell is no time of a day")
	case Timestamp:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC(), nil
	case JSON:
		return decodeJSON(b)
	}
	return nil, fmt.Errorf("no such encoding: %v", e.Kind)
}
