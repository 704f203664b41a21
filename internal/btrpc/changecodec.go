package btrpc

import (
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// changesCodec is the protobuf codec of one stream, but for a ReadChangeStreamResponse that
// is a data change of whole SetCell mutations: the generated message takes some fifteen
// allocations for it. Here its bytes lie in one copy of the message, and its parts in a block
// that the next message overwrites. It is for one goroutine.
type changesCodec struct {
	encoding.CodecV2
	block changeBlock
}

func useChangesCodec() grpc.CallOption {
	return grpc.ForceCodecV2(&changesCodec{CodecV2: encoding.GetCodecV2(grpcproto.Name)})
}

// Unmarshal implements encoding.CodecV2.
func (c *changesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	res, ok := v.(*bigtablepb.ReadChangeStreamResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	proto.Reset(res)
	if err := c.block.read(data.Materialize()); err != nil {
		return c.CodecV2.Unmarshal(data, v) // what is unusual, or wrong, is the library's
	}
	res.StreamRecord = &c.block.wrapper
	return nil
}

// Field numbers of google.bigtable.v2.ReadChangeStreamResponse, its DataChange and
// MutationChunk, of Mutation, its SetCell, and of Timestamp.
const (
	fieldDataChange = 1

	fieldChangeType = 1
	fieldCluster    = 2
	fieldChangeKey  = 3
	fieldCommitTime = 4
	fieldTieBreaker = 5
	fieldMutations  = 6
	fieldDone       = 8
	fieldToken      = 9
	fieldWatermark  = 10

	fieldMutation = 2

	fieldSetCell = 1

	fieldCellFamily    = 1
	fieldCellQualifier = 2
	fieldCellTime      = 3
	fieldCellValue     = 4

	fieldSeconds = 1
	fieldNanos   = 2
)

// changeBlock is a data change with room for what it points to.
type changeBlock struct {
	wrapper           bigtablepb.ReadChangeStreamResponse_DataChange_
	change            bigtablepb.ReadChangeStreamResponse_DataChange
	commit, watermark timestamppb.Timestamp
	cells             []setCell
	family, cluster   string // the last ones: neighbours mostly share them
}

// setCell is a chunk of a data change with room for what it points to.
type setCell struct {
	chunk    bigtablepb.ReadChangeStreamResponse_MutationChunk
	mutation bigtablepb.Mutation
	wrapper  bigtablepb.Mutation_SetCell_
	set      bigtablepb.Mutation_SetCell
}

// keptCells is the most cells whose room is kept for the next message.
const keptCells = 64

// reset empties the block, and keeps its room and texts.
func (k *changeBlock) reset() {
	chunks := k.change.Chunks[:0]
	clear(k.cells)
	k.cells = k.cells[:0]
	if cap(k.cells) > keptCells {
		k.cells, chunks = nil, nil
	}
	k.change.Reset()
	k.commit.Reset()
	k.watermark.Reset()
	k.change.Chunks = chunks
}

// read fills the block from b, which it keeps: the byte slices of the change are parts of it,
// none with room behind it. After an error the block has no meaning.
func (k *changeBlock) read(b []byte) error {
	inner, err := only(b, fieldDataChange)
	if err != nil {
		return err
	}
	k.reset()
	err = fields(inner, func(num protowire.Number, typ protowire.Type, value []byte, varint uint64) error {
		switch {
		case typ == protowire.VarintType:
			return k.number(num, varint)
		case typ != protowire.BytesType:
			return errUnusual
		case num == fieldMutations:
			k.cells = append(k.cells, setCell{})
			return k.chunk(&k.cells[len(k.cells)-1], value)
		}
		return k.bytes(num, value)
	})
	if err != nil {
		return err
	}
	k.wrapper.DataChange = &k.change
	for i := range k.cells { // which do not move any more
		c := &k.cells[i]
		c.chunk.Mutation, c.mutation.Mutation, c.wrapper.SetCell = &c.mutation, &c.wrapper, &c.set
		k.change.Chunks = append(k.change.Chunks, &c.chunk)
	}
	return nil
}

// only returns the one field of a message, which must have the number given.
func only(b []byte, want protowire.Number) ([]byte, error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != want || typ != protowire.BytesType {
		return nil, errUnusual
	}
	inner, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || m != len(b)-n {
		return nil, errUnusual
	}
	return inner, nil
}

func (k *changeBlock) number(num protowire.Number, n uint64) error {
	switch num {
	case fieldChangeType:
		k.change.Type = bigtablepb.ReadChangeStreamResponse_DataChange_Type(int32(n))
	case fieldTieBreaker:
		k.change.Tiebreaker = int32(n)
	case fieldDone:
		k.change.Done = n != 0
	default:
		return errUnusual
	}
	return nil
}

func (k *changeBlock) bytes(num protowire.Number, value []byte) error {
	switch num {
	case fieldChangeKey:
		k.change.RowKey = whole(value)
	case fieldCluster:
		err := readAgain(value, &k.cluster)
		k.change.SourceClusterId = k.cluster
		return err
	case fieldToken:
		return readText(value, &k.change.Token)
	case fieldCommitTime:
		return readTimestamp(value, &k.commit, &k.change.CommitTimestamp)
	case fieldWatermark:
		return readTimestamp(value, &k.watermark, &k.change.EstimatedLowWatermark)
	default:
		return errUnusual
	}
	return nil
}

func readText(b []byte, into *string) error {
	if !utf8.Valid(b) {
		return errUnusual
	}
	*into = string(b)
	return nil
}

// readAgain reads a text that is mostly the one that into has already.
func readAgain(b []byte, into *string) error {
	if string(b) == *into {
		return nil
	}
	return readText(b, into)
}

// readTimestamp reads a timestamp that the message has once.
func readTimestamp(b []byte, t *timestamppb.Timestamp, into **timestamppb.Timestamp) error {
	if *into != nil {
		return errUnusual
	}
	*into = t
	return fields(b, func(num protowire.Number, typ protowire.Type, _ []byte, n uint64) error {
		switch {
		case num == fieldSeconds && typ == protowire.VarintType:
			t.Seconds = int64(n)
		case num == fieldNanos && typ == protowire.VarintType:
			t.Nanos = int32(n)
		default:
			return errUnusual
		}
		return nil
	})
}

func (k *changeBlock) chunk(c *setCell, b []byte) error {
	mutation, err := only(b, fieldMutation)
	if err != nil {
		return err
	}
	set, err := only(mutation, fieldSetCell)
	if err != nil {
		return err
	}
	return fields(set, func(num protowire.Number, typ protowire.Type, value []byte, n uint64) error {
		switch {
		case num == fieldCellTime && typ == protowire.VarintType:
			c.set.TimestampMicros = int64(n)
		case typ != protowire.BytesType:
			return errUnusual
		case num == fieldCellFamily:
			err := readAgain(value, &k.family)
			c.set.FamilyName = k.family
			return err
		case num == fieldCellQualifier:
			c.set.ColumnQualifier = whole(value)
		case num == fieldCellValue:
			c.set.Value = whole(value)
		default:
			return errUnusual
		}
		return nil
	})
}
