package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mapping is a mapping of the file, with fixed fields, around the node that is decoded.
type mapping struct {
	place  string
	fields []string
	indent int // spaces before its fields; -1 inside braces
}

// enter notes that the nodes to come stand in a mapping, until leave is called.
func (d *decoder) enter(n *yaml.Node, place string, fields []string) (leave func()) {
	indent := n.Column - 1
	if n.Style&yaml.FlowStyle != 0 {
		indent = -1
	}
	d.around = append(d.around, mapping{place, fields, indent})
	return func() { d.around = d.around[:len(d.around)-1] }
}

// lessIndented says that a key that its own mapping does not have is a field of a mapping
// around it: usually it is indented by two spaces too many. It is empty for other keys.
func (d *decoder) lessIndented(key *yaml.Node) string {
	for _, m := range slices.Backward(d.around) {
		if m.indent < 0 || m.indent >= key.Column-1 || !slices.Contains(m.fields, key.Value) {
			continue
		}
		of := "of " + m.place
		if m.place == "" {
			of = "of the whole file"
		}
		return fmt.Sprintf("; %s is a field %s: indent it by %d spaces and not by %d", key.Value, of, m.indent, key.Column-1)
	}
	return ""
}

// indentHint names the fault in the indentation of a line at which the YAML reader gave up.
// It is empty if there is none.
func indentHint(s source, number int) string {
	levels, before := []int{}, 0 // the columns at which the mappings begin that are open; the line before
	for i := range number - 1 {
		indent, text := indentOf(s.lines[i])
		if text == "" {
			continue
		}
		if before == 0 && indent > 0 {
			return fmt.Sprintf("; line %d is indented by %d: begin it in the first column", i+1, indent)
		}
		before = i + 1
		levels = open(levels, indent)
		for strings.HasPrefix(text, "- ") {
			rest := strings.TrimLeft(text[2:], " ")
			indent += len(text) - len(rest)
			levels, text = open(levels, indent), rest
		}
	}
	indent, text := indentOf(s.from(number, 1))
	if before == 0 || text == "" || strings.HasPrefix(text, "- ") || !fieldLine.MatchString(text) || slices.Contains(levels, indent) {
		return ""
	}
	innermost := levels[len(levels)-1]
	_, above := indentOf(s.lines[before-1])
	switch {
	case indent > innermost && filledLine.MatchString(above):
		return fmt.Sprintf("; line %d is indented by %d, and line %d above it, which has a value already, by %d: indent it by %[4]d too", number, indent, before, innermost)
	case indent < innermost:
		outer := 0
		for _, l := range levels {
			if l < indent {
				outer = l
			}
		}
		inner := levels[slices.IndexFunc(levels, func(l int) bool { return l > indent })]
		return fmt.Sprintf("; line %d is indented by %d, and the fields above it by %d or %d: indent it like the fields beside it", number, indent, outer, inner)
	}
	return ""
}

// open returns the levels that are open at a line of an indentation, its own included.
func open(levels []int, indent int) []int {
	for len(levels) > 0 && levels[len(levels)-1] > indent {
		levels = levels[:len(levels)-1]
	}
	if len(levels) == 0 || levels[len(levels)-1] < indent {
		levels = append(levels, indent)
	}
	return levels
}

// indentOf returns the spaces before a line's text, and the text: empty for a comment.
func indentOf(line string) (int, string) {
	text := strings.TrimLeft(line, " ")
	if strings.HasPrefix(text, "#") {
		return 0, ""
	}
	return len(line) - len(text), strings.TrimRight(text, " ")
}
