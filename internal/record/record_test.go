package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestJSONDecodesNumbersTextAndStructureExactly(t *testing.T) {
	for _, c := range []struct {
		in   string
		want any
	}{
		{`{"a":1}`, map[string]any{"a": int64(1)}},
		{"\xef\xbb\xbf {\"a\":true} \n", map[string]any{"a": true}},
		{`9007199254740993`, int64(9007199254740993)},
		{`-9223372036854775808`, int64(-9223372036854775808)},
		{`18446744073709551615`, uint64(18446744073709551615)},
		{`1.0`, 1.0},
		{`1e3`, 1000.0},
		{`-0`, int64(0)},
		{`null`, nil},
		{`"\u00e9\n"`, "é\n"},
		{`"\ud83d\ude00"`, "😀"},
		{`{"a":{"b":[1,"x",null]}}`, map[string]any{"a": map[string]any{"b": []any{int64(1), "x", nil}}}},
		{`{"a\u0062":1}`, map[string]any{"ab": int64(1)}},
		{`{"A":1,"a":2}`, map[string]any{"A": int64(1), "a": int64(2)}},
	} {
		var d Decoder
		got := d.JSON([]byte(c.in))
		if len(got) != 1 || got[0].Err != nil || !reflect.DeepEqual(got[0].Value, c.want) {
			t.Errorf("JSON(%s) = %+v, want %#v", c.in, got, c.want)
		}
	}
}

func TestLinesUnderJSONAreReadAsTheHintSays(t *testing.T) {
	data := []byte("{\"id\":1}\n{\"id\":2}\n")
	var d Decoder
	if got := d.JSON(data); len(got) != 1 || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "set format: ndjson") {
		t.Fatalf("%+v, want the format", got)
	}
	decode, err := ByFormat("ndjson")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r := range decode(data, nil) {
		if n++; r.Err != nil {
			t.Error(r.Err)
		}
	}
	if n != 2 {
		t.Errorf("%d records, want 2", n)
	}
}

