package emulator

import (
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// recordPacker puts the mutations of a record into messages of about limit
// bytes. Only a cell value is cut; its parts follow one another.
type recordPacker struct {
	limit int
	send  func(*bigtablepb.ReadChangeStreamResponse_DataChange) error

	next *bigtablepb.ReadChangeStreamResponse_DataChange
	used int
}

type (
	mutationChunk = bigtablepb.ReadChangeStreamResponse_MutationChunk
	chunkInfo     = bigtablepb.ReadChangeStreamResponse_MutationChunk_ChunkInfo
)

// record sends a change.
func (p *recordPacker) record(c *change, muts []*bigtablepb.Mutation) error {
	p.next = &bigtablepb.ReadChangeStreamResponse_DataChange{
		Type: bigtablepb.ReadChangeStreamResponse_DataChange_USER, SourceClusterId: c.cluster,
		RowKey: []byte(c.key), CommitTimestamp: microsProto(c.commit), Tiebreaker: c.tie,
		Chunks: make([]*mutationChunk, 0, len(muts)),
	}
	if c.kind == changeGC {
		p.next.Type = bigtablepb.ReadChangeStreamResponse_DataChange_GARBAGE_COLLECTION
	}
	for _, m := range muts {
		if err := p.mutation(m); err != nil {
			return err
		}
	}
	p.next.Done = true
	return p.send(p.next)
}

func (p *recordPacker) mutation(m *bigtablepb.Mutation) error {
	if set := m.GetSetCell(); set != nil && len(set.Value) > p.limit {
		return p.cut(m, set)
	}
	size := proto.Size(m)
	if p.used > 0 && p.used+size > p.limit {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.next.Chunks = append(p.next.Chunks, &mutationChunk{Mutation: m})
	p.used += size
	return nil
}

// cut sends a cell in parts. The first has all of the cell but the rest of its
// value; each of the others has a piece of that and nothing else.
func (p *recordPacker) cut(m *bigtablepb.Mutation, set *bigtablepb.Mutation_SetCell) error {
	value := set.Value
	for offset := 0; offset < len(value); {
		if p.used >= p.limit {
			if err := p.flush(); err != nil {
				return err
			}
		}
		n := min(p.limit-p.used, len(value)-offset)
		part := &bigtablepb.Mutation_SetCell{Value: value[offset : offset+n]}
		if offset == 0 {
			part.FamilyName, part.ColumnQualifier, part.TimestampMicros = set.FamilyName, set.ColumnQualifier, set.TimestampMicros
		}
		info := &chunkInfo{ChunkedValueSize: int32(len(value)), ChunkedValueOffset: int32(offset), LastChunk: offset+n == len(value)}
		p.next.Chunks = append(p.next.Chunks, &mutationChunk{ChunkInfo: info, Mutation: &bigtablepb.Mutation{
			Mutation: &bigtablepb.Mutation_SetCell_{SetCell: part}, TimestampOrigin: m.TimestampOrigin,
		}})
		p.used += n
		if offset += n; offset < len(value) {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *recordPacker) flush() error {
	m := p.next
	p.next = &bigtablepb.ReadChangeStreamResponse_DataChange{Type: bigtablepb.ReadChangeStreamResponse_DataChange_CONTINUATION}
	p.used = 0
	return p.send(m)
}

// streamSender sends the messages of one stream, as far as its fault and the
// settings of the table let it.
type streamSender struct {
	e        *Emulator
	stream   bigtablepb.Bigtable_ReadChangeStreamServer
	fault    *Fault
	patience time.Duration
	sent     int
}

// send sends a message. An error ends the stream.
func (s *streamSender) send(m *bigtablepb.ReadChangeStreamResponse) error {
	if err := s.sendInTime(m); err != nil {
		return err
	}
	s.sent++
	if s.fault != nil && s.fault.Cut && s.sent >= s.fault.CutAfter {
		return s.fault.cut(s.stream.Context())
	}
	return nil
}

// sendInTime ends the stream if its client does not read for too long. The
// text was seen on ReadRows (google-cloud-java#6205).
func (s *streamSender) sendInTime(m *bigtablepb.ReadChangeStreamResponse) error {
	if s.patience == 0 {
		return s.stream.Send(m)
	}
	sent := make(chan error, 1)
	// It ends with the stream, if not before.
	s.e.spawn(func() { sent <- s.stream.Send(m) })
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	ctx := s.stream.Context()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		return status.Error(codes.Aborted, "Response was not consumed in time; terminating connection")
	}
}
