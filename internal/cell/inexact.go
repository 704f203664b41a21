package cell

import (
	"strconv"
	"strings"
)

// Inexact is a JSON number that a double does not hold: Double is the nearest one, Text the
// number as it was written. Calculations and floats take the double; text, keys and
// decimals refuse it, since they would show digits that the record does not have; JSON
// keeps the text.
type Inexact struct {
	Double float64
	Text   string
}

// exactDigits is up to how many digits every decimal number survives as a double.
const exactDigits = 15

// Number returns f, or an Inexact where f prints as another number than text, which it was
// read from.
func Number(f float64, text string) any {
	digits, exponent := decimalParts(text)
	if len(digits) <= exactDigits && (f >= 1e-300 || f <= -1e-300) || digits == "" {
		return f
	}
	if d, e := decimalParts(strconv.FormatFloat(f, 'e', -1, 64)); d == digits && e == exponent {
		return f
	}
	return Inexact{f, text}
}

// decimalParts returns the significant digits of a JSON number and the power of ten of the
// first of them; no digits for a zero.
func decimalParts(s string) (digits string, exponent int) {
	s = strings.TrimPrefix(s, "-")
	mantissa, power := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, power = s[:i], s[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	digits = strings.TrimLeft(all, "0")
	exponent = len(whole) - (len(all) - len(digits)) - 1
	if n, err := strconv.Atoi(power); err == nil {
		exponent += n
	}
	return strings.TrimRight(digits, "0"), exponent
}
