package cell

import (
	"errors"
	"strings"
	"time"
)

// These errors say why a text is no time, and quote nothing of it.
var (
	errNoTime     = errors.New("takes RFC 3339 text such as 2006-01-02T15:04:05.000Z; the text is not one")
	errLeapSecond = errors.New("takes no leap second: a cell has no time for it")
	errFineTime   = errors.New("takes nine digits of a second at most: more would be lost")
	errMillisText = errors.New("takes RFC 3339 text; the text is a number, of milliseconds since 1970 as it seems: send a JSON number and write " + millisHint)
)

// millisHint is how milliseconds since 1970, as a number, become a time.
const millisHint = `timestamp(0) + duration(string(event.at) + "ms")`

// ParseTime reads RFC 3339 text, as every place of the language does: T and Z in either
// case, an offset up to 23:59, a year of 1 to 9999 in UTC, at most nine digits of a second.
// The error quotes nothing.
func ParseTime(s string) (time.Time, error) {
	if len(s) > len("2006-01-02T15:04:05.000000000+00:00") {
		if strings.Trim(s, "0123456789-+:.TtZz") == "" && len(s) < 100 {
			return time.Time{}, errFineTime
		}
		return time.Time{}, errNoTime
	}
	const form = "0000-00-00t00:00:00"
	if len(s) <= len(form) {
		if len(s) >= 12 && strings.Trim(s, "0123456789") == "" {
			return time.Time{}, errMillisText
		}
		return time.Time{}, errNoTime
	}
	lower := strings.ToLower(s)
	for i, c := range []byte(form) {
		digit := lower[i] >= '0' && lower[i] <= '9'
		if c == '0' && !digit || c != '0' && lower[i] != c {
			return time.Time{}, errNoTime
		}
	}
	fraction, zone := cutFraction(lower[len(form):])
	switch {
	case fraction == "." || !isZone(zone):
		return time.Time{}, errNoTime
	case len(fraction) > len(".000000000"):
		return time.Time{}, errFineTime
	case lower[len(form)-2:len(form)] == "60":
		return time.Time{}, errLeapSecond
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil || !InCalendar(t) {
		return time.Time{}, errNoTime
	}
	return t, nil
}

// cutFraction cuts the digits of a second from the zone after them.
func cutFraction(s string) (fraction, zone string) {
	if s[0] != '.' {
		return "", s
	}
	n := 1
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return s[:n], s[n:]
}

// isZone reports whether a text is z or an offset of hours and minutes.
func isZone(s string) bool {
	if s == "z" {
		return true
	}
	if len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return false
	}
	for _, i := range []int{1, 2, 4, 5} {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s[1:3] <= "23" && s[4:] <= "59"
}
