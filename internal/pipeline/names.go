package pipeline

import (
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// name is the literal bytes of a qualifier, key or prefix: text, or a mapping
// with base64.
type name struct {
	at
	v      string
	binary bool // written as base64
}

func (m *name) decode(d *decoder, n *yaml.Node, a at, f field) {
	m.at = a
	if n.Kind == yaml.MappingNode && a.state != broken {
		if len(n.Content) != 2 || n.Content[0].Value != "base64" {
			d.reject(n, &m.at, `takes text or {base64: "…"}`)
			return
		}
		var inner text
		d.value(n.Content[1], reflectOf(&inner), child(a.place, "base64"), field{})
		v, err := decodeBase64(inner.v)
		if inner.ok() && err != nil {
			d.fail(n.Content[1], inner.place, "%v", err)
		}
		m.v, m.binary = string(v), true
		if !inner.ok() || err != nil {
			m.state = broken
		}
		return
	}
	var inner text
	inner.decode(d, n, a, field{})
	m.at = inner.at
	if !m.ok() {
		return
	}
	v, err := binaryName(inner.v)
	if err != nil {
		d.reject(n, &m.at, "%v", err)
		return
	}
	m.v = v
	if f.key != "raw" { // the body of a test's message may well end with a newline
		d.doubt(n, m.place)
	}
}

// hexEscape is an escape that looks like one byte and means a character of two bytes.
var hexEscape = regexp.MustCompile(`^(?:[^\\"]|\\[^x]|\\x[0-7])*?(\\x[89a-fA-F][0-9a-fA-F])`)

// doubt notes that the text of a name probably means other bytes.
func (d *decoder) doubt(n *yaml.Node, place string) {
	if n.Line == 0 {
		return // a default
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && strings.HasSuffix(n.Value, "\n") {
		d.doubts.add(d.pos(n.Line, n.Column), place, "ends with a newline, which the block keeps and which is then part of the name: write |- or >-, or quote the text on one line")
	}
	if text, quoted := strings.CutPrefix(d.from(n.Line, n.Column), `"`); quoted && n.Style&yaml.DoubleQuotedStyle != 0 {
		if m := hexEscape.FindStringSubmatch(text); m != nil {
			d.doubts.add(d.pos(n.Line, n.Column), place, "%s is a character in YAML, which UTF-8 writes as two bytes: for single bytes write {base64: \"…\"}", m[1])
		}
	}
}

var binaryNameText = regexp.MustCompile(`^\{base64: "([^"]*)"\}$`)

// binaryName reads a name that stands where only text may: as a mapping's key,
// a binary one is the text {base64: "…"}.
func binaryName(s string) (string, error) {
	if m := binaryNameText.FindStringSubmatch(s); m != nil {
		b, err := decodeBase64(m[1])
		return string(b), err
	}
	if !utf8.ValidString(s) {
		return "", errors.New(`a name that is not text: write it as {base64: "…"}`)
	}
	return s, nil
}

// NameText is a name as the key of a map of texts, here and in a record: itself or, where
// it is no text, or reads as a binary name, {base64: "…"}. No two names have one text.
func NameText(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `{base64: "`) {
		return name
	}
	return `{base64: "` + base64.StdEncoding.EncodeToString([]byte(name)) + `"}`
}

// TextName is the inverse of NameText. What is no binary name is itself.
func TextName(text string) string {
	name, err := binaryName(text)
	if err != nil {
		return text
	}
	return name
}

// decodeBase64 reads the standard alphabet, padded, with no bit left over, so that
// one name has one spelling.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || base64.StdEncoding.EncodeToString(b) != s {
		return nil, errors.New("no base64: write it canonically, in the standard alphabet with its padding")
	}
	return b, nil
}
