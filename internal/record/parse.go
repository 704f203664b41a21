package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
)

// maxDepth bounds the nesting of a record, so that a hostile one cannot exhaust the stack.
const maxDepth = 500

// Names of object members recur from record to record; up to maxNames of up to
// maxNameBytes are kept, so that each is made once.
const (
	maxNames     = 512
	maxNameBytes = 64
)

// maxText is how much room for unescaped text is kept between values, in bytes.
const maxText = 64 << 10

// Error says where a record is broken: Offset counts bytes from its start.
type Error struct {
	Offset int64
	Reason string
}

// Error names the offset and the reason.
func (e *Error) Error() string { return fmt.Sprintf("%s at offset %d", e.Reason, e.Offset) }

// Sizes of values in memory, in bytes, rounded up: they are those of Go's values, with the
// garbage that is left while they grow.
const (
	sizeOfText    = 32 // and its bytes
	sizeOfNumber  = 8
	sizeOfList    = 64
	sizeOfElement = 40
	sizeOfObject  = 64
	sizeOfMembers = 400 // the first eight of an object, and the ninth, with which it grows
	sizeOfMember  = 80  // each further one
)

// Memory bounds the memory that records take. The zero value bounds nothing.
type Memory struct {
	// Most is how many bytes one record may take; to take more is an error of the record.
	// 0: no bound.
	Most int64
	// Charge is called with the bytes that values take, as they are made. Its error ends
	// the record, and is the record's error.
	Charge func(int64) error
}

// TooLarge says that a record becomes more than so many bytes in memory.
func TooLarge(most int64) error {
	return fmt.Errorf("a record that becomes more than %d bytes in memory (limits.inFlight.maxRecordBytes)", most)
}

// chargeStep is how many bytes are charged at a time.
const chargeStep = 64 << 10

// parser decodes one value at a time and keeps its buffers between them.
type parser struct {
	memory  Memory
	size    int64 // of the record at hand
	charged int64

	dec   *jsontext.Decoder
	buf   bytes.Buffer
	names map[string]string
	text  []byte
}

func newParser() *parser {
	p := &parser{names: map[string]string{}}
	p.dec = jsontext.NewDecoder(&p.buf)
	return p
}

// read decodes the value of a record.
func (p *parser) read(r *Record, data []byte) {
	p.size, p.charged = 0, 0
	r.Value, r.Err = p.parse(data)
	p.finish(r)
}

// finish charges the rest of a record's size.
func (p *parser) finish(r *Record) {
	if err := p.settle(); r.Err == nil && err != nil {
		r.Value, r.Err = nil, err
	}
	r.Size = p.size
}

// take counts n bytes that a value is about to take.
func (p *parser) take(n int64) error {
	if p.size += n; p.size-p.charged < chargeStep {
		return nil
	}
	return p.settle()
}

// settle charges the bytes that are counted and not yet charged.
func (p *parser) settle() error {
	if p.memory.Most > 0 && p.size > p.memory.Most {
		p.size = p.charged // the rest is not made
		return TooLarge(p.memory.Most)
	}
	n := p.size - p.charged
	if p.charged = p.size; n == 0 || p.memory.Charge == nil {
		return nil
	}
	return p.memory.Charge(n)
}

// forget lets go of what was parsed last.
func (p *parser) forget() {
	p.buf = bytes.Buffer{}
	p.dec.Reset(&p.buf)
	if cap(p.text) > maxText {
		p.text = nil
	}
}

// parse decodes data, which holds one value and nothing after it.
func (p *parser) parse(data []byte) (any, error) {
	p.buf = *bytes.NewBuffer(data)
	// Duplicate names are found while the map is built, which is cheaper.
	p.dec.Reset(&p.buf, jsontext.AllowDuplicateNames(true))
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if err := nothingAfter(data, p.dec.InputOffset()); err != nil {
		return nil, err
	}
	return v, nil
}

func nothingAfter(data []byte, offset int64) error {
	rest := data[offset:]
	after := bytes.TrimLeft(rest, " \t\r\n")
	if len(after) == 0 {
		return nil
	}
	reason := "something after the value"
	if bytes.IndexByte(rest[:len(rest)-len(after)], '\n') >= 0 {
		reason += ", on a line of its own (if each line holds a value, set format: ndjson)"
	}
	return &Error{offset + int64(len(rest)-len(after)), reason}
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, &Error{p.dec.InputOffset(), fmt.Sprintf("nesting deeper than %d", maxDepth)}
	}
	switch p.dec.PeekKind() {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	}
	raw, err := p.dec.ReadValue()
	if err != nil {
		return nil, syntaxError(err)
	}
	switch raw.Kind() {
	case '"':
		return p.string(raw)
	case '0':
		return p.number(raw)
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return nil, nil
}

