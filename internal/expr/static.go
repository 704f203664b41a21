package expr

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// What can be said of an expression without a record. All of it errs on the side of
// saying nothing.

// Lead is a piece with which the value of an expression can begin, behind constant
// text.
type Lead struct {
	Pos pipeline.Pos
	// Function is what makes the piece, as in utcDate or pad; empty for a field.
	Function string
	// Path is the field that the piece is, as in event.order.at or message.id;
	// empty where a function makes it.
	Path string
	// Type is the piece's type as CEL names it: "dyn" for a field of the record,
	// "timestamp" without its package.
	Type string
	// Of is the type of what Function is called on, or its first argument.
	Of string
}

// Leads returns what the value can begin with: more than one lead where a condition
// decides, none where the value is constant.
func (p *Program) Leads() []Lead {
	w := walker{p}
	found, _ := w.leads(p.root())
	return found
}

// IsConstant reports whether every record gives the expression one value.
func (p *Program) IsConstant() bool { return walker{p}.constant(p.root()) }

// Function returns the outermost function that the expression calls, or "".
func (p *Program) Function() string {
	if e := p.root(); e.Kind() == ast.CallKind {
		return e.AsCall().FunctionName()
	}
	return ""
}

// Rounds reports whether the expression makes its value of a part of the data that it reads,
// as of the hour of a time, so that several records may have one value. Conditions are left out.
func (p *Program) Rounds() bool { return rounds(p.root()) }

// rounding lists functions that return one value for different arguments.
var rounding = map[string]bool{
	operators.Divide: true, operators.Modulo: true, "bucket": true, "utcDate": true,
	"substring": true, "charAt": true, "split": true, "size": true, "find": true, "findAll": true,
	"getFullYear": true, "getMonth": true, "getDate": true, "getDayOfMonth": true, "getDayOfWeek": true, "getDayOfYear": true,
	"getHours": true, "getMinutes": true, "getSeconds": true, "getMilliseconds": true,
	"math.floor": true, "math.ceil": true, "math.round": true, "math.trunc": true, "math.bitShiftRight": true, "math.bitAnd": true,
}

// clock is fixed text that completes a time: the rest of a day or of an hour. The seconds
// alone are no rounding, since many sources have none.
var clock = regexp.MustCompile(`^T\d\d:|^\d\d:|^:\d\d:\d\d`)

func rounds(e ast.Expr) bool {
	var parts []ast.Expr
	switch e.Kind() {
	case ast.LiteralKind:
		text, ok := e.AsLiteral().Value().(string)
		return ok && clock.MatchString(text)
	case ast.SelectKind:
		parts = []ast.Expr{e.AsSelect().Operand()}
	case ast.ListKind:
		parts = e.AsList().Elements()
	case ast.CallKind:
		call := e.AsCall()
		if rounding[call.FunctionName()] && !isConstant(e) {
			return true
		}
		parts = slices.Clone(call.Args())
		switch {
		case call.FunctionName() == operators.Conditional:
			parts = parts[1:]
		case slices.Contains(selections, call.FunctionName()):
			parts = parts[:1]
		case call.IsMemberFunction():
			parts = append(parts, call.Target())
		}
	}
	return slices.ContainsFunc(parts, rounds)
}

func isOptional(t *cel.Type) bool { return t.TypeName() == "optional_type" && len(t.Parameters()) == 1 }

// held returns the type of the value that an optional may hold, and other types as they are.
func held(t *cel.Type) *cel.Type {
	for isOptional(t) {
		t = t.Parameters()[0]
	}
	return t
}

