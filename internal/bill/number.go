package bill

import (
	"math"
	"strconv"
	"strings"
)

// Number prints a number that is not negative with commas between thousands: to three decimals or, if it is below one,
// to three digits.
func Number(x float64) string {
	decimals := 3
	if x != 0 && x < 1 {
		decimals = 2 - int(math.Floor(math.Log10(x)))
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(x, 'f', decimals, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return strings.TrimSuffix(whole+"."+strings.TrimRight(fraction, "0"), ".")
}
