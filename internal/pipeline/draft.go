package pipeline

import (
	"reflect"
	"slices"
	"strings"
)

// Draft is Parse for a caller that reports all faults of a file at once. Beside an error it
// returns the mappings, scans and change streams whose expressions will have the same meaning once the faults
// are mended. They are good only for compiling these expressions: names that do not resolve
// have stand-ins. The result is nil if the file cannot be read at all.
func Draft(data []byte, o Options) (*Pipeline, error) {
	b := &builder{
		errs: &faults{}, options: o, docs: map[*Table]*tableDoc{}, unsure: map[*Table]bool{}, unplaced: map[*Mutation][]Assignment{},
	}
	doc, doubts := read(data, o.File, b.errs)
	if doc == nil {
		return nil, b.errs.err()
	}
	b.p.Doubts = doubts
	b.pipeline(doc)
	err := b.errs.err()
	if err != nil {
		b.trim()
	}
	return &b.p, err
}

// trim leaves what Draft returns beside an error.
func (b *builder) trim() {
	b.p.Tests = nil
	if w := b.p.Write; w != nil {
		w.Mappings = slices.DeleteFunc(w.Mappings, func(m *Mapping) bool {
			return unsure[mappingDoc](b, m.Place(), "forEach") // item is bound, or not
		})
		for _, m := range w.Mappings {
			b.standIn(m)
		}
	}
	b.p.Scans = slices.DeleteFunc(b.p.Scans, func(s *Scan) bool {
		return s.Table == nil || b.unsure[s.Table] || unsure[scanDoc](b, child("scans", s.Name), "forEach")
	})
	b.p.Changes = slices.DeleteFunc(b.p.Changes, func(c *Change) bool {
		return c.Table == nil || b.unsure[c.Table] || unsure[changeDoc](b, child("changes", c.Name), "forEach")
	})
	for _, s := range b.p.Scans {
		if b.faulty(child(child("scans", s.Name), "cells")) {
			s.Cells = Cells{}
		}
	}
}

// standIn fills in what the mapping's names do not resolve to: its expressions are over
// the record, whatever is written where.
func (b *builder) standIn(m *Mapping) {
	if m.Table == nil {
		m.Table = &Table{}
	}
	for _, mutation := range m.Mutations {
		mutation.Cells = append(mutation.Cells, b.unplaced[mutation]...)
	}
}

// unsure reports whether one of the fields of the document D at a place is faulty, or
// a field that D does not have and that may be meant for it.
func unsure[D any](b *builder, place string, fields ...string) bool {
	_, known := structFields(reflect.TypeFor[D]())
	return slices.ContainsFunc(b.errs.list, func(e *Error) bool {
		rest, below := strings.CutPrefix(e.Place, place)
		if !below || rest == "" {
			return false
		}
		if rest[0] != '.' {
			return rest[0] == '[' // a name that is no field's; else another place
		}
		name, _, _ := strings.Cut(rest[1:], ".")
		name, _, _ = strings.Cut(name, "[")
		return slices.Contains(fields, name) || !slices.Contains(known, name)
	})
}
