package emulator

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/filter"
)

const (
	// valueChunk is the largest part of a cell value in one chunk. A row is never
	// cut over messages: the official Go client (v1.58) fails where a message
	// ends within a row.
	valueChunk = 1 << 20

	// messageBytes is about how large a message of many rows gets.
	messageBytes = 64 << 10
)

// chunker turns rows into ReadRows messages. The first row goes out alone and
// at once; later messages hold more and more.
type chunker struct {
	send       func(*bigtablepb.ReadRowsResponse) error
	perMessage bool // one row per message

	msg      *bigtablepb.ReadRowsResponse
	pool     []bigtablepb.ReadRowsResponse_CellChunk
	size     int
	target   int // bytes at which the message goes out
	families map[string]*wrapperspb.StringValue
	columns  map[string]*wrapperspb.BytesValue
}

// row adds a row's cells, of which there is at least one.
func (c *chunker) row(key string, cells []filter.Out) error {
	var chunk *bigtablepb.ReadRowsResponse_CellChunk
	for i := range cells {
		chunk = c.cell(key, cells, i)
	}
	chunk.RowStatus = commitRow
	if c.perMessage || c.size >= c.target {
		return c.flush()
	}
	return nil
}

var commitRow = &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}

// cell adds one cell, in several chunks if it is large, and returns the last.
// What repeats the chunk before is left out.
func (c *chunker) cell(key string, cells []filter.Out, i int) *bigtablepb.ReadRowsResponse_CellChunk {
	o := &cells[i]
	chunk := c.add()
	if i == 0 {
		chunk.RowKey = []byte(key)
	}
	newFamily := i == 0 || cells[i-1].Family != o.Family
	if newFamily {
		chunk.FamilyName = c.family(o.Family)
	}
	if newFamily || cells[i-1].Qualifier != o.Qualifier {
		chunk.Qualifier = c.qualifier(o.Qualifier)
	}
	chunk.TimestampMicros = o.Timestamp
	if o.Label != "" {
		chunk.Labels = []string{o.Label}
	}
	c.size += 32 + len(o.Qualifier)
	if o.Strip {
		return chunk
	}
	value := o.Value
	for len(value) > valueChunk {
		chunk.Value, chunk.ValueSize = value[:valueChunk], int32(len(o.Value))
		value = value[valueChunk:]
		c.size += valueChunk
		chunk = c.add()
	}
	chunk.Value = value
	c.size += len(value)
	return chunk
}

func (c *chunker) add() *bigtablepb.ReadRowsResponse_CellChunk {
	if len(c.pool) == 0 {
		c.pool = make([]bigtablepb.ReadRowsResponse_CellChunk, 128)
	}
	chunk := &c.pool[0]
	c.pool = c.pool[1:]
	if c.msg == nil {
		c.msg = &bigtablepb.ReadRowsResponse{}
	}
	c.msg.Chunks = append(c.msg.Chunks, chunk)
	return chunk
}

// flush sends what there is.
func (c *chunker) flush() error {
	if c.msg == nil {
		return nil
	}
	msg := c.msg
	c.msg, c.size = nil, 0
	c.target = min(max(2*c.target, 1<<10), messageBytes)
	return c.send(msg)
}

// scanned tells the client that all rows up to key have been read.
func (c *chunker) scanned(key string) error {
	if err := c.flush(); err != nil {
		return err
	}
	return c.send(&bigtablepb.ReadRowsResponse{LastScannedRowKey: []byte(key)})
}

// family and qualifier share the wrappers of names that recur in a scan.
func (c *chunker) family(name string) *wrapperspb.StringValue {
	w := c.families[name]
	if w == nil {
		w = wrapperspb.String(name)
		if c.families == nil {
			c.families = map[string]*wrapperspb.StringValue{}
		}
		c.families[name] = w
	}
	return w
}

func (c *chunker) qualifier(name string) *wrapperspb.BytesValue {
	w := c.columns[name]
	if w == nil {
		w = wrapperspb.Bytes([]byte(name))
		if c.columns == nil {
			c.columns = map[string]*wrapperspb.BytesValue{}
		}
		if len(c.columns) < 1024 {
			c.columns[name] = w
		}
	}
	return w
}
