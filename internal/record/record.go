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
)

// Record is one record of a message. Value is nil, bool, int64, uint64, float64,
// string, []any or map[string]any.
type Record struct {
	Value any
	Raw   []byte // as received; shares memory with the message
	Err   error  // why it cannot be decoded; Value is nil then
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
