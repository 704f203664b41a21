package ledger

// The splits of a scan are counted in a tree, so that each document is rewritten
// at most fanIn times however many splits there are: a split enters its leaf, a
// leaf that is full enters its parent, and who fills the top finishes the scan.
// Neighbours, which run at the same time, are in different leaves.

// fanIn is how many enter one node.
const fanIn = 32

// slot is a place in a node.
type slot struct {
	level, node int
	bit         int
	size        int // how many places the node has
}

// slots returns the places of split index of n on the way up; none where it is
// alone.
func slots(index, n int) []slot {
	var path []slot
	for level := 0; n > 1; level++ {
		nodes := (n + fanIn - 1) / fanIn
		at := slot{level: level, node: index % nodes, bit: index / nodes}
		at.size = (n - at.node + nodes - 1) / nodes
		path = append(path, at)
		index, n = at.node, nodes
	}
	return path
}

// total is what splits add up to.
type total struct {
	Counts
	Failed      int    `json:"failed,omitempty"`
	FirstFailed int    `json:"firstFailed,omitempty"` // the lowest index, where any failed
	Error       string `json:"error,omitempty"`       // of that one
}

func totalOf(s *splitDoc) total {
	if s.State == SplitFailed {
		return total{Counts: s.Counts, Failed: 1, FirstFailed: s.Index, Error: s.LastError}
	}
	return total{Counts: s.Counts}
}

func (t total) plus(o total) total {
	sum := total{Counts: t.Counts.plus(o.Counts), Failed: t.Failed + o.Failed, FirstFailed: t.FirstFailed, Error: t.Error}
	if o.Failed > 0 && (t.Failed == 0 || o.FirstFailed < t.FirstFailed) {
		sum.FirstFailed, sum.Error = o.FirstFailed, o.Error
	}
	return sum
}

// node is a document of the tree.
type node struct {
	In uint32 `json:"in"` // a bit for each place that is taken
	total
}

// add enters t at a place, once.
func (n *node) add(at slot, t total) {
	if n.In&(1<<at.bit) == 0 {
		n.In |= 1 << at.bit
		n.total = n.total.plus(t)
	}
}

// full reports whether every place is taken.
func (n *node) full(at slot) bool { return n.In == uint32(uint64(1)<<at.size-1) }
