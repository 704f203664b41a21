package changestream

import (
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ErrProtocol is in the chain of every error about a response that the protocol does not
// allow. Nothing that stands after it in its stream may be used, and no position moves.
var ErrProtocol = errors.New("a response that the change-stream protocol does not allow")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Assembler puts the responses of one stream together. After an error it returns that
// error for every further response. It is for one goroutine.
//
// Its rules are those of the official Java client (docs/protocol.md, change streams).
type Assembler struct {
	limit   int64
	record  *Record // under way; nil between records
	partial []byte  // of a chunked cell
	cell    chunkedCell
	content digest // of an oversize record's entries
	err     error
	entry   entryReader
}

// chunkedCell is a cell whose value comes in chunks.
type chunkedCell struct {
	open bool
	size int64 // announced
	got  int64 // received
}

// NewAssembler returns an Assembler whose records have at most limit bytes of row key,
// families, qualifiers and values; a larger one comes as Oversize. 0 means no limit.
func NewAssembler(limit int64) *Assembler { return &Assembler{limit: limit} }

// Item is what a response completes: exactly one of its fields is set, or none where a
// record is still under way.
type Item struct {
	Record    *Record
	Heartbeat *Heartbeat
	Close     *bigtablepb.ReadChangeStreamResponse_CloseStream
}

// Heartbeat is a position without a change.
type Heartbeat struct {
	Position
	Token Token // with the range that the service says it is for
}

// Add takes the next response of the stream.
func (a *Assembler) Add(resp *bigtablepb.ReadChangeStreamResponse) (Item, error) {
	if a.err != nil {
		return Item{}, a.err
	}
	item, err := a.add(resp)
	if err != nil {
		a.err, a.record, a.partial = err, nil, nil
		return Item{}, err
	}
	return item, nil
}

func (a *Assembler) add(resp *bigtablepb.ReadChangeStreamResponse) (Item, error) {
	switch r := resp.GetStreamRecord().(type) {
	case *bigtablepb.ReadChangeStreamResponse_DataChange_:
		record, err := a.dataChange(r.DataChange)
		return Item{Record: record}, err
	case *bigtablepb.ReadChangeStreamResponse_Heartbeat_:
		if a.record != nil {
			return Item{}, protocolError("a heartbeat within a record")
		}
		beat, err := heartbeat(r.Heartbeat)
		return Item{Heartbeat: beat}, err
	case *bigtablepb.ReadChangeStreamResponse_CloseStream_:
		if a.record != nil {
			return Item{}, protocolError("a close within a record")
		}
		return Item{Close: r.CloseStream}, nil
	}
	return Item{}, protocolError("a response of no known kind")
}

func heartbeat(h *bigtablepb.ReadChangeStreamResponse_Heartbeat) (*Heartbeat, error) {
	t, err := ReadToken(h.GetContinuationToken())
	if err != nil {
		return nil, fmt.Errorf("reading a heartbeat: %w", err)
	}
	watermark, err := timeOf(h.GetEstimatedLowWatermark(), "a heartbeat's low watermark")
	if err != nil {
		return nil, err
	}
	return &Heartbeat{Position: Position{Token: t.Value, LowWatermark: watermark}, Token: t}, nil
}

// timeOf returns a time that must be there and be one that a timestamp can have.
func timeOf(t *timestamppb.Timestamp, name string) (time.Time, error) {
	if t == nil {
		return time.Time{}, protocolError("%s is missing", name)
	}
	if !t.IsValid() {
		return time.Time{}, protocolError("%s is no time", name)
	}
	return t.AsTime(), nil
}

// dataChange takes one part of a record, and returns the record with its last one.
func (a *Assembler) dataChange(dc *bigtablepb.ReadChangeStreamResponse_DataChange) (*Record, error) {
	if a.record == nil {
		if err := a.begin(dc); err != nil {
			return nil, err
		}
	}
	for i, chunk := range dc.GetChunks() {
		more, err := a.chunk(chunk, i, len(dc.Chunks))
		if err != nil {
			return nil, err
		}
		if more { // the rest of the cell comes with the next response, whatever this one says
			return nil, nil
		}
	}
	if !dc.GetDone() {
		return nil, nil
	}
	return a.finish(dc)
}

func (a *Assembler) begin(dc *bigtablepb.ReadChangeStreamResponse_DataChange) error {
	if len(dc.GetRowKey()) == 0 {
		return protocolError("a record without a row key")
	}
	if len(dc.GetChunks()) == 0 {
		return protocolError("a record that begins without a mutation")
	}
	commit, err := timeOf(dc.GetCommitTimestamp(), "a record's commit time")
	if err != nil {
		return err
	}
	made := &struct { // most changes have one entry
		Record
		entry [1]Entry
	}{}
	r := &made.Record
	*r = Record{RowKey: string(dc.RowKey), Cluster: dc.GetSourceClusterId(), CommitTime: commit, TieBreaker: dc.GetTiebreaker(),
		Entries: made.entry[:0]}
	switch t := dc.GetType(); t {
	case bigtablepb.ReadChangeStreamResponse_DataChange_USER:
		if r.Type = User; r.Cluster == "" {
			return protocolError("a user's change without a source cluster")
		}
	case bigtablepb.ReadChangeStreamResponse_DataChange_GARBAGE_COLLECTION:
		if r.Type = GarbageCollection; r.Cluster != "" {
			return protocolError("a change by garbage collection with a source cluster")
		}
	default:
		return protocolError("a record that begins with type %s", t)
	}
	r.Bytes = int64(len(r.RowKey))
	a.record = r
	return nil
}

// chunk takes one mutation or a part of one; more says that the cell's next part comes
// with the next response.
func (a *Assembler) chunk(c *bigtablepb.ReadChangeStreamResponse_MutationChunk, i, n int) (more bool, err error) {
	info := c.GetChunkInfo()
	set := c.GetMutation().GetSetCell()
	switch {
	case info == nil && a.cell.open:
		return false, protocolError("a mutation within a cell that comes in chunks")
	case info == nil:
		e, err := a.entry.read(c.GetMutation())
		if err != nil {
			return false, err
		}
		a.append(e, int64(len(e.Value)))
		a.value(e.Value)
		return false, nil
	case set == nil:
		return false, protocolError("a chunk of something that is no cell")
	}
	if err := a.part(info, set, i); err != nil {
		return false, err
	}
	if !info.GetLastChunk() {
		if i != n-1 {
			return false, protocolError("a chunked cell that stops within a response")
		}
		return true, nil
	}
	if a.cell.got != a.cell.size {
		return false, protocolError("a cell of %d bytes came with %d", a.cell.size, a.cell.got)
	}
	a.value(a.partial)
	a.cell, a.partial = chunkedCell{}, nil
	return false, nil
}

// part takes a part of a chunked cell's value.
func (a *Assembler) part(info *bigtablepb.ReadChangeStreamResponse_MutationChunk_ChunkInfo, set *bigtablepb.Mutation_SetCell, i int) error {
	size := int64(info.GetChunkedValueSize())
	if info.GetChunkedValueOffset() == 0 {
		switch {
		case a.cell.open:
			return protocolError("a chunked cell that begins within another")
		case size <= 0:
			return protocolError("a chunked cell of %d bytes", size)
		}
		e, err := a.entry.setCell(set)
		if err != nil {
			return err
		}
		e.Value = nil
		a.cell = chunkedCell{open: true, size: size}
		a.append(e, size)
	} else {
		switch {
		case !a.cell.open:
			return protocolError("the middle of a cell that has not begun")
		case i != 0:
			return protocolError("the middle of a cell that does not begin its response")
		case size != a.cell.size:
			return protocolError("a cell of %d bytes that became one of %d", a.cell.size, size)
		}
	}
	a.cell.got += int64(len(set.GetValue()))
	if a.cell.got > a.cell.size {
		return protocolError("a cell of %d bytes came with %d or more", a.cell.size, a.cell.got)
	}
	a.partial = append(a.partial, set.GetValue()...)
	a.record.Bytes += int64(len(set.GetValue()))
	a.bound(true)
	return nil
}

// append adds an entry whose value, of that length, follows it.
func (a *Assembler) append(e Entry, length int64) {
	a.record.Bytes += int64(len(e.Family) + len(e.Qualifier) + len(e.Value))
	if a.bound(false); a.record.Oversize {
		a.content.entry(&e, length)
		return
	}
	a.record.Entries = append(a.record.Entries, e)
}

// value gives the last entry its whole value. If the record is oversize, v is the part of
// the value that has not been hashed yet.
func (a *Assembler) value(v []byte) {
	if a.record.Oversize {
		a.content.value(v)
		return
	}
	a.record.Entries[len(a.record.Entries)-1].Value = v
}

// bound lets go of what the record holds once that is more than the limit, and of every
// part of a cell that comes after it. Their hash is kept. inCell says that the last entry
// is the cell of which parts come.
func (a *Assembler) bound(inCell bool) {
	r := a.record
	if a.limit == 0 || r.Bytes <= a.limit {
		return
	}
	if !r.Oversize {
		for i := range r.Entries {
			e, length := &r.Entries[i], int64(len(r.Entries[i].Value))
			if inCell && i == len(r.Entries)-1 {
				length = a.cell.size
			}
			a.content.entry(e, length)
			a.content.value(e.Value)
		}
		clear(r.Entries) // one of them may lie in the record
		r.Oversize, r.Entries = true, nil
	}
	a.content.value(a.partial)
	a.partial = nil
}

func (a *Assembler) finish(dc *bigtablepb.ReadChangeStreamResponse_DataChange) (*Record, error) {
	if dc.GetToken() == "" {
		return nil, protocolError("a complete record without a token")
	}
	watermark, err := timeOf(dc.GetEstimatedLowWatermark(), "a complete record's low watermark")
	if err != nil {
		return nil, err
	}
	r := a.record
	r.Position = Position{Token: dc.GetToken(), LowWatermark: watermark}
	if r.Oversize {
		r.content = a.content.sum()
	}
	a.record, a.content = nil, digest{}
	return r, nil
}
