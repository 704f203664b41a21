package pipeline

import (
	"fmt"
	"strings"
)

// bracket is a { or a [ that begins a value.
type bracket struct {
	line   int
	opener byte
}

// closerOf maps an opening bracket to the one that closes it.
var closerOf = map[byte]byte{'{': '}', '[': ']'}

// unclosedHint names a bracket, opened at a line or before it, that nothing closes in the
// file: the YAML reader gives up further down, at a line that may be right. It is empty if
// each is closed.
func unclosedHint(s source, number int) string {
	var open []bracket
	block := -1 // the indentation of the field whose text on lines of its own is passed over
	for i, line := range s.lines {
		indent, text := indentOf(line)
		if len(open) == 0 {
			if text == "" || block >= 0 && indent > block {
				continue
			}
			block = -1
			if blockLine.MatchString(text) {
				block = indent
				continue
			}
			text = valueOf(text)
			if text == "" || closerOf[text[0]] == 0 {
				continue
			}
		}
		var mismatch bool
		if open, mismatch = scanBrackets(open, text, i+1); mismatch {
			break
		}
	}
	if len(open) == 0 || open[len(open)-1].line > number {
		return ""
	}
	b := open[len(open)-1]
	return fmt.Sprintf("; line %d opens a %c that nothing closes: end it with %c", b.line, b.opener, closerOf[b.opener])
}

// valueOf returns the text of a line behind its dashes and its field.
func valueOf(text string) string {
	for strings.HasPrefix(text, "- ") {
		text = strings.TrimLeft(text[2:], " ")
	}
	if text != "" && closerOf[text[0]] == 0 && fieldLine.MatchString(text) {
		_, text, _ = strings.Cut(text, ":")
	}
	return strings.TrimLeft(text, " ")
}

// scanBrackets returns the brackets that are open after a line. The line begins inside the
// given ones or, if there are none, with one. A closing bracket of the other kind is a mismatch.
func scanBrackets(open []bracket, text string, line int) (after []bracket, mismatch bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '#':
			if i == 0 || text[i-1] == ' ' {
				return open, false
			}
		case '"', '\'':
			i += quotedLength(text[i:])
		case '{', '[':
			open = append(open, bracket{line, c})
		case '}', ']':
			if closerOf[open[len(open)-1].opener] != c {
				return open, true
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				return nil, false
			}
		}
	}
	return open, false
}

// quotedLength returns how many bytes follow the quote at the beginning of a text, up to the
// quote that ends it and with that one. It is 0 if none does on this line.
func quotedLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && text[0] == '"':
			i++
		case text[i] == text[0]:
			return i
		}
	}
	return 0
}