func (p *parser) object(depth int) (any, error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	if err := p.take(sizeOfObject); err != nil {
		return nil, err
	}
	var m map[string]any
	for p.dec.PeekKind() != '}' {
		if err := p.takeMember(len(m)); err != nil {
			return nil, err
		}
		if m == nil {
			m = make(map[string]any, 8)
		}
		raw, err := p.dec.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}
		at := p.dec.InputOffset() - int64(len(raw))
		name, err := p.name(raw)
		if err != nil {
			return nil, err
		}
		if _, dup := m[name]; dup {
			return nil, &Error{at, "duplicate key"}
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		m[name] = v
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	if m == nil {
		m = map[string]any{}
	}
	return m, nil
}

// takeMember counts one more member of an object with n.
func (p *parser) takeMember(n int) error {
	switch {
	case n == 0, n == 8:
		return p.take(sizeOfMembers)
	case n > 8:
		return p.take(sizeOfMember)
	}
	return nil
}

// maxPiece is how many elements of a list are gathered before it is put together: a list that
// grew as a whole would leave several times its own size as garbage.
const maxPiece = 4096

func (p *parser) array(depth int) (any, error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	if err := p.take(sizeOfList); err != nil {
		return nil, err
	}
	var full [][]any // pieces of the list before piece
	piece := []any{}
	for p.dec.PeekKind() != ']' {
		if err := p.take(sizeOfElement); err != nil {
			return nil, err
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if len(piece) == maxPiece {
			full, piece = append(full, piece), make([]any, 0, maxPiece)
		}
		piece = append(piece, v)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	if full == nil {
		return piece, nil
	}
	return slices.Concat(append(full, piece)...), nil
}

// name is string for member names, each kept once.
func (p *parser) name(raw jsontext.Value) (string, error) {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') >= 0 {
		return p.string(raw)
	}
	if known, ok := p.names[string(inner)]; ok {
		return known, nil
	}
	if err := p.take(sizeOfText + int64(len(inner))); err != nil {
		return "", err
	}
	name := string(inner)
	if len(p.names) < maxNames && len(name) <= maxNameBytes {
		p.names[name] = name
	}
	return name, nil
}

func (p *parser) string(raw jsontext.Value) (string, error) {
	inner := raw[1 : len(raw)-1]
	if err := p.take(sizeOfText + int64(len(inner))); err != nil {
		return "", err
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	var err error
	if p.text, err = jsontext.AppendUnquote(p.text[:0], raw); err != nil {
		return "", syntaxError(err)
	}
	return string(p.text), nil
}

// number keeps integers exact: int64, else uint64, else an error. What has a
// fraction or an exponent is a double.
func (p *parser) number(raw jsontext.Value) (any, error) {
	if err := p.take(sizeOfNumber); err != nil {
		return nil, err
	}
	at := p.dec.InputOffset() - int64(len(raw))
	text := string(raw)
	if bytes.ContainsAny(raw, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, &Error{at, "a number too large for a double"}
		}
		return cell.Number(f, text), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	return nil, &Error{at, "an integer of more than 64 bits (send it as a string)"}
}

// syntaxError drops the library's text, which may quote the record. A text
// that is wrong is named by the path to it.
func syntaxError(err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &Error{0, "no JSON value"}
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{syntax.ByteOffset, "JSON that ends too early"}
	case syntax.Err != nil && syntax.Err.Error() == "invalid UTF-8":
		return &Error{syntax.ByteOffset, "invalid text (no UTF-8) in " + path(syntax.JSONPointer)}
	case syntax.Err != nil && strings.Contains(syntax.Err.Error(), "surrogate"):
		return &Error{syntax.ByteOffset, "invalid text (half of a surrogate pair) in " + path(syntax.JSONPointer)}
	}
	return &Error{syntax.ByteOffset, "invalid JSON"}
}

// maxPathNames bounds a path: a place that lies deeper is found by the offset.
const maxPathNames = 8

// path names a place in a record as event.a.b. A name that does not look like a field's may
// be data, and a question mark stands for it.
func path(p jsontext.Pointer) string {
	out, n := "event", 0
	for name := range p.Tokens() {
		if n++; n > maxPathNames {
			return out + "…"
		}
		if !isName(name) {
			name = "?"
		}
		out += "." + name
	}
	return out
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}
