package btrpc

import (
	"errors"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// rowsCodec is the protobuf codec, but for ReadRowsResponse: the generated message
// takes six allocations for a cell, which is a third of what reading costs. Here the
// chunks of a message lie side by side, and their bytes in one copy of the message.
type rowsCodec struct{ encoding.CodecV2 }

var useRowsCodec = grpc.ForceCodecV2(rowsCodec{encoding.GetCodecV2(grpcproto.Name)})

// Unmarshal implements encoding.CodecV2.
func (c rowsCodec) Unmarshal(data mem.BufferSlice, v any) error {
	res, ok := v.(*bigtablepb.ReadRowsResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	proto.Reset(res)
	if err := readRows(data.Materialize(), res); err != nil {
		return c.CodecV2.Unmarshal(data, v) // what is unusual, or wrong, is the library's
	}
	return nil
}

// Field numbers of google.bigtable.v2.ReadRowsResponse, its CellChunk and the wrappers.
const (
	fieldChunks      = 1
	fieldLastScanned = 2

	fieldRowKey    = 1
	fieldFamily    = 2
	fieldQualifier = 3
	fieldTimestamp = 4
	fieldLabels    = 5
	fieldValue     = 6
	fieldValueSize = 7
	fieldResetRow  = 8
	fieldCommitRow = 9

	fieldWrapped = 1
)

// errUnusual: not what the service sends for rows.
var errUnusual = errors.New("unusual ReadRowsResponse")

// readRows fills res, which is empty, from b, which it keeps: the byte slices of res
// are parts of it, none with room behind it.
func readRows(b []byte, res *bigtablepb.ReadRowsResponse) error {
	n := 0
	err := fields(b, func(num protowire.Number, typ protowire.Type, value []byte, _ uint64) error {
		switch {
		case num == fieldChunks && typ == protowire.BytesType:
			n++
		case num == fieldLastScanned && typ == protowire.BytesType:
			res.LastScannedRowKey = whole(value)
		default:
			return errUnusual
		}
		return nil
	})
	if err != nil || n == 0 {
		return err
	}
	r := &chunkReader{chunks: make([]chunk, n)}
	res.Chunks = make([]*bigtablepb.ReadRowsResponse_CellChunk, n)
	n = 0
	return fields(b, func(num protowire.Number, _ protowire.Type, value []byte, _ uint64) error {
		if num != fieldChunks {
			return nil
		}
		c := &r.chunks[n]
		res.Chunks[n] = &c.cell
		n++
		return r.read(c, value)
	})
}

// chunk is a CellChunk with room for what it points to.
type chunk struct {
	cell      bigtablepb.ReadRowsResponse_CellChunk
	family    wrapperspb.StringValue
	qualifier wrapperspb.BytesValue
}

// chunkReader reads the chunks of a message.
type chunkReader struct {
	chunks []chunk
	family string                                           // the last one: neighbours mostly share it
	commit *bigtablepb.ReadRowsResponse_CellChunk_CommitRow // shared, too
}

func (r *chunkReader) read(c *chunk, b []byte) error {
	return fields(b, func(num protowire.Number, typ protowire.Type, value []byte, n uint64) error {
		if typ == protowire.VarintType {
			return r.number(&c.cell, num, n)
		}
		if typ != protowire.BytesType {
			return errUnusual
		}
		switch num {
		case fieldRowKey:
			c.cell.RowKey = whole(value)
		case fieldValue:
			c.cell.Value = whole(value)
		case fieldFamily:
			return r.readFamily(c, value)
		case fieldQualifier:
			inner, err := unwrap(value)
			if err != nil || c.cell.Qualifier != nil {
				return errUnusual
			}
			c.qualifier.Value, c.cell.Qualifier = whole(inner), &c.qualifier
		case fieldLabels:
			if !utf8.Valid(value) {
				return errUnusual
			}
			c.cell.Labels = append(c.cell.Labels, string(value))
		default:
			return errUnusual
		}
		return nil
	})
}

func (r *chunkReader) number(c *bigtablepb.ReadRowsResponse_CellChunk, num protowire.Number, n uint64) error {
	switch {
	case num == fieldTimestamp:
		c.TimestampMicros = int64(n)
	case num == fieldValueSize:
		c.ValueSize = int32(n)
	case num == fieldCommitRow && n == 1:
		if r.commit == nil {
			r.commit = &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}
		}
		c.RowStatus = r.commit
	case num == fieldResetRow && n == 1:
		c.RowStatus = &bigtablepb.ReadRowsResponse_CellChunk_ResetRow{ResetRow: true}
	default:
		return errUnusual
	}
	return nil
}

func (r *chunkReader) readFamily(c *chunk, b []byte) error {
	inner, err := unwrap(b)
	if err != nil || c.cell.FamilyName != nil {
		return errUnusual
	}
	if string(inner) != r.family {
		if !utf8.Valid(inner) {
			return errUnusual
		}
		r.family = string(inner)
	}
	c.family.Value, c.cell.FamilyName = r.family, &c.family
	return nil
}

// unwrap reads a StringValue or a BytesValue.
func unwrap(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	num, typ, n := protowire.ConsumeTag(b)
	if num != fieldWrapped || typ != protowire.BytesType {
		return nil, errUnusual
	}
	inner, m := protowire.ConsumeBytes(b[n:])
	if m != len(b)-n {
		return nil, errUnusual
	}
	return inner, nil
}

// whole returns b such that an append cannot write behind it; nil, as the library
// does, where it is empty.
func whole(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b):len(b)]
}
