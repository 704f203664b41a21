package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escaped writes text of a file or record so that a terminal shows it on one line and
// obeys nothing in it: control characters, invalid UTF-8 and what reorders text become
// \x1b, \xff and \u202e.
func escaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// printError prints why a command failed, each line of it escaped.
func printError(out io.Writer, err error) {
	p := &printer{out: out}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p.printf("btf: %s\n", line)
	}
}

// printer prints lines, and keeps the first error.
type printer struct {
	out io.Writer
	err error
}

// printf escapes the text of its arguments, but not the format.
func (p *printer) printf(format string, args ...any) {
	if p.err != nil {
		return
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = escaped(arg)
		case error:
			args[i] = escaped(arg.Error())
		case fmt.Stringer:
			args[i] = escaped(arg.String())
		}
	}
	if _, err := fmt.Fprintf(p.out, format, args...); err != nil {
		p.err = fmt.Errorf("printing: %w", err)
	}
}
