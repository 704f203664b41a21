package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// maxDecimalBytes bounds the text and the cell that are read as a decimal: far
// above what MaxPrecision digits need, and small enough for exact arithmetic.
const maxDecimalBytes = 1024

var decimalNumber = regexp.MustCompile(`^([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9}))?$`)

var errNotDecimal = errors.New("decimal takes text such as -12.30; the text is not a number")

func (e Encoding) appendDecimal(dst []byte, v any) ([]byte, error) {
	var unscaled *big.Int
	var scale int64
	switch v := v.(type) {
	case int64:
		unscaled = big.NewInt(v)
	case uint64:
		unscaled = new(big.Int).SetUint64(v)
	case string:
		var err error
		if unscaled, scale, err = parseDecimal(v); err != nil {
			return dst, err
		}
	case float64:
		return dst, mismatch(e.String(), "text or int", v, "send the number as text, a double is not exact")
	default:
		return dst, mismatch(e.String(), "text or int", v, "")
	}
	unscaled, err := e.rescale(unscaled, scale)
	if err != nil {
		return dst, err
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(int32(e.Scale)))
	return appendTwos(dst, unscaled), nil
}

// parseDecimal returns the exact value of the text as unscaled × 10^-scale.
func parseDecimal(s string) (unscaled *big.Int, scale int64, err error) {
	m := decimalNumber.FindStringSubmatch(s)
	if m == nil || len(s) > maxDecimalBytes || len(m[2])+len(m[3]) == 0 {
		return nil, 0, errNotDecimal
	}
	unscaled, _ = new(big.Int).SetString(m[1]+m[2]+m[3], 10)
	scale = int64(len(m[3]))
	if m[4] != "" {
		exp, err := strconv.ParseInt(m[4], 10, 64)
		if err != nil {
			return nil, 0, errNotDecimal
		}
		scale -= exp
	}
	return unscaled, scale, nil
}

// rescale returns unscaled × 10^-scale as a number of e.Scale digits after the
// point, rounded half away from zero, and fails where that has more than
// e.Precision digits.
func (e Encoding) rescale(unscaled *big.Int, scale int64) (*big.Int, error) {
	if unscaled.Sign() == 0 {
		return unscaled, nil
	}
	up := int64(e.Scale) - scale
	switch {
	case up > MaxPrecision:
		return nil, e.tooBig() // at least one digit moves past every precision
	case up >= 0:
		unscaled = new(big.Int).Mul(unscaled, pow10(up))
	case -up > 3*maxDecimalBytes: // more digits than the unscaled value can have
		return new(big.Int), nil
	default:
		unscaled = divideHalfUp(unscaled, pow10(-up))
	}
	if unscaled.CmpAbs(pow10(int64(e.Precision))) >= 0 {
		return nil, e.tooBig()
	}
	return unscaled, nil
}

func (e Encoding) tooBig() error {
	return fmt.Errorf("the value has more digits than %s holds", e)
}

func pow10(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// divideHalfUp rounds a/b to the nearest integer, a half away from zero; b > 0.
func divideHalfUp(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Lsh(r.Abs(r), 1).Cmp(b) >= 0 {
		q.Add(q, big.NewInt(int64(a.Sign())))
	}
	return q
}

// appendTwos appends the shortest two's complement of n, one byte at least, as
// java.math.BigInteger.toByteArray does.
func appendTwos(dst []byte, n *big.Int) []byte {
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			dst = append(dst, 0)
		}
		return append(dst, b...)
	}
	// −n−1 has the same bits inverted.
	b := new(big.Int).Not(n).Bytes()
	if len(b) == 0 || b[0]&0x80 != 0 {
		dst = append(dst, 0xFF)
	}
	for _, x := range b {
		dst = append(dst, ^x)
	}
	return dst
}

// twos is the inverse of appendTwos; it takes padded forms too.
func twos(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return n
}

func (e Encoding) decodeDecimal(b []byte) (any, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("the cell has %d bytes, and %s needs 5", len(b), e)
	}
	if len(b) > maxDecimalBytes {
		return nil, fmt.Errorf("the cell has %d bytes, too many for %s", len(b), e)
	}
	n, err := e.rescale(twos(b[4:]), int64(int32(binary.BigEndian.Uint32(b))))
	if err != nil {
		return nil, err
	}
	return plain(n, e.Scale), nil
}

// plain prints unscaled × 10^-scale without an exponent.
func plain(unscaled *big.Int, scale int) string {
	if scale <= 0 {
		return new(big.Int).Mul(unscaled, pow10(int64(-scale))).String()
	}
	digits := new(big.Int).Abs(unscaled).String()
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale+1-len(digits)) + digits
	}
	sign := ""
	if unscaled.Sign() < 0 {
		sign = "-"
	}
	at := len(digits) - scale
	return sign + digits[:at] + "." + digits[at:]
}
