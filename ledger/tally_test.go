package ledger

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestTheLastSplitFillsTheTopAndNoNodeIsHot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 3*fanIn), rapid.IntRange(1, 40*fanIn*fanIn)).Draw(t, "splits")
		order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Perm(n)
		failed := rapid.IntRange(0, n-1).Draw(t, "failed")
		type at struct{ level, node int }
		nodes, written := make(map[at]*node), make(map[at]int)
		for i, index := range order {
			s := &splitDoc{Index: index, Of: n, State: SplitDone, Counts: Counts{Rows: int64(index), Records: 1}}
			if index == failed || index == n-1 {
				s.State, s.LastError = SplitFailed, string(rune('a'+index%26))
			}
			sum, last := totalOf(s), true
			for _, slot := range slots(index, n) {
				key := at{slot.level, slot.node}
				if nodes[key] == nil {
					nodes[key] = new(node)
				}
				if nodes[key].In&(1<<slot.bit) != 0 {
					t.Fatalf("place %+v is taken twice", slot)
				}
				nodes[key].add(slot, sum)
				if written[key]++; written[key] > fanIn {
					t.Fatalf("node %+v is written %d times", key, written[key])
				}
				if last = nodes[key].full(slot); !last {
					break
				}
				sum = nodes[key].total
			}
			if last != (i == n-1) {
				t.Fatalf("split number %d of %d completes the scan: %t", i+1, n, last)
			}
			if last {
				wantFailed := 2
				if failed == n-1 {
					wantFailed = 1
				}
				want := total{
					Counts: Counts{Rows: int64(n) * int64(n-1) / 2, Records: int64(n)},
					Failed: wantFailed, FirstFailed: failed, Error: string(rune('a' + failed%26)),
				}
				if sum != want {
					t.Fatalf("total %+v, want %+v", sum, want)
				}
			}
		}
	})
}

func TestNeighboursAreCountedInDifferentNodes(t *testing.T) {
	const n = 10_000
	for i := range n - 1 {
		if a, b := slots(i, n)[0], slots(i+1, n)[0]; a.node == b.node {
			t.Fatalf("splits %d and %d are both in node %d", i, i+1, a.node)
		}
	}
}

func TestATallyCountsASplitOnce(t *testing.T) {
	at := slots(1, 2)[0]
	var n node
	for range 2 {
		n.add(at, total{Counts: Counts{Rows: 3}})
	}
	if n.Rows != 3 || n.full(at) {
		t.Errorf("%d rows, full: %t, want 3 and a place free", n.Rows, n.full(at))
	}
}

func TestIDsOfDifferentPartsDiffer(t *testing.T) {
	seen := make(map[string][]string)
	for _, parts := range [][]string{
		{}, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab"}, {"a", "b"}, {"\x01a"}, {"a\x01b"}, {"a\x00b"}, {"\x00", "\xff\x80"}, {"\x00\xff", "\x80"}, {"*"},
	} {
		key := id(parts...)
		if before, ok := seen[key]; ok {
			t.Errorf("%q and %q have the same id", before, parts)
		}
		seen[key] = parts
	}
}

func TestAnIDIsOneNameOfAPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := id(rapid.SliceOf(rapid.String()).Draw(t, "parts")...)
		if len(key) != 32 {
			t.Fatalf("id %q has %d characters, want 32", key, len(key))
		}
		for _, c := range key {
			if c < '0' || c > '9' && c < 'a' || c > 'f' {
				t.Fatalf("id %q has the character %q", key, c)
			}
		}
	})
}
