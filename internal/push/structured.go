package push

import (
	"errors"
	"slices"
)

// required are the attributes that every CloudEvent has.
var required = []string{"id", "source", "specversion", "type"}

// structured reads a CloudEvent in structured mode whose data is an envelope.
type structured struct {
	envelope
	given map[string]bool // members of the event
	empty bool            // a required attribute is there and has no text
}

// parseStructured fills m from a CloudEvent that carries an envelope as its data. Of the
// event's attributes the required ones must be there; nothing else of it is used, as in
// binary mode.
// Source: CloudEvents 1.0.2, JSON Event Format, 2 and 3.1.
func parseStructured(body []byte, m *Message) error {
	s := structured{envelope: envelope{scan: scanner{b: body}, msg: m}, given: map[string]bool{}}
	if !s.scan.at('{') {
		return errors.New("a CloudEvent in structured mode that is no JSON object")
	}
	if err := s.scan.object(s.member); err != nil {
		return err
	}
	if err := s.scan.end(); err != nil {
		return err
	}
	for _, name := range required {
		if !s.given[name] || s.empty {
			return errors.New("CloudEvent attributes are not valid in version 1.0: id, source, specversion and type must be there, as text")
		}
	}
	return s.check()
}

// member reads one member of the event.
func (s *structured) member(member []byte) error {
	name := string(member)
	if name != "data" && !slices.Contains(required, name) {
		return s.scan.skip(0)
	}
	if s.given[name] {
		return s.scan.fail("an attribute of the CloudEvent stands twice")
	}
	s.given[name] = true
	switch {
	case name == "data" && !s.scan.at('{'):
		return errUnknownShape
	case name == "data":
		return s.scan.object(s.outer)
	case !s.scan.at('"'):
		s.empty = true
		return s.scan.skip(0)
	}
	text, err := s.scan.str()
	s.empty = s.empty || len(text) == 0 || name == "specversion" && string(text) != "1.0"
	return err
}
