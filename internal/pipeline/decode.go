package pipeline

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// at is where a decoded value stands, and whether it does.
type at struct {
	pos   Pos    // of the value; of the key where the value is absent
	place string // as in write.mappings[0].rowKey
	state state
}

// state tells an absent value from one that could not be read.
type state int

const (
	absent  state = iota
	present       // written in the file, and read
	broken        // written, and reported
)

func (a *at) setAt(to at) { *a = to }
func (a at) given() bool  { return a.state != absent }
func (a at) ok() bool     { return a.state == present }

// decodable is a field type with a reading of its own.
type decodable interface {
	decode(d *decoder, n *yaml.Node, a at, f field)
}

// field is what the tags of a struct field say of it. The reference and the
// schema are made from the same tags.
type field struct {
	key     string // the name in the file
	need    bool   // must be written
	initial string // the default, as the file would write it
	lowest  string // bounds, inclusive, as the file would write them
	highest string
	oneOf   []string // the words it takes
	shape   string   // the name of the shape that text must have
	keys    string   // the name of the shape that the keys of a mapping must have
	inner   string   // the same of the mappings in a mapping
	only    string   // exactly one of the fields with this value is written
	doc     string
}

func fieldOf(t reflect.StructField) field {
	f := field{
		key: t.Tag.Get("key"), need: t.Tag.Get("need") != "", initial: t.Tag.Get("default"),
		lowest: t.Tag.Get("min"), highest: t.Tag.Get("max"),
		shape: t.Tag.Get("shape"), keys: t.Tag.Get("keys"), inner: t.Tag.Get("inner"), only: t.Tag.Get("only"), doc: t.Tag.Get("doc"),
	}
	if words := t.Tag.Get("one"); words != "" {
		f.oneOf = strings.Split(words, "|")
	}
	return f
}

// decoder fills document structs from nodes and collects every fault.
type decoder struct {
	checker
	around []mapping // those around the node, outermost first
}

// value decodes n into v, which is addressable.
func (d *decoder) value(n *yaml.Node, v reflect.Value, place string, f field) {
	a := at{pos: d.pos(n.Line, n.Column), place: place, state: present}
	if d.bad[n] {
		a.state = broken
	}
	if c, ok := v.Addr().Interface().(decodable); ok {
		c.decode(d, n, a, f)
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), place, f)
		return
	}
	if a.state == broken {
		settle(v, a)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, a)
	case reflect.Slice:
		d.list(n, v, a, f)
	default:
		panic(fmt.Sprintf("pipeline: no decoding for %s", v.Type()))
	}
}

// wrong reports that a node is not of the kind that its field takes.
func (d *decoder) wrong(n *yaml.Node, a at, takes string) {
	is := describe(n)
	if is == nothing && takes == "a mapping" {
		is = "nothing: there are no nulls; indent what belongs to it further than its name, write {} if nothing does, or leave the field out"
	}
	d.fail(n, a.place, "takes %s, not %s", takes, is)
}

// nothing describes an empty value.
const nothing = "nothing: there are no nulls, leave the field out for its default"

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if plain(n) {
		switch resolve(n.Value) {
		case "null":
			return nothing
		case "int", "float":
			return "a number"
		case "bool":
			return "a boolean"
		}
	}
	return "text"
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, a at, f field) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, a, "a list")
		return
	}
	if f.lowest == "1" && len(n.Content) == 0 {
		d.fail(n, a.place, "an empty list: name at least one, or leave the field out")
		return
	}
	item := f
	item.lowest, item.highest = "", ""
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.value(c, v.Index(i), fmt.Sprintf("%s[%d]", a.place, i), item)
	}
}

// structure decodes a mapping with fixed keys.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, a at) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, a, "a mapping")
		a.state = broken
		settle(v, a)
		return
	}
	fields, names := structFields(v.Type())
	defer d.enter(n, a.place, names)()
	written := map[string]bool{}
	var last reflect.Value
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		index, known := fields[key.Value]
		faults := len(d.errs.list)
		switch {
		case d.bad[key]:
		case !known:
			d.fail(key, child(a.place, key.Value), "unknown field %q%s", key.Value, cmp.Or(d.lessIndented(key), didYouMean(key.Value, names)))
		case !written[key.Value]:
			d.value(value, v.Field(index), child(a.place, key.Value), fieldOf(v.Type().Field(index)))
		}
		if len(d.errs.list) > faults && cutByComma(n, value) {
			forget(last)
		}
		last = reflect.Value{}
		if known {
			last = v.Field(index)
		}
		written[key.Value] = true
	}
	settle(v, a)
	d.absences(v, a, written)
}

// structFields returns the fields of a document struct by their key, and the keys.
func structFields(t reflect.Type) (map[string]int, []string) {
	fields := map[string]int{}
	var names []string
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("key"); key != "" {
			fields[key] = i
			names = append(names, key)
		}
	}
	return fields, names
}

