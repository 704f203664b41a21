package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
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

// parser decodes one value at a time and keeps its buffers between them.
type parser struct {
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
	m := make(map[string]any, 8)
	for p.dec.PeekKind() != '}' {
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
	return m, nil
}

func (p *parser) array(depth int) (any, error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	list := []any{}
	for p.dec.PeekKind() != ']' {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	return list, nil
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
	name := string(inner)
	if len(p.names) < maxNames && len(name) <= maxNameBytes {
		p.names[name] = name
	}
	return name, nil
}

func (p *parser) string(raw jsontext.Value) (string, error) {
	inner := raw[1 : len(raw)-1]
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
	at := p.dec.InputOffset() - int64(len(raw))
	text := string(raw)
	if bytes.ContainsAny(raw, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, &Error{at, "a number too large for a double"}
		}
		return f, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	return nil, &Error{at, "an integer of more than 64 bits (send it as a string)"}
}

// syntaxError drops the library's text, which may quote the record.
func syntaxError(err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &Error{0, "no JSON value"}
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{syntax.ByteOffset, "JSON that ends too early"}
	case syntax.Err != nil && syntax.Err.Error() == "invalid UTF-8":
		return &Error{syntax.ByteOffset, "invalid UTF-8"}
	}
	return &Error{syntax.ByteOffset, "invalid JSON"}
}