// Sample returns a value of the expression's static type, in the form of Eval, to stand for
// all values of the type; for an optional, one of the type that it may hold. known is false
// if the type is known only when there is a record.
func (p *Program) Sample() (v any, known bool) {
	t := held(p.ast.OutputType())
	switch t.Kind() {
	case cel.BoolKind:
		return false, true
	case cel.IntKind:
		return int64(0), true
	case cel.UintKind:
		return uint64(0), true
	case cel.DoubleKind:
		return float64(0), true
	case cel.StringKind:
		return "", true
	case cel.BytesKind:
		return []byte{}, true
	case cel.TimestampKind:
		return time.Unix(0, 0).UTC(), true
	case cel.DurationKind:
		return time.Duration(0), true
	case cel.ListKind:
		return []any{}, true
	case cel.MapKind:
		return map[string]any{}, true
	case cel.NullTypeKind:
		return nil, true
	}
	return nil, false
}

// Uses reports whether the expression reads a variable, as in message.id.
func (p *Program) Uses(name string) bool {
	found := false
	ast.PreOrderVisit(p.root(), ast.NewExprVisitor(func(e ast.Expr) {
		path, ok := qualified(e)
		found = found || ok && path == name
	}))
	return found
}

// Doubles returns where the value takes in a double: the outermost parts of that
// type, conditions and conversions to whole numbers left out.
func (p *Program) Doubles() []pipeline.Pos {
	var out []pipeline.Pos
	for _, e := range (walker{p}).doubles(p.root()) {
		out = append(out, p.pos(e))
	}
	return out
}

func (p *Program) root() ast.Expr { return p.ast.NativeRep().Expr() }

// pos is where a part stands in the file, or where the expression starts. The parser
// places a call at its bracket and a.b.c at its last dot; their names stand before.
func (p *Program) pos(e ast.Expr) pipeline.Pos {
	loc := p.ast.NativeRep().SourceInfo().GetStartLocation(e.ID())
	name := ""
	switch e.Kind() {
	case ast.CallKind:
		name = e.AsCall().FunctionName()
	case ast.IdentKind:
		name = e.AsIdent()[:max(0, strings.LastIndexByte(e.AsIdent(), '.'))]
	}
	lines := strings.Split(p.src.Source, "\n")
	if name != "" && loc.Line() > 0 && loc.Line() <= len(lines) {
		before := []rune(lines[loc.Line()-1])
		before = before[:min(loc.Column(), len(before))]
		if strings.HasSuffix(string(before), name) {
			loc = common.NewLocation(loc.Line(), loc.Column()-utf8.RuneCountInString(name))
		}
	}
	return errorAt(p.src, loc, "").Pos
}

// walker walks a checked expression.
type walker struct{ p *Program }

func (w walker) typeOf(e ast.Expr) string {
	return plainTypes(w.p.ast.NativeRep().GetType(e.ID()).String())
}

// constant reports whether a part names no variable.
func (w walker) constant(e ast.Expr) bool { return isConstant(e) }

func isConstant(e ast.Expr) bool {
	free := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(x ast.Expr) {
		free = free || x.Kind() == ast.IdentKind
	}))
	return !free
}

// keepsStart lists the functions whose value begins as their target or first argument does.
var keepsStart = []string{"string", "bytes", "dyn", "hex", "millis", nonNull, "orValue", "replace", "lowerAscii", "upperAscii", "trim", "value"}

// leads returns what e can begin with. constant says that e can be constant, so that
// what stands behind it decides.
func (w walker) leads(e ast.Expr) (found []Lead, constant bool) {
	if w.constant(e) {
		return nil, true
	}
	if e.Kind() != ast.CallKind {
		return []Lead{w.field(e)}, false
	}
	call := e.AsCall()
	args := call.Args()
	switch name := call.FunctionName(); {
	case name == operators.Conditional:
		found, constant = w.leads(args[1])
		other, also := w.leads(args[2])
		return append(found, other...), constant || also
	case name == "key", name == operators.Add && w.joins(e):
		return w.sequence(args)
	case name == "join" && call.IsMemberFunction() && call.Target().Kind() == ast.ListKind:
		return w.sequence(call.Target().AsList().Elements())
	case slices.Contains(keepsStart, name), name == "substring" && fromStart(args):
		if call.IsMemberFunction() {
			return w.leads(call.Target())
		}
		return w.leads(args[0])
	case slices.Contains(selections, name):
		return []Lead{w.field(e)}, false
	}
	return []Lead{w.made(e)}, false
}

