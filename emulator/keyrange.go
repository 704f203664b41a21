package emulator

// keyRange is the keys from start up to end, "" for no end.
type keyRange struct{ start, end string }

func (r keyRange) contains(key string) bool { return key >= r.start && (r.end == "" || key < r.end) }

// within is the part of r that lies in o; empty reports that there is none.
func (r keyRange) within(o keyRange) (both keyRange, empty bool) {
	both = keyRange{max(r.start, o.start), r.end}
	if r.end == "" || o.end != "" && o.end < r.end {
		both.end = o.end
	}
	return both, both.end != "" && both.start >= both.end
}
