// Package record guarantees that what a message holds is cut into records without
// loss: each is decoded exactly (no number rounded, no text replaced, no duplicate
// key resolved), or carries the error that says where it is wrong. A broken record
// never hides its neighbours. Errors name offsets, never content.
package record

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

// Record is one record of a message. Value is nil, bool, int64, uint64, float64,
// string, []any or map[string]any; the data of a CloudEvent may also be []byte.
type Record struct {
	Value any
	Raw   []byte // as received; shares memory with the message
	Entry *Entry // format mutation: the entry to apply, and no Value
	Err   error  // why it cannot be decoded; Value and Entry are nil then

	letter     *deadletter.Letter // format mutation: what the message is
	attributes map[string]string  // of a CloudEvent in binary mode, which Raw lacks
}

// Keep fills in the part of a dead letter from which alone the record can be read
// again: its kind and data, and for a record that is a dead letter already, all that
// this one says of its origin.
func (r *Record) Keep(l *deadletter.Letter) {
	switch {
	case r.letter != nil:
		l.Kind, l.Table, l.Mapping, l.Data = r.letter.Kind, r.letter.Table, r.letter.Mapping, r.letter.Data
		if r.letter.MessageID != "" {
			l.MessageID, l.PublishTime = r.letter.MessageID, r.letter.PublishTime
		}
	case r.attributes != nil:
		l.Kind, l.Data = deadletter.KindRecord, structured(r.attributes, r.Raw)
	default:
		l.Kind, l.Data = deadletter.KindRecord, r.Raw
	}
}

// Decode cuts a message into records.
type Decode func(data []byte, attributes map[string]string) []Record

// ByFormat returns the Decode of a format by its name in the pipeline file: json,
// ndjson, cloudevent or mutation. It is safe for concurrent use.
func ByFormat(format string) (Decode, error) {
	d := &Decoder{}
	switch format {
	case "json":
		return func(data []byte, _ map[string]string) []Record { return d.JSON(data) }, nil
	case "ndjson":
		return func(data []byte, _ map[string]string) []Record { return d.NDJSON(data) }, nil
	case "cloudevent":
		return d.CloudEvents, nil
	case "mutation":
		return Mutation, nil
	}
	return nil, fmt.Errorf("no such format: %s", format)
}

// Decoder cuts messages into records. The zero value is ready; it may be used by
// many goroutines at once.
type Decoder struct{ parsers sync.Pool }

const byteOrderMark = "\xef\xbb\xbf"

// JSON decodes data that holds one JSON value; a top-level array is a batch of
// records. What is wrong with the whole (bad syntax, anything after the value) makes
// one record with an error; what is wrong with one element of a batch stays with it.
func (d *Decoder) JSON(data []byte) []Record {
	p := d.parser()
	defer d.parsers.Put(p)
	body := bytes.TrimPrefix(data, []byte(byteOrderMark))
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		return p.batch(data, body)
	}
	v, err := p.parse(body)
	if err != nil {
		return []Record{{Raw: data, Err: err}}
	}
	return []Record{{Value: v, Raw: data}}
}

// NDJSON decodes data that holds one JSON value a line. A byte order mark, CRLF,
// blank lines and a missing last newline are fine.
func (d *Decoder) NDJSON(data []byte) []Record {
	p := d.parser()
	defer d.parsers.Put(p)
	rest := bytes.TrimPrefix(data, []byte(byteOrderMark))
	out := make([]Record, 0, bytes.Count(rest, []byte("\n"))+1)
	for number := 1; len(rest) > 0; number++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
			continue
		}
		v, err := p.parse(line)
		if err != nil {
			err = fmt.Errorf("line %d: %w", number, err)
		}
		out = append(out, Record{Value: v, Raw: line, Err: err})
	}
	return out
}

func (d *Decoder) parser() *parser {
	if p, ok := d.parsers.Get().(*parser); ok {
		return p
	}
	return newParser()
}

// batch decodes the elements of a top-level array one by one.
func (p *parser) batch(data, body []byte) []Record {
	outer := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	whole := func(err error) []Record { return []Record{{Raw: data, Err: err}} }
	if _, err := outer.ReadToken(); err != nil {
		return whole(syntaxError(err))
	}
	out := []Record{}
	for outer.PeekKind() != ']' {
		v, err := outer.ReadValue()
		if err != nil {
			return whole(syntaxError(err))
		}
		end := outer.InputOffset()
		raw := body[end-int64(len(v)) : end]
		value, err := p.parse(raw)
		if err != nil {
			err = fmt.Errorf("element %d: %w", len(out), err)
		}
		out = append(out, Record{Value: value, Raw: raw, Err: err})
	}
	if _, err := outer.ReadToken(); err != nil {
		return whole(syntaxError(err))
	}
	if err := nothingAfter(body, outer.InputOffset()); err != nil {
		return whole(err)
	}
	return out
}
