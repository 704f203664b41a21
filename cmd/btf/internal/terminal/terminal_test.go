package terminal

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// The same JSON comes out, however it is cut, and nothing in it that a terminal obeys.
func TestRecordsOnATerminalAreTheSameJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringOf(rapid.SampledFrom([]rune{'a', '"', '\\', '\n', 0, 0x1b, 0x7f, 0x85, 0x9b, 0x200b, 0x202e, 0x2066, 0x2028, 0xfeff, 'é', '€', 0xfffd, 0xe0001, 0x1f600})).Draw(t, "value")
		var record bytes.Buffer
		enc := json.NewEncoder(&record)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(map[string]string{value: value}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := &jsonEscaper{out: &out}
		for rest := record.Bytes(); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			if wrote, err := w.Write(rest[:n]); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[value] != value || len(got) != 1 {
			t.Errorf("%q became %q: %v", record.Bytes(), out.Bytes(), err)
		}
		if i := strings.IndexFunc(strings.TrimSuffix(out.String(), "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q has what a terminal obeys", out.Bytes())
		}
	})
}

func TestRecordsToAPipeAreExact(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if DataTo(w) != w || widthOf(w, "xterm") != 0 {
		t.Error("a pipe is taken for a terminal")
	}
}

func TestTextOnATerminalIsEscaped(t *testing.T) {
	for text, want := range map[string]string{"a\x7fb": `a\x7fb`, "\u009b": `\u009b`, "\u202e": `\u202e`, "\u2066": `\u2066`, "\xff": `\xff`, "\x1b[2J": `\x1b[2J`, "é€": "é€"} {
		if got := Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