func TestJSONNamesWhereARecordIsBroken(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"id":1} {"id":2}`, "something after the value at offset 9"},
		{"{\"id\":1}\n{\"id\":2}\n", "something after the value, on a line of its own (if each line holds a value, set format: ndjson) at offset 9"},
		{`{"id":1}x`, "something after the value at offset 8"},
		{`{"a":1,"b":2,"a":3}`, "duplicate key at offset 13"},
		{`{"a":1,"\u0061":3}`, "duplicate key at offset 7"},
		{`{"a":18446744073709551616}`, "an integer of more than 64 bits (send it as a string) at offset 5"},
		{`{"a":-9223372036854775809}`, "an integer of more than 64 bits (send it as a string) at offset 5"},
		{`{"a":1e999}`, "a number too large for a double at offset 5"},
		{`{"a":NaN}`, "invalid JSON at offset 5"},
		{"{\"a\":\"\xff\"}", "invalid text (no UTF-8) in event.a at"},
		{"{\"list\":[{\"a b\":\"\xff\"}]}", "invalid text (no UTF-8) in event.list.0.? at"},
		{`{"a":"\ud800"}`, "invalid text (half of a surrogate pair) in event.a at"},
		{`{"a":"\ud800x"}`, "invalid text (half of a surrogate pair) in event.a at"},
		{`{"a":"\x"}`, "invalid JSON at"},
		{`{"a":"\ud800"}`, "invalid"},
		{`{"a":`, "JSON that ends too early"},
		{``, "no JSON value at offset 0"},
		{`{"secret"}`, "invalid JSON"},
		{strings.Repeat("[", maxDepth+3) + strings.Repeat("]", maxDepth+3), "nesting deeper than"},
	} {
		var d Decoder
		got := d.JSON([]byte(c.in))
		if len(got) != 1 || got[0].Err == nil || got[0].Value != nil {
			t.Errorf("JSON(%.40s) = %+v, want one error", c.in, got)
			continue
		}
		text := got[0].Err.Error()
		if !strings.Contains(text, c.want) {
			t.Errorf("JSON(%.40s): %q does not say %q", c.in, text, c.want)
		}
		if strings.Contains(text, "secret") {
			t.Errorf("JSON(%.40s): %q quotes the record", c.in, text)
		}
	}
}

func TestABrokenElementOfABatchLeavesItsNeighbours(t *testing.T) {
	var d Decoder
	got := d.JSON([]byte(` [{"a":1}, {"a":1,"a":2} ,99999999999999999999,{"a":3}] `))
	if len(got) != 4 {
		t.Fatalf("%d records, want 4: %+v", len(got), got)
	}
	for i, ok := range []bool{true, false, false, true} {
		if (got[i].Err == nil) != ok {
			t.Errorf("element %d: %v", i, got[i].Err)
		}
	}
	if string(got[1].Raw) != `{"a":1,"a":2}` || !strings.HasPrefix(got[1].Err.Error(), "element 1: ") {
		t.Errorf("element 1: raw %s, %v", got[1].Raw, got[1].Err)
	}
	if got := d.JSON([]byte(`[]`)); len(got) != 0 {
		t.Errorf("an empty batch: %+v", got)
	}
	for _, broken := range []string{`[{"a":1},{]`, `[{"a":1}] x`, `[1,2`} {
		if got := d.JSON([]byte(broken)); len(got) != 1 || got[0].Err == nil {
			t.Errorf("%s: %+v, want the whole rejected", broken, got)
		}
	}
}

func TestNDJSONTakesEveryLineEnding(t *testing.T) {
	var d Decoder
	got := d.NDJSON([]byte("\xef\xbb\xbf{\"n\":1}\r\n\n  \r\n{\"n\":2}\n{\"n\":}\n{\"n\":4}"))
	if len(got) != 4 {
		t.Fatalf("%d records: %+v", len(got), got)
	}
	for i, n := range map[int]int64{0: 1, 1: 2, 3: 4} {
		if !reflect.DeepEqual(got[i].Value, map[string]any{"n": n}) {
			t.Errorf("record %d: %+v", i, got[i])
		}
	}
	if got[2].Err == nil || !strings.Contains(got[2].Err.Error(), "line 5: invalid JSON") {
		t.Errorf("the broken line: %v", got[2].Err)
	}
	long := `{"v":"` + strings.Repeat("x", 3<<20) + `"}`
	if got := d.NDJSON([]byte(long)); len(got) != 1 || got[0].Err != nil {
		t.Errorf("a line of 3 MiB: %v", got[0].Err)
	}
}

// FuzzJSON holds the decoder against the standard library: whatever it accepts must
// be JSON and keep its text, and nothing panics.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `[{"a":1},{"b":[]}]`, `"\ud800"`, "{\"a\":1}\n{\"b\":2}", `1e5`, `-0.0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		for _, r := range append(d.JSON(data), d.NDJSON(data)...) {
			if (r.Err == nil) != json.Valid(r.Raw) && r.Err == nil && !bytes.HasPrefix(r.Raw, []byte(byteOrderMark)) {
				t.Fatalf("accepted what is no JSON: %q", r.Raw)
			}
			if r.Err != nil && r.Value != nil {
				t.Fatalf("a value beside an error: %q", r.Raw)
			}
		}
	})
}

func BenchmarkNDJSON(b *testing.B) {
	var lines []byte
	for i := range 500 {
		lines = fmt.Appendf(lines, `{"date":"2001/01/%02d 06:55","delay":-%d,"distance":1797,"origin":"LAX","destination":"BNA"}`+"\n", i%28+1, i)
	}
	b.Run("ours", func(b *testing.B) {
		var d Decoder
		b.ReportAllocs()
		for b.Loop() {
			if n := len(d.NDJSON(lines)); n != 500 {
				b.Fatal(n)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for line := range bytes.Lines(lines) {
				var v map[string]any
				if err := json.Unmarshal(line, &v); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/record")
	})
}
