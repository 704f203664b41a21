package rowrange

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// space is the model: every key of one to three bytes out of an alphabet with
// both ends of the byte order. What holds of ranges holds of the keys in them.
var space = func() []string {
	var keys []string
	alphabet := "\x00a\xff"
	for _, a := range alphabet3(alphabet, "") {
		keys = append(keys, a)
		for _, b := range alphabet3(alphabet, a) {
			keys = append(keys, b)
			keys = append(keys, alphabet3(alphabet, b)...)
		}
	}
	slices.Sort(keys)
	return keys
}()

func alphabet3(alphabet, before string) []string {
	var out []string
	for i := range len(alphabet) {
		out = append(out, before+alphabet[i:i+1])
	}
	return out
}

// keys returns what of the model is in r.
func keys(rs ...Range) []string {
	var in []string
	for _, k := range space {
		if slices.ContainsFunc(rs, func(r Range) bool { return holds(r, k) }) {
			in = append(in, k)
		}
	}
	return in
}

// holds says by the definition alone whether a key is in a range.
func holds(r Range, k string) bool {
	above := r.Start == "" || k > r.Start || k == r.Start && !r.StartOpen
	below := r.End == "" || k < r.End || k == r.End && r.EndClosed
	return above && below
}

// drawKey draws a key of at most two bytes, so that the model has keys on both
// sides of every bound.
func drawKey(t *rapid.T, label string) string {
	return rapid.SampledFrom(slices.DeleteFunc(slices.Clone(space), func(k string) bool { return len(k) > 2 })).Draw(t, label)
}

func drawRange(t *rapid.T, label string) Range {
	r := Range{StartOpen: rapid.Bool().Draw(t, label+" start open"), EndClosed: rapid.Bool().Draw(t, label+" end closed")}
	if rapid.IntRange(0, 4).Draw(t, label+" has start") > 0 {
		r.Start = drawKey(t, label+" start")
	}
	if rapid.IntRange(0, 4).Draw(t, label+" has end") > 0 {
		r.End = drawKey(t, label+" end")
	}
	return r
}

func drawRanges(t *rapid.T, label string) []Range {
	rs := make([]Range, rapid.IntRange(0, 5).Draw(t, label))
	for i := range rs {
		rs[i] = drawRange(t, fmt.Sprint(label, i))
	}
	return rs
}

// apart checks that ranges are in key order, none empty, and share no key.
func apart(t *rapid.T, rs []Range) {
	for i, r := range rs {
		if r.IsEmpty() {
			t.Fatalf("%v is empty in %v", r, rs)
		}
		if i == 0 {
			continue
		}
		if _, both := Intersect(rs[i-1], r); both || compare(rs[i-1].low(), r.low()) >= 0 {
			t.Fatalf("%v and %v are not apart and in order", rs[i-1], r)
		}
	}
}

func equal(t *rapid.T, what string, got, want []string) {
	if !slices.Equal(got, want) {
		t.Fatalf("%s holds %q, want %q", what, got, want)
	}
}

func TestContainsFollowsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRange(t, "r")
		for _, k := range space {
			if r.Contains(k) != holds(r, k) {
				t.Fatalf("%v contains %q: %v", r, k, r.Contains(k))
			}
		}
		if r.Contains("") {
			t.Fatal("an empty key is no row key")
		}
	})
}

func TestEmptyRangesAreThoseWithoutAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRange(t, "r")
		// A range that holds a key holds its lower bound's successor or the
		// bound itself, both of which the model has.
		if r.IsEmpty() != (len(keys(r)) == 0) {
			t.Fatalf("%v is empty: %v, but holds %q", r, r.IsEmpty(), keys(r))
		}
	})
}

// issue-row: 11
func TestNothingIsLeftAfterTheOnlyKey(t *testing.T) {
	for _, r := range []Range{
		Range{Start: "k", End: "k\x00"}.After("k"), Closed("k").After("k"), {Start: "k", StartOpen: true, End: "k"},
		{Start: "k", End: "k"}, {Start: "k", StartOpen: true, End: "k\x00"}, {End: "\x00"}, {Start: "b", End: "a"},
	} {
		if !r.IsEmpty() {
			t.Errorf("%v is not empty", r)
		}
	}
	for _, r := range []Range{
		{}, Closed("k"), {Start: "k", End: "k\x00"}, {Start: "k", StartOpen: true, End: "k\x00\x00"}, {Start: "k", StartOpen: true, End: "k\x00", EndClosed: true},
		{Start: "\xff\xff", StartOpen: true}, {End: "\x00", EndClosed: true},
	} {
		if r.IsEmpty() {
			t.Errorf("%v is empty", r)
		}
	}
}

func TestEqualRangesHoldTheSameKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRange(t, "a"), drawRange(t, "b")
		if a.Equal(b) && !slices.Equal(keys(a), keys(b)) {
			t.Fatalf("%v equals %v", a, b)
		}
		respelled := a
		if a.Start != "" && a.StartOpen {
			respelled.Start, respelled.StartOpen = a.Start+"\x00", false
		}
		if a.End != "" && a.EndClosed {
			respelled.End, respelled.EndClosed = a.End+"\x00", false
		}
		if !a.Equal(respelled) || !respelled.Equal(a) || respelled.IsEmpty() != a.IsEmpty() {
			t.Fatalf("%v does not equal %v", a, respelled)
		}
	})
}

func TestAfterKeepsWhatLiesPastTheKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, k := drawRange(t, "r"), drawKey(t, "k")
		want := slices.DeleteFunc(keys(r), func(in string) bool { return in <= k })
		equal(t, fmt.Sprintf("%v after %q", r, k), keys(r.After(k)), want)
	})
	if got := (Range{Start: "2026-08-14", End: "2026-09-"}).After("2026-08-14#9").String(); got != "(2026-08-14#9, 2026-09-)" {
		t.Errorf("got %s", got)
	}
}

func TestIntersectKeepsWhatIsInBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRange(t, "a"), drawRange(t, "b")
		got, some := Intersect(a, b)
		var want []string
		for _, k := range space {
			if holds(a, k) && holds(b, k) {
				want = append(want, k)
			}
		}
		equal(t, fmt.Sprintf("%v and %v", a, b), keys(got), want)
		if some == got.IsEmpty() {
			t.Fatalf("%v and %v: %v, %v", a, b, got, some)
		}
	})
}

// covers: SC-12
func TestMergeKeepsEveryKeyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := drawRanges(t, "rs")
		before := slices.Clone(rs)
		got := Merge(rs)
		equal(t, fmt.Sprint(rs), keys(got...), keys(rs...))
		apart(t, got)
		for i := 1; i < len(got); i++ {
			if high, _ := got[i-1].high(); compare(high, got[i].low()) == 0 {
				t.Fatalf("%v and %v touch", got[i-1], got[i])
			}
		}
		if !slices.Equal(rs, before) {
			t.Fatal("the argument changed")
		}
	})
}

// covers: TST-03
// issue-row: 12, 13
func TestCutLosesNothingAndLeavesKeysOnBothSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRange(t, "r")
		at := make([]string, rapid.IntRange(0, 5).Draw(t, "cuts"))
		for i := range at {
			at[i] = drawKey(t, "cut")
		}
		got := Cut(r, append(at, ""))
		equal(t, fmt.Sprintf("%v cut at %q", r, at), keys(got...), keys(r))
		apart(t, got)
		for _, piece := range got {
			for _, k := range at {
				if in := keys(piece); len(in) > 0 && in[0] < k && k <= in[len(in)-1] {
					t.Fatalf("%v is not cut at %q", piece, k)
				}
			}
		}
	})
	for _, c := range []struct {
		r    Range
		at   []string
		want string
	}{
		{Range{Start: "a", End: "a\x00"}, []string{"a", "a\x00", "b"}, `[[a, a\x00)]`},
		{Range{Start: "b", End: "d"}, []string{"a", "b", "c", "d", "e", "c"}, "[[b, c) [c, d)]"},
		{Range{}, nil, "[(*, *)]"},
		{Range{}, []string{"m"}, "[(*, m) [m, *)]"},
		{Range{Start: "b", End: "b"}, []string{"b"}, "[]"},
	} {
		if got := fmt.Sprint(Cut(c.r, c.at)); got != c.want {
			t.Errorf("%v cut at %q is %s, want %s", c.r, c.at, got, c.want)
		}
	}
}

func TestSubtractKeepsWhatIsInNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, rs := drawRange(t, "r"), drawRanges(t, "rs")
		var want []string
		for _, k := range keys(r) {
			if !slices.ContainsFunc(rs, func(o Range) bool { return holds(o, k) }) {
				want = append(want, k)
			}
		}
		got := Subtract(r, rs)
		equal(t, fmt.Sprintf("%v without %v", r, rs), keys(got...), want)
		apart(t, got)
		if Covers(rs, r) != (len(want) == 0) {
			t.Fatalf("%v covers %v: %v", rs, r, Covers(rs, r))
		}
	})
}

// An empty upper bound is no bound, not the smallest key: the gap search of a
// known consumer took it for one.
func TestGapsAtBothEndsOfTheTable(t *testing.T) {
	if got := fmt.Sprint(Subtract(Range{}, []Range{{Start: "b", End: "d"}})); got != "[(*, b) [d, *)]" {
		t.Errorf("got %s", got)
	}
	if !Covers([]Range{{Start: "b"}}, Range{Start: "c", End: "d"}) {
		t.Error("[b, *) does not cover [c, d)")
	}
}

// covers: SC-11
func TestPrefixHoldsTheKeysThatStartWithIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawKey(t, "p")
		want := slices.DeleteFunc(slices.Clone(space), func(k string) bool { return !strings.HasPrefix(k, p) })
		equal(t, fmt.Sprintf("prefix %q", p), keys(Prefix(p)), want)
	})
	for p, want := range map[string]string{"": "(*, *)", "\xff\xff": `[\xff\xff, *)`, "a\xff": `[a\xff, b)`, "order#": "[order#, order$)"} {
		if got := Prefix(p).String(); got != want {
			t.Errorf("prefix %q is %s, want %s", p, got, want)
		}
	}
}
