package rowrange

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// covers: SC-14
func TestRangesPrintAsTheyAreRead(t *testing.T) {
	for want, r := range map[string]Range{
		"(*, *)":                     {},
		"[a, b)":                     {Start: "a", End: "b"},
		"(a, b]":                     {Start: "a", StartOpen: true, End: "b", EndClosed: true},
		"[2026-08-14#9, *)":          {Start: "2026-08-14#9"},
		"(*, 2026-09-)":              {End: "2026-09-"},
		`[\x2a, *)`:                  {Start: "*"},
		`[A\x2c b, \x5cx41]`:         {Start: "A, b", End: `\x41`, EndClosed: true},
		`[\x00\x1f ~\x7f, \xc3\xa9)`: {Start: "\x00\x1f ~\x7f", End: "é"},
		`[[(, ])]`:                   {Start: "[(", End: "])", EndClosed: true},
		"[ a,  b )":                  {Start: " a", End: " b "},
		`[k, k\x00)`:                 {Start: "k", End: "k\x00"},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v prints as %s, want %s", r, got, want)
		}
		if got, err := Parse(want); err != nil || got != r {
			t.Errorf("%s reads as %+v, %v; want %+v", want, got, err, r)
		}
	}
}

func TestTextThatIsNoRangeIsRefused(t *testing.T) {
	for s, want := range map[string]string{
		"": "starts with", "[a, b": "starts with", "a, b)": "starts with", "[a)": "two bounds", "[a,b)": "two bounds",
		"[*, b)": "lower bound cannot include *", "(a, *]": "upper bound cannot include *", "[, b)": "lower bound is empty",
		"[a, )": "upper bound is empty", "[a, b, c)": "upper bound has a byte", "[a*, b)": "lower bound has a byte",
		`[\x4, b)`: "backslash", `[\n, b)`: "backslash", `[a, \)`: "backslash", `[\xzz, b)`: "backslash", "[é, b)": "byte that must be written",
		"[b, a)": "no key", "(a, a)": "no key", `(k, k\x00)`: "no key", `(*, \x00)`: "no key",
	} {
		if r, err := Parse(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s reads as %v, %v; want an error with %q", s, r, err, want)
		}
	}
}

func TestOtherBytesMayBeEscapedToo(t *testing.T) {
	if got, err := Parse(`[\x41, \xFF)`); err != nil || got != (Range{Start: "A", End: "\xff"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// covers: SC-14
func TestEveryRangeHasOneText(t *testing.T) {
	seen := map[string]Range{}
	rapid.Check(t, func(t *rapid.T) {
		r := Range{Start: string(rapid.SliceOf(rapid.Byte()).Draw(t, "start")), End: string(rapid.SliceOf(rapid.Byte()).Draw(t, "end"))}
		r.StartOpen = r.Start != "" && rapid.Bool().Draw(t, "open")
		r.EndClosed = r.End != "" && rapid.Bool().Draw(t, "closed")
		s := r.String()
		if other, known := seen[s]; known && other != r {
			t.Fatalf("%+v and %+v both print as %s", r, other, s)
		}
		seen[s] = r
		got, err := Parse(s)
		if r.IsEmpty() != (err != nil) || err == nil && got != r {
			t.Fatalf("%+v prints as %s and reads as %+v, %v", r, s, got, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"(*, *)", "[a, b)", `(k, k\x00\x00]`, `[a\x2c b, \x5cx41]`, "[, ]", `[\x, b)`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		if r.IsEmpty() {
			t.Fatalf("%q reads as an empty range", s)
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Fatalf("%q reads as %+v, prints as %s and reads as %+v, %v", s, r, r, again, err)
		}
	})
}
