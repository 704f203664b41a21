package cell

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// FuzzDecode reads any cell with any encoding: what it reads, written and read
// again, is the same value, and where the cell was canonical the same bytes.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens {
		e := encoding(f, g.encoding)
		b, err := e.Append(nil, g.value, "null")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(g.encoding, b)
	}
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		e, err := ParseEncoding(name)
		if err != nil {
			return
		}
		v, err := e.Decode(b, "null")
		if err != nil {
			return
		}
		again, err := e.Append(nil, v, "null")
		if err != nil {
			t.Fatalf("%s reads %x as %#v, which it does not write: %v", e, b, v, err)
		}
		back, err := e.Decode(again, "null")
		if err != nil || !same(v, back) {
			t.Fatalf("%s reads %x as %#v, and as %#v, %v when written again", e, b, v, back, err)
		}
		if n := e.Kind.size(); n > 0 && v != nil && e.Kind != Bool && !bytes.Equal(again, b[:n]) {
			t.Fatalf("%s writes %x as %x", e, b[:n], again)
		}
	})
}

// FuzzAppendText writes any text with any encoding that takes text.
func FuzzAppendText(f *testing.F) {
	for _, g := range goldens {
		if s, ok := g.value.(string); ok {
			f.Add(g.encoding, s)
		}
	}
	f.Add("decimal(38,-38)", "1e76")
	f.Fuzz(func(t *testing.T, name, s string) {
		e, err := ParseEncoding(name)
		if err != nil {
			return
		}
		b, err := e.Append(nil, s, "null")
		if err != nil {
			if len(b) > 0 {
				t.Fatalf("%s of %q fails and writes %x", e, s, b)
			}
			return
		}
		v, err := e.Decode(b, "null")
		if err != nil {
			t.Fatalf("%s writes %q as %x, which it does not read: %v", e, s, b, err)
		}
		if e.Kind == String && s != "null" && v != s {
			t.Fatalf("%q reads back as %#v", s, v)
		}
	})
}

// tree draws a JSON value.
func tree(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Int64().AsAny(),
		rapid.Uint64Min(math.MaxInt64 + 1).AsAny(),
		rapid.Float64().AsAny(),
		rapid.String().AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	below := tree(depth - 1)
	return rapid.OneOf(append(leaves, rapid.SliceOfN(below, 0, 4).AsAny(), rapid.MapOfN(rapid.String(), below, 0, 4).AsAny())...)
}

func TestJSONTreesComeBackAsTheyWere(t *testing.T) {
	e := Encoding{Kind: JSON}
	rapid.Check(t, func(t *rapid.T) {
		v := tree(3).Draw(t, "tree")
		b, err := e.Append(nil, v, "")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(b, "\n\r\t") {
			t.Fatalf("not compact: %q", b)
		}
		if back, err := e.Decode(b, ""); err != nil || !same(back, v) {
			t.Fatalf("%#v is %s and reads back as %#v, %v", v, b, back, err)
		}
	})
}

func TestFixedWidthValuesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for e, v := range map[Encoding]any{
			{Kind: Int8}:      int64(rapid.Int8().Draw(t, "int8")),
			{Kind: Int16}:     int64(rapid.Int16().Draw(t, "int16")),
			{Kind: Int32}:     int64(rapid.Int32().Draw(t, "int32")),
			{Kind: Int64}:     rapid.Int64().Draw(t, "int64"),
			{Kind: Float32}:   widen(rapid.Uint32().Draw(t, "float32")),
			{Kind: Float64}:   math.Float64frombits(rapid.Uint64().Draw(t, "float64")),
			{Kind: Date}:      time.Unix(int64(rapid.Int32().Draw(t, "date"))*86400, 0).UTC(),
			{Kind: Time}:      time.Duration(rapid.IntRange(0, 86_399_999).Draw(t, "time")) * time.Millisecond,
			{Kind: Timestamp}: time.UnixMilli(rapid.Int64().Draw(t, "timestamp")).UTC(),
		} {
			b, err := e.Append(nil, v, "")
			if err != nil || len(b) != e.Kind.size() {
				t.Fatalf("%s of %v is %x, %v", e, v, b, err)
			}
			if back, err := e.Decode(b, ""); err != nil || !same(back, v) {
				t.Fatalf("%s of %v reads back as %v, %v", e, v, back, err)
			}
		}
	})
}

func TestDecimalsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		precision := rapid.IntRange(1, MaxPrecision).Draw(t, "precision")
		scale := rapid.IntRange(0, precision).Draw(t, "scale")
		digits := rapid.StringMatching(`[1-9]?`).Draw(t, "first") + rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), precision-1, precision-1, -1).Draw(t, "rest")
		digits = strings.Repeat("0", scale+1) + digits
		whole := strings.TrimLeft(digits[:len(digits)-scale], "0")
		if whole == "" {
			whole = "0"
		}
		text := whole
		if scale > 0 {
			text += "." + digits[len(digits)-scale:]
		}
		if rapid.Bool().Draw(t, "negative") && strings.Trim(text, "0.") != "" {
			text = "-" + text
		}
		e := Encoding{Decimal, precision, scale}
		b, err := e.Append(nil, text, "")
		if err != nil {
			t.Fatal(err)
		}
		if back, err := e.Decode(b, ""); err != nil || back != text {
			t.Fatalf("%s reads back as %v, %v", text, back, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	text, number := any("DELIVERED"), any(int64(1234567))
	b.ReportAllocs()
	dst := make([]byte, 0, 64)
	for b.Loop() {
		dst, _ = Encoding{Kind: String}.Append(dst[:0], text, "null")
		dst, _ = Encoding{Kind: Int64}.Append(dst, number, "null")
	}
}
