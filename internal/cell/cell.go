// Package cell guarantees that a value becomes the bytes which the HBase
// ecosystem's Bytes class would write for its declared encoding, or an error:
// never a wrapped, rounded-by-surprise or replaced value. Everything is
// big-endian. It knows nothing of rows or columns, and its errors never quote a
// value, so that they may be logged.
//
// The layout is that of org.apache.hadoop.hbase.util.Bytes, which Flink's and
// Spark's HBase connectors use. Google's Flink connector for Bigtable (bool 01,
// dates of 8 bytes, timestamps of 12) and its Kafka sink write other dialects.
package cell

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Kind is the type that a column or row key is declared with.
type Kind int

// The kinds, with the Go type that Decode returns for each. The zero value is
// Bytes, the encoding of what nobody declared.
const (
	Bytes     Kind = iota // []byte
	String                // string, UTF-8
	Bool                  // bool
	Int8                  // int64
	Int16                 // int64
	Int32                 // int64
	Int64                 // int64
	Float32               // float64
	Float64               // float64
	Decimal               // string, plain notation with exactly Scale digits after the point
	Date                  // time.Time, midnight UTC
	Time                  // time.Duration since midnight
	Timestamp             // time.Time, UTC, whole milliseconds
	JSON                  // nil, bool, int64, uint64, float64, string, []any, map[string]any
)

var kindNames = [...]string{
	Bytes: "bytes", String: "string", Bool: "bool",
	Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64",
	Float32: "float32", Float64: "float64", Decimal: "decimal",
	Date: "date", Time: "time", Timestamp: "timestamp", JSON: "json",
}

// String returns the kind's name in the pipeline file.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kindNames[k]
}

// MaxPrecision bounds the digits of a decimal, as SQL engines that read these
// tables do.
const MaxPrecision = 38

// Encoding is a kind and, for Decimal alone, its total digits (Precision,
// 1 to MaxPrecision) and its digits after the point (Scale, at most MaxPrecision
// either way; a negative one counts zeros before the point).
type Encoding struct {
	Kind             Kind
	Precision, Scale int
}

// String returns the encoding as the pipeline file writes it.
func (e Encoding) String() string {
	if e.Kind == Decimal {
		return fmt.Sprintf("decimal(%d,%d)", e.Precision, e.Scale)
	}
	return e.Kind.String()
}

// Names lists the encodings as the pipeline file writes them.
func Names() []string {
	names := append([]string(nil), kindNames[:]...)
	names[Decimal] = "decimal(p,s)"
	return names
}

// Pattern is a regular expression that every encoding's text matches, for schemas.
const Pattern = `^(bytes|string|bool|int8|int16|int32|int64|float32|float64|date|time|timestamp|json|decimal\( *[0-9]{1,2} *, *-?[0-9]{1,2} *\))$`

var decimalText = regexp.MustCompile(`^decimal\( *([0-9]{1,2}) *, *(-?[0-9]{1,2}) *\)$`)

// ParseEncoding reads what String prints; spaces inside decimal's brackets are
// allowed.
func ParseEncoding(s string) (Encoding, error) {
	for k, name := range kindNames {
		if s == name && Kind(k) != Decimal {
			return Encoding{Kind: Kind(k)}, nil
		}
	}
	if m := decimalText.FindStringSubmatch(s); m != nil {
		p, _ := strconv.Atoi(m[1])
		scale, _ := strconv.Atoi(m[2])
		if p < 1 || p > MaxPrecision {
			return Encoding{}, fmt.Errorf("decimal(%d,%d): the first number, all digits, must be 1 to %d", p, scale, MaxPrecision)
		}
		if scale < -MaxPrecision || scale > MaxPrecision {
			return Encoding{}, fmt.Errorf("decimal(%d,%d): the second number, digits after the point, must be %d to %d", p, scale, -MaxPrecision, MaxPrecision)
		}
		return Encoding{Kind: Decimal, Precision: p, Scale: scale}, nil
	}
	if strings.HasPrefix(s, "decimal") {
		return Encoding{}, fmt.Errorf("%q is no encoding: write decimal(p,s), as in decimal(10,2)", s)
	}
	return Encoding{}, fmt.Errorf("%q is no encoding: use one of %s", s, strings.Join(Names(), ", "))
}
