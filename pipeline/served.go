package pipeline

import "fmt"

// Unserved is a part of a file that is read and checked, and that nothing in this
// version does.
type Unserved struct {
	Pos     Pos
	Place   string // as in scans.archive.to
	Message string
}

// Unserved returns all such parts, those of scans first. What the functions and the
// command line say of them comes from here.
func (p *Pipeline) Unserved() []Unserved {
	var out []Unserved
	for _, s := range p.Scans {
		if err := s.To.Served(); err != nil {
			out = append(out, Unserved{s.To.Pos, "scans." + s.Name + ".to", err.Error()})
		}
	}
	for _, c := range p.Changes {
		out = append(out, Unserved{c.Pos, "changes." + c.Name, "this version reads and checks changes, but has no function that reads a change stream"})
	}
	return out
}

// Served returns an error where this version cannot send the records of a scan to the
// sink.
func (s Sink) Served() error {
	if s.Log || s.PubSub != nil {
		return nil
	}
	return fmt.Errorf("this version sends the records of scans to pubsub and log, and not to %s", s.Kind())
}
