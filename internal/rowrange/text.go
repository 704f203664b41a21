package rowrange

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// String returns the range in the notation that Parse reads: a square bracket
// includes its bound, a round one does not, and * is no bound, as in
// [a, b), (k, *) and (*, *). Bytes that are not printable ASCII, and backslash,
// star and comma, are written \xNN in lower-case digits, so that different ranges
// never print alike.
func (r Range) String() string {
	var b strings.Builder
	switch {
	case r.Start == "":
		b.WriteString("(*")
	case r.StartOpen:
		b.WriteString("(" + quote(r.Start))
	default:
		b.WriteString("[" + quote(r.Start))
	}
	b.WriteString(", ")
	switch {
	case r.End == "":
		b.WriteString("*)")
	case r.EndClosed:
		b.WriteString(quote(r.End) + "]")
	default:
		b.WriteString(quote(r.End) + ")")
	}
	return b.String()
}

func quote(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c < 0x20 || c > 0x7E || c == '\\' || c == '*' || c == ',':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Parse reads what String prints. Other bytes may be escaped too, and the digits
// may be of either case; a byte that must be escaped must be. An empty range is an
// error, and so is an empty bound: no bound is *.
func Parse(s string) (Range, error) {
	var r Range
	if len(s) < 2 || !strings.ContainsRune("[(", rune(s[0])) || !strings.ContainsRune("])", rune(s[len(s)-1])) {
		return r, errors.New("a range starts with [ or ( and ends with ] or )")
	}
	start, end, ok := strings.Cut(s[1:len(s)-1], ", ")
	if !ok {
		return r, errors.New(`a range has two bounds with ", " between them`)
	}
	var err error
	if r.Start, r.StartOpen, err = bound(start, s[0] == '['); err != nil {
		return Range{}, fmt.Errorf("the lower bound %w", err)
	}
	var open bool
	if r.End, open, err = bound(end, s[len(s)-1] == ']'); err != nil {
		return Range{}, fmt.Errorf("the upper bound %w", err)
	}
	r.EndClosed = r.End != "" && !open
	r.StartOpen = r.Start != "" && r.StartOpen
	if r.IsEmpty() {
		return Range{}, errors.New("no key lies in the range")
	}
	return r, nil
}

// bound reads one bound; open is the opposite of closed where there is one.
func bound(s string, closed bool) (key string, open bool, err error) {
	switch {
	case s == "*" && closed:
		return "", false, errors.New("cannot include *: write a round bracket")
	case s == "*":
		return "", true, nil
	case s == "":
		return "", false, errors.New("is empty: write * where there is none")
	}
	key, err = unquote(s)
	return key, !closed, err
}

func unquote(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			n, err := strconv.ParseUint(s[min(i+2, len(s)):min(i+4, len(s))], 16, 8)
			if len(s) < i+4 || s[i+1] != 'x' || err != nil {
				return "", errors.New(`has a backslash that does not start \xNN`)
			}
			b.WriteByte(byte(n))
			i += 3
		case c < 0x20 || c > 0x7E || c == '*' || c == ',':
			return "", errors.New(`has a byte that must be written \xNN`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
