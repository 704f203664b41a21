// Package terminal guarantees that a terminal obeys nothing in the text of a file, a record or an
// error that a command shows, and that progress is drawn only where it can be drawn over: elsewhere
// it is a line now and then.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	xterm "golang.org/x/term"
)

// Escape returns text of a file or record so that a terminal shows it on one line and
// obeys nothing in it: control characters, invalid UTF-8 and what reorders text become
// \x1b, \xff and \u202e.
func Escape(s string) string {
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

// widthOf returns how many columns the terminal has to which out writes, and 0 where
// it writes to none, or to one that obeys no control sequences (TERM=dumb). Nothing that
// is drawn has a colour, so that there is nothing for NO_COLOR to take away.
func widthOf(out io.Writer, term string) int {
	f := fileOf(out)
	if f == nil || term == "dumb" {
		return 0
	}
	if width, _, err := xterm.GetSize(int(f.Fd())); err == nil && width > 1 {
		return width
	}
	return 80
}

// fileOf returns the terminal to which out writes, or nil.
func fileOf(out io.Writer) *os.File {
	if f, ok := out.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// DataTo returns a writer of JSON to out: as it is or, if out is a terminal, with every
// character escaped that a terminal may obey.
func DataTo(out io.Writer) io.Writer {
	if fileOf(out) == nil {
		return out
	}
	return &jsonEscaper{out: out}
}

// jsonEscaper writes JSON with what is not printed, and stands in texts alone, as \u
// escapes, which are the same JSON.
type jsonEscaper struct {
	out  io.Writer
	rest []byte // the beginning of a character
}

// Write escapes what is complete of b.
func (e *jsonEscaper) Write(b []byte) (int, error) {
	text := append(e.rest, b...)
	var escaped []byte
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			escaped = append(escaped, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		text = text[size:]
	}
	e.rest = append([]byte(nil), text...)
	if _, err := e.out.Write(escaped); err != nil {
		return 0, err
	}
	return len(b), nil
}

// PrintError prints why a command failed, each line of it escaped.
func PrintError(out io.Writer, err error) {
	p := &Printer{Out: out}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p.Printf("btf: %s\n", line)
	}
}

// Printer prints lines to Out, and keeps the first error in Err.
type Printer struct {
	Out io.Writer
	Err error
}

// Printf escapes the text of its arguments, but not the format.
func (p *Printer) Printf(format string, args ...any) {
	if p.Err != nil {
		return
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = Escape(arg)
		case error:
			args[i] = Escape(arg.Error())
		case fmt.Stringer:
			args[i] = Escape(arg.String())
		}
	}
	if _, err := fmt.Fprintf(p.Out, format, args...); err != nil {
		p.Err = fmt.Errorf("printing: %w", err)
	}
}

// Plural returns a number with a noun, whose plural ends in s.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Ago says how long before now a time was, and - if it is zero.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	if d < time.Minute {
		return d.Round(time.Second).String() + " ago"
	}
	return d.Round(time.Minute).String() + " ago"
}

// PublishTime returns the publish time of a message as text. A message may have none.
func PublishTime(t time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	return t.Format(time.RFC3339Nano)
}

// ShellQuoted returns an argument as a shell takes it.
func ShellQuoted(s string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("-_./@:", r) || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
