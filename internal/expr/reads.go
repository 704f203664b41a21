package expr

import (
	"cmp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// Read is a part of a row that an expression looks at: a column by its name, else all of
// a family, else all of the row.
type Read struct {
	Pos       pipeline.Pos
	Family    string // empty: the whole row
	Qualifier string
	Column    bool // it is the column Qualifier, which may be the empty one
}

// Reads returns the parts of the row that the expression names, in its order, whether as
// values or to ask if they are there. What a computed name reads is not known and counts
// as all that it can be.
func (p *Program) Reads() []Read {
	var out []Read
	p.reads(p.root(), &out)
	slices.SortStableFunc(out, func(a, b Read) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return out
}

func (p *Program) reads(e ast.Expr, out *[]Read) {
	if names, ok := rowPath(e); ok {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In {
			e = e.AsCall().Args()[1]
		}
		r := Read{Pos: p.pos(leftmost(e))}
		if len(names) > 0 {
			r.Family = names[0]
		}
		if len(names) > 1 {
			r.Qualifier, r.Column = pipeline.TextName(names[1]), true
		}
		*out = append(*out, r)
		return
	}
	for _, part := range parts(e) {
		p.reads(part, out)
	}
}

// parts are the expressions that e is made of.
func parts(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return call.Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var out []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			out = append(out, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return out
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	}
	return nil
}

// rowPath returns the names that e selects from the row, one after another: those behind
// the column's, of a json one, included.
func rowPath(e ast.Expr) ([]string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name, rest, more := strings.Cut(e.AsIdent(), ".")
		if name != rowVariable {
			return nil, false
		}
		if !more {
			return nil, true
		}
		return strings.SplitN(rest, ".", 2), true
	case ast.SelectKind:
		return longer(e.AsSelect().Operand(), e.AsSelect().FieldName())
	case ast.CallKind:
		return callPath(e.AsCall())
	}
	return nil, false
}

func callPath(c ast.CallExpr) ([]string, bool) {
	args := c.Args()
	of, key := 0, 1
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
	case operators.In:
		of, key = 1, 0
	default:
		return nil, false
	}
	if args[key].Kind() != ast.LiteralKind {
		return nil, false
	}
	name, ok := args[key].AsLiteral().Value().(string)
	if !ok {
		return nil, false
	}
	return longer(args[of], name)
}

func longer(of ast.Expr, name string) ([]string, bool) {
	names, ok := rowPath(of)
	return append(slices.Clip(names), name), ok
}
