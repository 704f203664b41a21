package pipeline

import (
	"errors"
	"fmt"
)

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
		if err := c.Served(); err != nil {
			out = append(out, Unserved{c.Pos, "changes." + c.Name, err.Error()})
		}
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

// Served returns an error where this version cannot read the change stream as the file says.
func (c *Change) Served() error {
	switch {
	case !c.To.Log && c.To.PubSub == nil:
		return fmt.Errorf("this version sends changes to pubsub and log, and not to %s", c.To.Kind())
	case c.SelectedCell != nil:
		return errors.New("this version delivers whole changes, without selectedCell")
	case c.Snapshot:
		return errors.New("this version delivers changes alone, without snapshot")
	}
	return nil
}
