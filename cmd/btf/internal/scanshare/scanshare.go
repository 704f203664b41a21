// Package scanshare says how much of a scan is read, for btf scan and btf status. It guarantees that
// the share of a scan is between nothing and all, and all only at its end. It is pure.
package scanshare

import "github.com/bigtable-functions/bigtable-functions/ledger"

// Of is how much of a scan is read, from 0 to 1: of its bytes, as its planner has sampled
// them, or of its rows, if it has a limit and that is more.
func Of(scan *ledger.Scan, splits []*ledger.Split) float64 {
	if scan.State == ledger.ScanDone {
		return 1
	}
	perRow := BytesPerRow(splits)
	var read, all float64
	var rows int64
	for _, s := range splits {
		size := max(1, float64(sizeOf(s))) // a split without a known size still counts
		share, _ := OfSplit(s, perRow)
		read, all, rows = read+share*size, all+size, rows+s.Rows
	}
	if all == 0 {
		return 0
	}
	share := read / all
	if scan.Limit > 0 {
		share = max(share, float64(rows)/float64(scan.Limit))
	}
	return min(1, share)
}

// sizeOf is how many bytes a split had when it was planned; 0: nobody knows.
func sizeOf(s *ledger.Split) (bytes int64) {
	for _, section := range s.Sections {
		bytes += section.Bytes
	}
	return bytes
}

// BytesPerRow is how many of the sampled bytes there are to a row that was read, by what
// is known to be passed: whole splits, and whole sections of others. A filter, or how the
// service stores rows, makes them differ from the bytes that were read. 0: nothing is
// passed yet.
func BytesPerRow(splits []*ledger.Split) float64 {
	var bytes, rows float64
	for _, s := range splits {
		size := sizeOf(s)
		if size == 0 {
			continue
		}
		if s.State == ledger.SplitDone {
			bytes, rows = bytes+float64(size), rows+float64(s.Rows)
			continue
		}
		// Somewhere in a section: half of it is as good a guess as any.
		if passed, within := place(s); passed > 0 {
			bytes, rows = bytes+float64(passed)+float64(within)/2, rows+float64(s.Rows)
		}
	}
	if rows == 0 {
		return 0
	}
	return bytes / rows
}

// place returns the bytes of the sections that lie before a split's position, and of the
// one that it lies in.
func place(s *ledger.Split) (passed, within int64) {
	if s.Position == "" {
		return 0, 0
	}
	for _, section := range s.Sections {
		if section.End == "" || s.Position < section.End {
			return passed, section.Bytes
		}
		passed += section.Bytes
	}
	return passed, 0
}

// OfSplit is how much of a split is read, and whether that is known: the sections that
// lie before its position and, of the one that it lies in, what the rows read amount to.
func OfSplit(s *ledger.Split, perRow float64) (share float64, known bool) {
	if s.State == ledger.SplitDone {
		return 1, true
	}
	size := sizeOf(s)
	if size == 0 {
		return 0, s.Position == ""
	}
	passed, within := place(s)
	read := float64(s.Bytes)
	if perRow > 0 {
		read = float64(s.Rows) * perRow
	}
	return min(float64(passed+within), max(float64(passed), read)) / float64(size), true
}