// joins reports whether a sum is one of texts or bytes, as far as is known.
func (w walker) joins(e ast.Expr) bool {
	return slices.Contains([]string{"string", "bytes", "dyn"}, w.typeOf(e))
}

func fromStart(args []ast.Expr) bool {
	if len(args) == 0 || args[0].Kind() != ast.LiteralKind {
		return false
	}
	n, ok := args[0].AsLiteral().Value().(int64)
	return ok && n == 0
}

func (w walker) sequence(parts []ast.Expr) (found []Lead, constant bool) {
	for _, part := range parts {
		leads, goesOn := w.leads(part)
		found = append(found, leads...)
		if !goesOn {
			return found, false
		}
	}
	return found, true
}

// field is a part that is read, not made.
func (w walker) field(e ast.Expr) Lead {
	path, whole := fieldPath(e)
	if !whole {
		path = ""
	}
	return Lead{Pos: w.p.pos(leftmost(e)), Path: path, Type: w.typeOf(e)}
}

// made is a part that a function makes.
func (w walker) made(e ast.Expr) Lead {
	call := e.AsCall()
	first := call.Target()
	if !call.IsMemberFunction() && len(call.Args()) > 0 {
		first = call.Args()[0]
	}
	return Lead{Pos: w.p.pos(leftmost(e)), Function: call.FunctionName(), Type: w.typeOf(e), Of: w.typeOf(first)}
}

// leftmost returns the part of e that its text starts with: of a.b and a + b it is a.
func leftmost(e ast.Expr) ast.Expr {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			switch {
			case call.IsMemberFunction():
				e = call.Target()
			case len(call.Args()) > 1 && isInfix(call.FunctionName()), call.FunctionName() == nonNull:
				e = call.Args()[0]
			default:
				return e
			}
		default:
			return e
		}
	}
}

// isInfix reports whether the first argument stands before the operator.
func isInfix(function string) bool {
	_, binary := operators.FindReverseBinaryOperator(function)
	return binary || function == operators.Conditional || slices.Contains(selections, function)
}

// selections are the calls that read a field: a["b"], a[?"b"] and a.?b.
var selections = []string{operators.Index, operators.OptIndex, operators.OptSelect}

// fieldPath is qualified for optional selections and constant indexes too.
func fieldPath(e ast.Expr) (string, bool) {
	if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		head, ok := fieldPath(e.AsSelect().Operand())
		return head + "." + e.AsSelect().FieldName(), ok
	}
	if e.Kind() != ast.CallKind || !slices.Contains(selections, e.AsCall().FunctionName()) {
		return qualified(e)
	}
	operand, name := e.AsCall().Args()[0], e.AsCall().Args()[1]
	if name.Kind() != ast.LiteralKind {
		return "", false
	}
	field, ok := name.AsLiteral().Value().(string)
	head, whole := fieldPath(operand)
	return head + "." + field, ok && whole
}

// doubles returns the outermost parts of type double that become part of e's value.
func (w walker) doubles(e ast.Expr) []ast.Expr {
	t := w.p.ast.NativeRep().GetType(e.ID())
	if t.Kind() == cel.DoubleKind {
		return []ast.Expr{leftmost(e)}
	}
	var parts []ast.Expr
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		parts = slices.Clone(call.Args())
		switch {
		case t.Kind() == cel.BoolKind, call.FunctionName() == "int", call.FunctionName() == "uint", call.FunctionName() == "size":
			return nil
		case call.FunctionName() == operators.Conditional:
			parts = parts[1:]
		case call.IsMemberFunction():
			parts = append([]ast.Expr{call.Target()}, parts...)
		}
	case ast.ListKind:
		parts = e.AsList().Elements()
	case ast.ComprehensionKind:
		parts = []ast.Expr{e.AsComprehension().LoopStep(), e.AsComprehension().Result()}
	}
	var out []ast.Expr
	for _, part := range parts {
		out = append(out, w.doubles(part)...)
	}
	return out
}
