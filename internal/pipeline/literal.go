package pipeline

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// literal is a value of a test, as JSON.
type literal struct {
	at
	v json.RawMessage
}

func (l *literal) decode(d *decoder, n *yaml.Node, a at, _ field) {
	l.at = a
	if a.state == broken {
		return
	}
	before := len(d.errs.list)
	l.v = d.json(nil, n, a.place)
	if len(d.errs.list) > before {
		l.state = broken
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// json appends a node as JSON. Numbers keep their source text.
func (d *decoder) json(dst []byte, n *yaml.Node, place string) []byte {
	if d.bad[n] {
		return dst
	}
	switch n.Kind {
	case yaml.MappingNode:
		dst = append(dst, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, n.Content[i].Value), ':')
			dst = d.json(dst, n.Content[i+1], child(place, n.Content[i].Value))
		}
		return append(dst, '}')
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, c := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.json(dst, c, fmt.Sprintf("%s[%d]", place, i))
		}
		return append(dst, ']')
	}
	if !plain(n) {
		return appendQuoted(dst, n.Value)
	}
	return d.jsonScalar(dst, n, place)
}

// unspaced says that the key of an empty value holds the value too, for want of a space.
func (d *decoder) unspaced(n *yaml.Node) string {
	line := []rune(d.from(n.Line, 1))
	m := unspacedKey.FindStringSubmatch(string(line[:min(max(n.Column-1, 0), len(line))]))
	if m == nil {
		return ""
	}
	return fmt.Sprintf("; a value needs a space before it: write %s: %s", m[1], m[2])
}

var unspacedKey = regexp.MustCompile(`[{,]\s*(\w+):([^\s:,{}]+)$`)

func (d *decoder) jsonScalar(dst []byte, n *yaml.Node, place string) []byte {
	switch resolve(n.Value) {
	case "null":
		if n.Value == "" {
			d.fail(n, place, `an empty value: write null, or "" for an empty text%s`, d.unspaced(n))
		}
		return append(dst, "null"...)
	case "bool":
		return append(dst, strings.ToLower(n.Value)...)
	case "int", "float":
		if !jsonNumber.MatchString(n.Value) {
			d.fail(n, place, "%s is no number of JSON: write it in decimal digits, or quote it", n.Value)
		}
		return append(dst, n.Value...)
	}
	return appendQuoted(dst, n.Value)
}

func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // json.Marshal refuses no string
	}
	return append(dst, b...)
}