// settle tells a value where it stands, if it wants to know.
func settle(v reflect.Value, a at) {
	if own, ok := v.Addr().Interface().(interface{ setAt(at) }); ok {
		own.setAt(a)
	}
}

// absences applies defaults to the fields that are not written, and reports those
// that must be.
func (d *decoder) absences(v reflect.Value, a at, written map[string]bool) {
	only := map[string][]string{}
	given := map[string][]string{}
	for i := range v.NumField() {
		t := v.Type().Field(i)
		f := fieldOf(t)
		if f.key == "" {
			continue
		}
		if f.only != "" {
			only[f.only] = append(only[f.only], f.key)
			if written[f.key] {
				given[f.only] = append(given[f.only], f.key)
			}
		}
		if !written[f.key] {
			d.absence(v.Field(i), a, f)
		}
	}
	for group, names := range only {
		switch n := len(given[group]); {
		case n == 0:
			d.errs.add(a.pos, a.place, "says no %s: write exactly one of %s", group, strings.Join(names, ", "))
		case n > 1:
			d.errs.add(a.pos, a.place, "says %s: write exactly one of %s", strings.Join(given[group], " and "), strings.Join(names, ", "))
		}
	}
}

func (d *decoder) absence(v reflect.Value, a at, f field) {
	here := at{pos: a.pos, place: child(a.place, f.key)}
	switch {
	case f.need:
		d.errs.add(a.pos, here.place, "is missing: %s", f.doc)
		here.state = broken
	case f.initial != "":
		d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: f.initial}, v, here.place, f)
	case v.Kind() == reflect.Struct && !isDecodable(v):
		d.absences(v, here, nil)
	}
	settle(v, here)
}

func isDecodable(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(decodable)
	return ok
}

// entry is one key of a mapping whose keys are the user's.
type entry[T any] struct {
	key   string
	at    at // of the key
	value T
}

// dict is a mapping whose keys are the user's, in the file's order.
type dict[T any] struct {
	at
	entries []entry[T]
}

func (m *dict[T]) decode(d *decoder, n *yaml.Node, a at, f field) {
	m.at = a
	if a.state == broken {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.wrong(n, a, "a mapping")
		m.state = broken
		return
	}
	if f.lowest == "1" && len(n.Content) == 0 {
		d.fail(n, a.place, "an empty mapping: name at least one, or leave the field out")
		m.state = broken
		return
	}
	item := f
	item.keys, item.inner = f.inner, ""
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if d.bad[key] {
			continue
		}
		place := child(a.place, key.Value)
		e := entry[T]{key: key.Value, at: at{pos: d.pos(key.Line, key.Column), place: place, state: present}}
		d.mapKey(key, &e.key, &e.at, f)
		if i := slices.IndexFunc(m.entries, func(o entry[T]) bool { return o.key == e.key }); i >= 0 {
			d.fail(key, place, "is the same name as the one on line %d", m.entries[i].at.pos.Line)
			continue
		}
		faults := len(d.errs.list)
		d.value(value, reflect.ValueOf(&e.value).Elem(), place, item)
		if len(d.errs.list) > faults {
			d.errs.amend(at{pos: d.pos(value.Line, value.Column), place: place}, d.lessIndented(key))
		}
		if last := len(m.entries) - 1; last >= 0 && len(d.errs.list) > faults && cutByComma(n, value) {
			forget(reflect.ValueOf(&m.entries[last].value).Elem())
		}
		m.entries = append(m.entries, e)
	}
}

// cutByComma reports whether a value in braces that is empty, and was reported, may be
// the end of an expression that has a comma: of the one before it, which is half.
func cutByComma(braces, value *yaml.Node) bool {
	return braces.Style&yaml.FlowStyle != 0 && plain(value) && value.Value == ""
}

// forget makes an expression one that was reported.
func forget(v reflect.Value) {
	if !v.IsValid() {
		return
	}
	if e, ok := v.Addr().Interface().(*expr); ok {
		e.state, e.v = broken, Expr{}
	}
}

// mapKey checks one of the user's keys, and reads it where it is a binary name.
func (d *decoder) mapKey(n *yaml.Node, key *string, a *at, f field) {
	if f.keys == "name" {
		name, err := binaryName(*key)
		if err != nil {
			d.fail(n, a.place, "%v", err)
			a.state = broken
		}
		*key = name
		d.doubt(n, a.place)
		return
	}
	if s, ok := shapes[f.keys]; ok && !s.form.MatchString(*key) {
		d.fail(n, a.place, "%s", s.fault(*key))
		a.state = broken
	}
}

// number reads a bound of a tag.
func number(s string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return otherwise
}
