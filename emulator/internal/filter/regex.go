package filter

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// matcher is a full match of a byte string against an RE2 pattern, in which
// `.` and classes stand for one byte. It maps bytes to the code points
// U+0000…U+00FF on both sides (Latin-1), which Go's regexp then matches.
type matcher struct {
	exact   bool
	literal string // if exact: the only string that matches
	re      *regexp.Regexp
}

func compileRegex(field string, pattern []byte) (*matcher, error) {
	if lit, ok := literal(pattern); ok {
		return &matcher{exact: true, literal: lit}, nil
	}
	// The pattern is compiled alone first: "a)|(b", which is wrong by itself, must
	// not become right between the parentheses of a full match.
	if _, err := regexp.Compile(latin1Pattern(pattern)); err != nil {
		return nil, refuse("Error in field '%s' : %v", field, err)
	}
	re, err := regexp.Compile("^(?:" + latin1Pattern(pattern) + ")$")
	if err != nil {
		return nil, refuse("Error in field '%s' : %v", field, err)
	}
	return &matcher{re: re}, nil
}

// literal is the string a pattern stands for if it has no operators. Clients
// quote a name by putting a backslash before what is not a letter or digit.
func literal(pattern []byte) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '\\' {
			if i++; i == len(pattern) || isWord(pattern[i]) || pattern[i] >= utf8.RuneSelf {
				return "", false
			}
			b.WriteByte(pattern[i])
			continue
		}
		if strings.IndexByte(`.+*?()|[]{}^$`, c) >= 0 {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// latin1Pattern rewrites a byte pattern for Go's regexp: bytes above 0x7f
// become code points, and `\C`, any byte, becomes what Go has for it.
func latin1Pattern(pattern []byte) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c != '\\' || i+1 == len(pattern) {
			b.WriteRune(rune(c))
			continue
		}
		i++
		switch next := pattern[i]; {
		case next == 'C':
			b.WriteString(`(?s:.)`)
		case next >= utf8.RuneSelf: // an escaped byte stands for itself
			b.WriteRune(rune(next))
		default:
			b.WriteByte(c)
			b.WriteByte(next)
		}
	}
	return b.String()
}

func (m *matcher) match(b []byte) bool {
	if m.exact {
		return string(b) == m.literal
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return m.re.MatchString(latin1(string(b)))
		}
	}
	return m.re.Match(b)
}

func (m *matcher) matchString(s string) bool {
	if m.exact {
		return s == m.literal
	}
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return m.re.MatchString(latin1(s))
		}
	}
	return m.re.MatchString(s)
}

func latin1(s string) string {
	b := make([]byte, 0, 2*len(s))
	for i := 0; i < len(s); i++ {
		b = utf8.AppendRune(b, rune(s[i]))
	}
	return string(b)
}
