package expr

import (
	"maps"
	"reflect"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/bigtable-functions/bigtable-functions/internal/cell"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Shape says which parts of a value are columns as they are, so that they can be
// printed as declared: to the expression a date and a time of day are any timestamp and
// duration, and a float32 is any double. Parts of other types, and computed ones, have
// none.
type Shape struct {
	Kind     cell.Kind         // of the column that the value is; meaningless beside the others
	Elements []*Shape          // of a list, in order; nil where all are computed
	Fields   map[string]*Shape // of a map
}

// declaredShape is the shape of a column; nil where its values print by themselves.
func declaredShape(k cell.Kind) *Shape {
	switch k {
	case cell.Date, cell.Time, cell.Float32:
		return &Shape{Kind: k}
	}
	return nil
}

func familyShape(f *pipeline.Family) *Shape {
	fields := map[string]*Shape{}
	for _, c := range f.Columns {
		fields[pipeline.NameText(c.Qualifier)] = declaredShape(c.Encoding.Kind)
	}
	return mapShape(fields)
}

func rowShape(t *pipeline.Table) *Shape {
	fields := map[string]*Shape{}
	for _, f := range t.Families {
		fields[f.Name] = familyShape(f)
	}
	return mapShape(fields)
}

// mapShape drops the fields without a shape, and returns nil where none is left.
func mapShape(fields map[string]*Shape) *Shape {
	maps.DeleteFunc(fields, func(_ string, s *Shape) bool { return s == nil })
	if len(fields) == 0 {
		return nil
	}
	return &Shape{Fields: fields}
}

// Field returns the shape of a map's field, nil for none.
func (s *Shape) Field(name string) *Shape {
	if s == nil {
		return nil
	}
	return s.Fields[name]
}

// Element returns the shape of a list's element, nil for none.
func (s *Shape) Element(i int) *Shape {
	if s == nil || i < 0 || i >= len(s.Elements) {
		return nil
	}
	return s.Elements[i]
}

// Each returns the shape that all elements of a list have, nil where they differ.
func (s *Shape) Each() *Shape {
	if s == nil || len(s.Elements) == 0 {
		return nil
	}
	for _, e := range s.Elements {
		if !reflect.DeepEqual(e, s.Elements[0]) {
			return nil
		}
	}
	return s.Elements[0]
}

// Shape returns the shape of the expression's value; item is that of `item`, which
// forEach gives.
func (p *Program) Shape(item *Shape) *Shape {
	if p.table == nil {
		return nil
	}
	return shaper{p.table, item}.of(p.root())
}

type shaper struct {
	table *pipeline.Table
	item  *Shape
}

func (s shaper) of(e ast.Expr) *Shape {
	switch e.Kind() {
	case ast.IdentKind:
		return s.variable(e.AsIdent())
	case ast.SelectKind:
		if sel := e.AsSelect(); !sel.IsTestOnly() {
			return s.of(sel.Operand()).Field(sel.FieldName())
		}
	case ast.CallKind:
		return s.call(e.AsCall())
	case ast.ListKind:
		return s.list(e.AsList())
	case ast.MapKind:
		return s.object(e.AsMap())
	}
	return nil
}

func (s shaper) variable(name string) *Shape {
	switch name {
	case "rowKey", "change.rowKey":
		return declaredShape(s.table.Key.Kind)
	case "item":
		return s.item
	case rowVariable:
		return rowShape(s.table)
	}
	rest, ok := strings.CutPrefix(name, rowVariable+".")
	family, qualifier, isColumn := strings.Cut(rest, ".")
	f := s.table.Family(family)
	switch {
	case !ok || f == nil:
		return nil
	case isColumn:
		return declaredShape(f.Encoding(qualifier).Kind)
	}
	return familyShape(f)
}

func (s shaper) call(c ast.CallExpr) *Shape {
	args := c.Args()
	if c.IsMemberFunction() {
		switch c.FunctionName() {
		case "orValue", "or":
			return s.either(c.Target(), args[0])
		case "value":
			return s.of(c.Target())
		}
		return nil
	}
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return s.part(args[0], args[1])
	case operators.Conditional:
		return s.either(args[1], args[2])
	case nonNull, "dyn", "optional.of", "optional.ofNonZeroValue":
		return s.of(args[0])
	}
	return nil
}

// part is what a constant index or name reads of a value.
func (s shaper) part(of, key ast.Expr) *Shape {
	if key.Kind() != ast.LiteralKind {
		return nil
	}
	switch k := key.AsLiteral().Value().(type) {
	case string:
		return s.of(of).Field(k)
	case int64:
		return s.of(of).Element(int(k))
	}
	return nil
}

// either is the shape of a value that is one of two: theirs, where both have the same or
// one is a constant.
func (s shaper) either(a, b ast.Expr) *Shape {
	x, y := s.of(a), s.of(b)
	switch {
	case isConstant(a), reflect.DeepEqual(x, y):
		return y
	case isConstant(b):
		return x
	}
	return nil
}

func (s shaper) list(l ast.ListExpr) *Shape {
	var out Shape
	some := false
	for _, e := range l.Elements() {
		shape := s.of(e)
		out.Elements, some = append(out.Elements, shape), some || shape != nil
	}
	// Optional elements may be absent, and those behind them then move up.
	if !some || len(l.OptionalIndices()) > 0 && out.Each() == nil {
		return nil
	}
	return &out
}

func (s shaper) object(m ast.MapExpr) *Shape {
	fields := map[string]*Shape{}
	for _, e := range m.Entries() {
		entry := e.AsMapEntry()
		if entry.Key().Kind() != ast.LiteralKind {
			return nil // it may be any name
		}
		if name, ok := entry.Key().AsLiteral().Value().(string); ok {
			fields[name] = s.of(entry.Value())
		}
	}
	return mapShape(fields)
}
