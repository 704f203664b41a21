package record

import (
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A list is put together of pieces, which neither lose nor move an element, and all that is
// allocated for a long one is within the bytes that are charged.
func TestAListIsWholeHoweverLongItIs(t *testing.T) {
	d := &Decoder{}
	for _, n := range []int{0, 1, maxPiece - 1, maxPiece, maxPiece + 1, 2 * maxPiece, 2*maxPiece + 1, 300_000} {
		var b strings.Builder
		b.WriteString("[")
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("true")
		}
		b.WriteString("]")
		data := []byte(b.String())
		if n > 2 {
			copy(data[1+5*(n-2):], "null") // the last but one
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := d.one([]byte(`{"a":`+string(data)+"}"), Memory{})
		runtime.ReadMemStats(&after)
		list, ok := r.Value.(map[string]any)["a"].([]any)
		if r.Err != nil || !ok || len(list) != n {
			t.Fatalf("%d elements: %d, %v", n, len(list), r.Err)
		}
		for i, v := range list {
			if want := i != n-2 || n <= 2; (v == true) != want {
				t.Fatalf("%d elements: %v at %d", n, v, i)
			}
		}
		if made := int64(after.TotalAlloc-before.TotalAlloc) - 3*int64(len(data)); n > 50*maxPiece && made > r.Size {
			t.Errorf("%d elements: %d bytes were allocated, %d charged", n, made, r.Size)
		}
	}
}

// What is charged for a value is no less than what it takes.
func TestTheSizeOfAValueIsNoLessThanItTakes(t *testing.T) {
	d := &Decoder{}
	var wide strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&wide, `,"member-%d":""`, i)
	}
	for name, text := range map[string]string{
		"empty lists":      "[" + strings.Repeat("[],", 100_000) + "1]",
		"empty objects":    "[" + strings.Repeat("{},", 100_000) + "1]",
		"small objects":    "[" + strings.Repeat(`{"":1000},`, 50_000) + "1]",
		"numbers":          "[" + strings.Repeat("1000.5,", 100_000) + "1]",
		"texts":            "[" + strings.Repeat(`"ab",`, 100_000) + "1]",
		"escapes":          "[" + strings.Repeat(`"\u0041\n",`, 100_000) + "1]",
		"a long text":      `"` + strings.Repeat("x", 5_000_000) + `"`,
		"a wide object":    "{" + wide.String()[1:] + "}",
		"objects of nine":  "[" + strings.Repeat(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0},`, 10_000) + "1]",
		"lists in objects": "[" + strings.Repeat(`{"a":[[]]},`, 50_000) + "1]",
	} {
		data := []byte(`{"a":` + text + "}")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := d.one(data, Memory{})
		runtime.GC()
		runtime.ReadMemStats(&after)
		if r.Err != nil {
			t.Fatalf("%s: %v", name, r.Err)
		}
		taken := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		if r.Size+16<<10 < taken || r.Size > 4*taken {
			t.Errorf("%s: %d bytes are charged, %d taken", name, r.Size, taken)
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(data)
	}
}

// A record that becomes too much is an error that names the option, and its neighbours are
// not touched; what refuses a charge is the record's error.
func TestARecordIsBoundedInMemory(t *testing.T) {
	const most = 100_000
	hostile := `{"a":[` + strings.Repeat("{},", 5000) + `{}]}`
	for format, data := range map[string]string{
		"json":       `[{"a":1},` + hostile + `,{"a":2}]`,
		"ndjson":     `{"a":1}` + "\n" + hostile + "\n" + `{"a":2}`,
		"cloudevent": fmt.Sprintf(`[%[1]s"data":1},%[1]s"data":%[2]s},%[1]s"data":2}]`, `{"specversion":"1.0","id":"1","source":"s","type":"t",`, hostile),
	} {
		decode, err := BoundedByFormat(format)
		if err != nil {
			t.Fatal(err)
		}
		var charged, sizes int64
		m := Memory{Most: most, Charge: func(n int64) error { charged += n; return nil }}
		var errs []error
		for r := range decode([]byte(data), nil, m) {
			errs = append(errs, r.Err)
			sizes += r.Size
			if r.Size > most+chargeStep {
				t.Errorf("%s: a record of %d bytes", format, r.Size)
			}
		}
		if len(errs) != 3 || errs[0] != nil || errs[2] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "limits.inFlight.maxRecordBytes") {
			t.Errorf("%s: %v", format, errs)
		}
		if charged == 0 || charged > sizes {
			t.Errorf("%s: %d bytes charged, of %d", format, charged, sizes)
		}
		full := errors.New("full")
		m = Memory{Charge: func(int64) error { return full }}
		for r := range decode([]byte(data), nil, m) {
			if !errors.Is(r.Err, full) || r.Value != nil {
				t.Errorf("%s: %v, %v", format, r.Err, r.Value)
			}
		}
	}
}

// The size of each record is what was charged for it, no more and no less: it is given back.
func TestTheSizeOfARecordIsWhatIsCharged(t *testing.T) {
	const event = `{"specversion":"1.0","id":"1","source":"s","type":"t",`
	encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 20_000)))
	binary := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"}
	for name, c := range map[string]struct {
		format, data string
		attributes   map[string]string
	}{
		"json":             {"json", `[{"a":1},"` + strings.Repeat("x", 200_000) + `",{"a":[1,2]}]`, nil},
		"ndjson":           {"ndjson", `{"a":1}` + "\n" + `{"a":"` + strings.Repeat("x", 200_000) + `"}` + "\n{", nil},
		"events":           {"cloudevent", `[` + event + `"data":1},` + event + `"data":[1,{"a":2}]}]`, nil},
		"events in base64": {"cloudevent", `[` + strings.Repeat(event+`"datacontenttype":"x/y","data_base64":"`+encoded+`"},`, 20) + event + `"data_base64":"!"}]`, nil},
		"a binary event":   {"cloudevent", `{"a":[1,2,3]}`, binary},
		"a large one":      {"cloudevent", `{"a":"` + strings.Repeat("x", 200_000) + `"}`, binary},
		"a mutation":       {"mutation", strings.Repeat("x", 1000), nil},
		"a large mutation": {"mutation", strings.Repeat("x", 200_000), nil},
	} {
		decode, err := BoundedByFormat(c.format)
		if err != nil {
			t.Fatal(err)
		}
		var charged, sizes int64
		for r := range decode([]byte(c.data), c.attributes, Memory{Most: 100_000, Charge: func(n int64) error { charged += n; return nil }}) {
			sizes += r.Size
		}
		if charged != sizes {
			t.Errorf("%s: %d bytes are charged, %d given back", name, charged, sizes)
		}
	}
}
