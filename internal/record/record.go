// Package record guarantees that what a message holds is cut into records without
// loss: each is decoded exactly (no number rounded, no text replaced, no duplicate
// key resolved), or carries the error that says where it is wrong. A broken record
// never hides its neighbours. Errors name offsets, never content.
package record

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

// Record is one record of a message. Value is nil, bool, int64, uint64, float64,
// string, []any or map[string]any; the data of a CloudEvent may also be []byte.
type Record struct {
	Value any
	Raw   []byte // as received; shares memory with the message
	Whole bool   // Raw is all that the message holds
	Entry *Entry // format mutation: the entry to apply, and no Value
	Err   error  // why it cannot be decoded; Value and Entry are nil then
	// Size is how many bytes were charged for Value, even if it was given up half-way.
	Size int64

	letter *deadletter.Letter // format mutation: what the message is
}

// Keep fills in the kind and the data of a dead letter, and for a record that is a dead
// letter already, all that this one says of its origin. l has the origin of the message.
func (r *Record) Keep(l *deadletter.Letter) {
	if r.letter != nil {
		l.Kind, l.Table, l.Mapping, l.Data, l.Origin = r.letter.Kind, r.letter.Table, r.letter.Mapping, r.letter.Data, r.letter.Origin
		if r.letter.MessageID != "" {
			l.MessageID, l.PublishTime = r.letter.MessageID, r.letter.PublishTime
		}
		return
	}
	l.Kind, l.Data = deadletter.KindRecord, r.Raw
	if l.Origin != nil {
		l.Origin.Whole = r.Whole
	}
}

// Decode cuts a message into records, one after the other as they are asked for: a
// message may hold more of them than should lie in memory at once.
type Decode func(data []byte, attributes map[string]string) iter.Seq[Record]

// ByFormat returns the Decode of a format by its name in the pipeline file: json,
// ndjson, cloudevent or mutation. It is safe for concurrent use.
func ByFormat(format string) (Decode, error) {
	decode, err := BoundedByFormat(format)
	if err != nil {
		return nil, err
	}
	return func(data []byte, attributes map[string]string) iter.Seq[Record] {
		return decode(data, attributes, Memory{})
	}, nil
}

// Bounded is a Decode within the memory that it is given.
type Bounded func(data []byte, attributes map[string]string, m Memory) iter.Seq[Record]

// BoundedByFormat is ByFormat for a Bounded.
func BoundedByFormat(format string) (Bounded, error) {
	d := &Decoder{}
	switch format {
	case "json":
		return func(data []byte, _ map[string]string, m Memory) iter.Seq[Record] { return d.values(data, m) }, nil
	case "ndjson":
		return func(data []byte, _ map[string]string, m Memory) iter.Seq[Record] { return d.lines(data, m) }, nil
	case "cloudevent":
		return d.events, nil
	case "mutation":
		return func(data []byte, attributes map[string]string, m Memory) iter.Seq[Record] {
			return func(yield func(Record) bool) { yield(boundedMutation(data, attributes, m)) }
		}, nil
	}
	return nil, fmt.Errorf("no such format: %s", format)
}

// One reads data that is one record of a message, within the memory that it is given, and
// never cuts it: an array is one value.
type One func(data []byte, attributes map[string]string, m Memory) Record

// OneByFormat returns the One of a format by its name in the pipeline file. It is safe for
// concurrent use.
func OneByFormat(format string) (One, error) {
	d := &Decoder{}
	switch format {
	case "json", "ndjson":
		return func(data []byte, _ map[string]string, m Memory) Record { return d.one(data, m) }, nil
	case "cloudevent":
		return d.oneEvent, nil
	case "mutation":
		return boundedMutation, nil
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
func (d *Decoder) JSON(data []byte) []Record { return slices.Collect(d.values(data, Memory{})) }

// NDJSON decodes data that holds one JSON value a line. A byte order mark, CRLF,
// blank lines and a missing last newline are fine.
func (d *Decoder) NDJSON(data []byte) []Record { return slices.Collect(d.lines(data, Memory{})) }

func (d *Decoder) values(data []byte, m Memory) iter.Seq[Record] {
	body := bytes.TrimPrefix(data, []byte(byteOrderMark))
	if isBatch(data) {
		return d.batch(data, body, m)
	}
	return func(yield func(Record) bool) {
		r := d.one(data, m)
		r.Whole = true
		yield(r)
	}
}

// one decodes data as one value, after a byte order mark.
func (d *Decoder) one(data []byte, m Memory) Record {
	p := d.parser(m)
	defer d.done(p)
	r := Record{Raw: data}
	p.read(&r, bytes.TrimPrefix(data, []byte(byteOrderMark)))
	return r
}

// isBatch reports whether data begins as an array does.
func isBatch(data []byte) bool {
	first := bytes.TrimLeft(bytes.TrimPrefix(data, []byte(byteOrderMark)), " \t\r\n")
	return len(first) > 0 && first[0] == '['
}

func (d *Decoder) lines(data []byte, m Memory) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		p := d.parser(m)
		defer d.done(p)
		rest := bytes.TrimPrefix(data, []byte(byteOrderMark))
		for number := 1; len(rest) > 0; number++ {
			var line []byte
			line, rest, _ = bytes.Cut(rest, []byte("\n"))
			if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
				continue
			}
			r := Record{Raw: line}
			if p.read(&r, line); r.Err != nil {
				r.Err = fmt.Errorf("line %d: %w", number, r.Err)
			}
			if !yield(r) {
				return
			}
		}
	}
}

func (d *Decoder) parser(m Memory) *parser {
	p, ok := d.parsers.Get().(*parser)
	if !ok {
		p = newParser()
	}
	p.memory = m
	return p
}

// done keeps the parser for others, without the message that it read.
func (d *Decoder) done(p *parser) {
	p.forget()
	d.parsers.Put(p)
}

// batch decodes the elements of a top-level array one by one, once it is sure that the
// array is whole.
func (d *Decoder) batch(data, body []byte, m Memory) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if err := elements(body, func(int, []byte) bool { return true }); err != nil {
			yield(Record{Raw: data, Whole: true, Err: err})
			return
		}
		p := d.parser(m)
		defer d.done(p)
		// The array was read to its end just now.
		_ = elements(body, func(i int, raw []byte) bool {
			r := Record{Raw: raw}
			if p.read(&r, raw); r.Err != nil {
				r.Err = fmt.Errorf("element %d: %w", i, r.Err)
			}
			return yield(r)
		})
	}
}

// elements calls visit with each element of an array as it stands in body, until it
// returns false. The error is of the array's own syntax.
func elements(body []byte, visit func(i int, raw []byte) bool) error {
	outer := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := outer.ReadToken(); err != nil {
		return syntaxError(err)
	}
	for i := 0; outer.PeekKind() != ']'; i++ {
		v, err := outer.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		end := outer.InputOffset()
		if !visit(i, body[end-int64(len(v)):end]) {
			return nil
		}
	}
	if _, err := outer.ReadToken(); err != nil {
		return syntaxError(err)
	}
	return nothingAfter(body, outer.InputOffset())
}
