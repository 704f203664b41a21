package cell

import (
	"strconv"
	"strings"
)

// Inexact is a JSON number that a double does not hold: Double is the nearest double, Text
// the number as it was written. Calculations and columns of floats take Double, columns of
// JSON take Text. Text, keys and decimals refuse the number, since they would show digits
// that the record does not have.
type Inexact struct {
	Double float64
	Text   string
}

// exactDigits is a number of digits up to which a double holds every decimal number.
const exactDigits = 15

// Number returns f, which was read from text, or an Inexact if f prints as another number.
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
